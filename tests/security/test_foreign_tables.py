"""What others put into their tables is data: whoever uses these gets an error at worst."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg2
import pytest

from tests.networks import network
from tests.security.conftest import MODEL_TABLES, Person

# What a column may hold instead; each is of a type that is not the right one for many columns.
GRANT = "GRANT SELECT ON ALL TABLES IN SCHEMA {alice} TO {bob}"
HOSTILE = (
    "ARRAY['1 THEN ''x'' END AS fault, NULL AS shape FROM (SELECT 1 AS n, 1 AS id) r) f; {grant}; "
    "SELECT 1, 1, ''null'', NULL::int[] -- ']",
    "pg_catalog.json_build_array(pg_catalog.json_build_array('1); {grant}; --'::text))",
    "ARRAY[2147483647, 2147483647, 2147483647]",
    "NULL::text",
)
# Of the servers' own making, or from a value that a table has no right to: nothing to be told to a user.
NOT_CLEAR = {"XX000", "38000", "38001"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def prepared(alice: Person, bob: Person, root: Person) -> Iterator[str]:
    """A statement that bob would like alice to run; alice may read all that bob has."""
    root.rows(f"GRANT USAGE ON SCHEMA {bob.sql_name} TO {alice.sql_name}")
    grant = GRANT.format(alice=alice.sql_name, bob=bob.sql_name).replace("'", "''")
    yield grant
    root.rows(f"REVOKE USAGE ON SCHEMA {bob.sql_name} FROM {alice.sql_name}")


def columns_of(person: Person, table: str) -> list[str]:
    """The columns of one of a person's tables."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"
    return [name for (name,) in person.rows(query, (f"{person.sql_name}.{table}",))]


def changed(
    bob: Person, name: str, tables: tuple[str, ...], where: str, column: str, value: str
) -> None:
    """Copies of bob's tables under another name, one column of one of them with another value."""
    for table in tables:
        copy = name + table[len(tables[0]) :]
        values = ", ".join(
            f'{value} AS "{c}"' if (table, c) == (where, column) else f't."{c}"'
            for c in columns_of(bob, table)
        )
        bob.rows(f"CREATE TABLE {copy} AS SELECT {values.replace('%', '%%')} FROM {table} t", ())
        bob.rows(f"GRANT SELECT ON {copy} TO PUBLIC")


MODELS, PACKED, CONFIGS = MODEL_TABLES, ("packed", "packed_summary"), ("configs", "configs_summary")
CALLS = {
    MODELS: (
        "cerebro_predict('{table}', 'rows', 'id', 'x', '{out}')",
        "cerebro_evaluate('{table}', 'packed', '{out}')",
    ),
    PACKED: (
        "cerebro_pack_validation('rows', '{out}', 'y', 'x', '{table}')",
        "cerebro_fit_multiple('{table}', '{out}', 'configs', 1, num_workers := 1)",
    ),
    CONFIGS: ("cerebro_fit_multiple('packed', '{out}', '{table}', 1, num_workers := 1)",),
}
# What is bytes of arrays is checked where it is read; here it is about what describes them.
DESCRIPTIONS = ("out_summary", "out_info", "packed_summary", "configs", "configs_summary")


@pytest.mark.parametrize(
    ("tables", "where"),
    [(tables, table) for tables in CALLS for table in tables if table in DESCRIPTIONS],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_hostile_descriptions(
    alice: Person, bob: Person, prepared: str, tables: tuple[str, ...], where: str
) -> None:
    unclear = []
    for column, hostile in itertools.product(columns_of(bob, where), HOSTILE):
        name = f"foreign_{next(_numbers)}"
        value = hostile.format(grant=prepared)
        changed(bob, name, tables, where, column, value)
        for call in CALLS[tables]:
            out = f"mine_{next(_numbers)}"
            table = f"{bob.sql_name}.{name}".replace("'", "''")
            try:
                alice.rows("SELECT " + call.format(table=table, out=out).replace("%", "%%"), ())
            except psycopg2.Error as error:
                if error.pgcode in NOT_CLEAR:
                    unclear.append((column, value, call, str(error).splitlines()[0]))
            for part in ("", "_summary", "_info", "_states"):
                alice.rows(f"DROP TABLE IF EXISTS {out}{part}")
        for table in tables:
            bob.rows(f"DROP TABLE {name}{table[len(tables[0]) :]}")
    assert unclear == []
    mine = f"{alice.sql_name}.rows"
    assert bob.value("SELECT has_table_privilege(%s, 'SELECT')", (mine,)) is False


SEVERAL = "loss=['sparse_categorical_crossentropy', 'mse', 'mse'],optimizer='SGD()'"
LISTS = {
    "lists_out_summary": ("input_shapes", "target_kinds", "target_shapes", "dependent_varname"),
    "lists_summary": ("input_shapes", "target_shapes", "num_classes", "independent_varname"),
}
LIST_CALLS = {
    "lists_out_summary": (
        "cerebro_predict('{table}', 'lists_rows', 'id', 'g, s', '{out}')",
        "cerebro_predict_outputs('{table}', '[[[1, 2], [3, 4]], [5]]')",
    ),
    "lists_summary": (
        "cerebro_predict('lists_out', '{table}', NULL, NULL, '{out}')",
        "cerebro_pack_validation('lists_rows', '{out}', 'k, a, p', 'g, s', '{table}')",
    ),
}


@pytest.fixture(scope="module")
def lists(alice: Person, bob: Person) -> None:
    """Tables of both about a model of several inputs and outputs."""
    for person in (alice, bob):
        person.rows(
            "CREATE TABLE lists_rows AS SELECT i AS id, ARRAY[[i, 1], [2, 3]]::real[] AS g, "
            "i::real AS s, i %% 3 AS k, i::real AS a, ARRAY[i, 1]::real[] AS p "
            "FROM generate_series(1, 6) i",
            (),
        )
        person.rows("SELECT cerebro_pack('lists_rows', 'lists', 'k, a, p', 'g, s')")
        person.rows("SELECT cerebro_load_model('lists_models', %s)", (network(),))
        person.rows(
            "SELECT cerebro_fit('lists', 'lists_out', 'lists_models', 1, %s, 'batch_size=8', 1)",
            (SEVERAL,),
        )


@pytest.mark.parametrize("where", LISTS)
def test_hostile_lists(alice: Person, bob: Person, prepared: str, lists: None, where: str) -> None:
    first = where.removesuffix("_summary")
    others = ("_info", "_states", "_history") if first == "lists_out" else ()
    ends = ("", "_summary", *others)
    unclear = []
    hostile = [
        *HOSTILE,
        "'[]'::json",
        "'[[1, 2]]'::json",
        "ARRAY['s', 's', 's']",
        "ARRAY['x'' --']",
    ]
    for column, value in itertools.product(LISTS[where], hostile):
        name, out = f"foreign_{next(_numbers)}", f"mine_{next(_numbers)}"
        given = value.format(grant=prepared) if "{" in value else value
        changed(bob, name, tuple(first + end for end in ends), where, column, given)
        table = f"{bob.sql_name}.{name}".replace("'", "''")
        for call in LIST_CALLS[where]:
            try:
                alice.rows("SELECT " + call.format(table=table, out=out).replace("%", "%%"), ())
            except psycopg2.Error as error:
                if error.pgcode in NOT_CLEAR:
                    unclear.append((column, value, call, str(error).splitlines()[0]))
            for part in ("", "_summary"):
                alice.rows(f"DROP TABLE IF EXISTS {out}{part}")
        for end in ends:
            bob.rows(f"DROP TABLE {name}{end}")
    assert unclear == []
    mine = f"{alice.sql_name}.rows"
    assert bob.value("SELECT has_table_privilege(%s, 'SELECT')", (mine,)) is False


def test_a_summary_of_one_target_names_one(alice: Person, bob: Person, prepared: str) -> None:
    changed(bob, "two", MODELS, "out_summary", "dependent_varname", "ARRAY['y', 'x']")
    table = f"{bob.sql_name}.two".replace("'", "''").replace("%", "%%")
    error = alice.refused(f"SELECT cerebro_predict('{table}', 'rows', 'id', 'x', 'of_two')", ())
    assert error.pgcode == "42809"
    assert "names 2 targets in column dependent_varname; allowed: one" in str(error)
    for part in ("", "_info", "_summary", "_states", "_history"):
        bob.rows(f"DROP TABLE IF EXISTS two{part}")


def test_a_statement_in_a_shape_is_not_run(alice: Person, bob: Person, prepared: str) -> None:
    # The error that asks for the row which is to blame comes from a state that is none.
    value = HOSTILE[0].format(grant=prepared)
    changed(bob, "trap", MODELS, "out_summary", "input_shape", value)
    bob.rows("UPDATE trap_states SET state = 'x'")
    table = f"{bob.sql_name}.trap".replace("'", "''").replace("%", "%%")
    error = alice.refused(f"SELECT cerebro_predict('{table}', 'rows', 'id', 'x', 'trapped')", ())
    assert error.pgcode == "42809"
    assert "in column input_shape; allowed: a whole number" in str(error)
    mine = f"{alice.sql_name}.rows"
    assert bob.value("SELECT has_table_privilege(%s, 'SELECT')", (mine,)) is False
    for part in ("", "_info", "_summary", "_states"):
        bob.rows(f"DROP TABLE trap{part}")
