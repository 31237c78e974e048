"""Reading a table of somebody else runs none of that role's code as the caller, whatever kind of table it is."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from tests.reasons import NO_SUCH_SQL
from tests.security.conftest import MODEL_TABLES, NET, Person, Recruit

pytestmark = pytest.mark.not_on_segments(NO_SUCH_SQL)

# A call of one of these as somebody else than its owner moves the sequence, also where it is rolled back.
RAN = "IF current_user <> {owner} THEN PERFORM nextval('public.ran'); END IF;"
EVIL = "CREATE FUNCTION {name}({takes}) RETURNS {gives} LANGUAGE plpgsql {volatile} AS $$BEGIN {ran} RETURN {result}; END$$"
PLAIN = "SELECT i AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, i::real AS n, NULL::text AS c FROM generate_series(1, 8) i"
# How mallory lays each trap: all make a relation "trap" of columns id, x, y, n and c.
TRAPS = {
    "enumeration with a cast": (
        "CREATE TYPE mood AS ENUM ('a', 'b'); CREATE CAST (mood AS text) WITH FUNCTION evil_mood(mood)",
        "CREATE TABLE trap AS SELECT i AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, i::real AS n, "
        "'a'::mood AS c FROM generate_series(1, 8) i",
    ),
    "composite with a cast": (
        "CREATE TYPE pair AS (a integer, b integer); CREATE CAST (pair AS text) WITH FUNCTION evil_pair(pair)",
        "CREATE TABLE trap AS SELECT ROW(i, i)::pair AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, "
        "i::real AS n, NULL::text AS c FROM generate_series(1, 8) i",
    ),
    "array with a cast": (
        "CREATE TYPE mood AS ENUM ('a', 'b'); CREATE CAST (mood[] AS text) WITH FUNCTION evil_moods(mood[])",
        "CREATE TABLE trap AS SELECT i AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, i::real AS n, "
        "ARRAY['a'::mood] AS c FROM generate_series(1, 8) i",
    ),
    "domain": (
        "CREATE DOMAIN small AS integer CHECK (evil_check(VALUE))",
        "CREATE TABLE trap AS SELECT i::small AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, i::real AS n, "
        "NULL::text AS c FROM generate_series(1, 8) i",
    ),
    "domain in a composite": (
        "CREATE DOMAIN small AS integer CHECK (evil_check(VALUE)); CREATE TYPE pair AS (a small, b integer)",
        "CREATE TABLE trap AS SELECT ROW(i, i)::pair AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, "
        "i::real AS n, NULL::text AS c FROM generate_series(1, 8) i",
    ),
    "view": ("", f"CREATE VIEW trap AS {PLAIN} WHERE evil_check(i)"),
    "view on a view": (
        f"CREATE VIEW below AS {PLAIN} WHERE evil_check(i)",
        "CREATE VIEW trap AS SELECT * FROM below",
    ),
    "view with an operator": (
        "CREATE OPERATOR ~~~ (LEFTARG = integer, RIGHTARG = integer, PROCEDURE = evil_operator)",
        f"CREATE VIEW trap AS {PLAIN} WHERE i ~~~ 1",
    ),
    "view with a domain": (
        "CREATE DOMAIN small AS integer CHECK (evil_check(VALUE))",
        "CREATE VIEW trap AS SELECT (i::small)::integer AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, "
        "i::real AS n, NULL::text AS c FROM generate_series(1, 8) i",
    ),
    "view of a function that runs texts": (
        "",
        f"CREATE VIEW trap AS {PLAIN} WHERE query_to_xml('SELECT mallory.evil_check(1)', true, true, '') "
        "IS NOT NULL",
    ),
    "policy": (
        f"CREATE TABLE trap AS {PLAIN}",
        "CREATE POLICY p ON trap USING (evil_check(id)); ALTER TABLE trap ENABLE ROW LEVEL SECURITY",
    ),
    "materialized view": (
        "CREATE TYPE mood AS ENUM ('a', 'b'); CREATE CAST (mood AS text) WITH FUNCTION evil_mood(mood)",
        "CREATE MATERIALIZED VIEW trap AS SELECT i AS id, ARRAY[i, 1]::real[] AS x, i % 2 AS y, i::real AS n, "
        "'a'::mood AS c FROM generate_series(1, 8) i",
    ),
    "foreign table": (
        "CREATE DOMAIN small AS integer CHECK (evil_check(VALUE))",
        "CREATE FOREIGN TABLE trap (id small, x real[], y integer, n real, c text) SERVER loop "
        "OPTIONS (schema_name 'mallory', table_name 'far')",
    ),
    "foreign partition": (
        "CREATE DOMAIN small AS integer CHECK (evil_check(VALUE)); "
        "CREATE TABLE trap (id small, x real[], y integer, n real, c text) PARTITION BY LIST (y)",
        "CREATE FOREIGN TABLE part PARTITION OF trap DEFAULT SERVER loop "
        "OPTIONS (schema_name 'mallory', table_name 'far')",
    ),
    "key of a partitioned table": (
        "CREATE TABLE trap (id integer, x real[], y integer, n real, c text) PARTITION BY LIST ((evil_key(y)))",
        f"CREATE TABLE part PARTITION OF trap DEFAULT; INSERT INTO trap {PLAIN}",
    ),
    "check of a child": (
        f"CREATE TABLE trap AS {PLAIN}; CREATE TABLE child () INHERITS (trap)",
        "INSERT INTO child SELECT * FROM ONLY trap; ALTER TABLE child ADD CHECK (evil_constant(1))",
    ),
    "index": (f"CREATE TABLE trap AS {PLAIN}", "CREATE INDEX ON trap ((evil_constant(1)))"),
    "part of an index": (
        f"CREATE TABLE trap AS {PLAIN}",
        "CREATE INDEX ON trap (id) WHERE evil_constant(1)",
    ),
    "statistics": (
        f"CREATE TABLE trap AS {PLAIN}",
        "CREATE STATISTICS s ON (evil_constant(1)), id FROM trap",
    ),
}
CALLS = (
    "cerebro_pack('mallory.trap', 'o', 'y', 'x', num_partitions := 1)",
    "cerebro_pack_columns('mallory.trap', 'o', 'y', 'n, c', num_partitions := 1)",
    "cerebro_predict('out', 'mallory.trap', 'id', 'x', 'o')",
    "cerebro_train_test_split('mallory.trap', 'o', 0.5, grouping_cols := 'c')",
    "cerebro_encode('mallory.trap', 'columns', 'o', 'id')",
)
MORE = (
    "cerebro_pack_validation('mallory.trap', 'o', 'y', 'x', 'packed')",
    "cerebro_pack_images('mallory.trap', 'o', 'y', 'x', ARRAY[2], 'raw')",
    "cerebro_create_encoder('mallory.trap', 'columns', 'o')",
    "cerebro_evaluate('out', 'mallory.trap', 'o')",
    "cerebro_evaluate('mallory.trap', 'packed', 'o')",
    "cerebro_predict('mallory.trap', 'rows', 'id', 'x', 'o')",
    "cerebro_predict_byom('mallory.trap', 1, 'rows', 'id', 'x', 'o')",
    "cerebro_load_configs('mallory.trap', 'o', ARRAY[1], ARRAY['loss=''mse'',optimizer=''SGD()'''], ARRAY['batch_size=8'])",
    "cerebro_fit_multiple('mallory.trap', 'o', 'configs', 1)",
    "cerebro_fit_multiple('packed', 'o', 'mallory.trap', 1)",
    "cerebro_fit_multiple('packed', 'o', 'configs', 1, validation_table := 'mallory.trap')",
)


@pytest.fixture(scope="module")
def loop(root: Person) -> Iterator[None]:
    """A foreign server that is this database."""
    try:
        root.rows("CREATE EXTENSION postgres_fdw")
    except psycopg2.Error as error:
        pytest.skip(f"needs postgres_fdw, of PostgreSQL's contrib: {error}")
    parameters = root.connection.get_dsn_parameters()
    root.rows(
        "CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %s, port %s, dbname %s); "
        "GRANT USAGE ON FOREIGN SERVER loop TO PUBLIC",
        (parameters["host"], parameters["port"], parameters["dbname"]),
    )
    yield
    root.rows("DROP SERVER loop CASCADE; DROP EXTENSION postgres_fdw")


@pytest.fixture(scope="module")
def mallory(recruit: Recruit, root: Person, alice: Person) -> Iterator[Person]:
    """A user whose functions would do what their caller may do."""
    made = recruit("trapper", "cerebro_user")
    root.rows("CREATE SEQUENCE public.ran; GRANT USAGE, SELECT ON SEQUENCE public.ran TO PUBLIC")
    yield made
    root.rows("DROP SCHEMA IF EXISTS mallory CASCADE; DROP SEQUENCE public.ran")


@pytest.fixture
def traps(mallory: Person, root: Person, alice: Person) -> Iterator[Person]:
    """An empty schema of mallory's with functions; others may read all that is made there."""
    root.rows(f"CREATE SCHEMA mallory AUTHORIZATION {mallory.sql_name}")
    mallory.rows(
        "SET search_path = mallory, cerebro; GRANT USAGE ON SCHEMA mallory TO PUBLIC; "
        "ALTER DEFAULT PRIVILEGES IN SCHEMA mallory GRANT SELECT ON TABLES TO PUBLIC"
    )
    yield mallory
    for out in ("o", "o_summary", "o_encoding"):
        alice.rows(f"DROP TABLE IF EXISTS {out}")
    root.rows("DROP SCHEMA mallory CASCADE")


def lay(mallory: Person, trap: str) -> None:
    """Make the relation of a trap, and the functions that it needs."""
    ran = RAN.format(owner="'" + mallory.name + "'")
    before, made = TRAPS[trap]
    functions = {
        "evil_check": ("integer", "boolean", "true"),
        "evil_key": ("integer", "integer", "$1"),
        "evil_constant": ("integer", "boolean", "true"),
        "evil_operator": ("integer, integer", "boolean", "true"),
        "evil_mood": ("mood", "text", "'x'"),
        "evil_moods": ("mood[]", "text", "'x'"),
        "evil_pair": ("pair", "text", "'x'"),
    }
    types = [part for part in before.split("; ") if part.startswith("CREATE TYPE")]
    for text in types:
        if "small" not in text:
            mallory.rows(text)
    for name, (takes, gives, result) in functions.items():
        kind = takes.removesuffix("[]")
        if (kind in ("mood", "pair") and not any(f"TYPE {kind} " in text for text in types)) or (
            kind == "pair" and "small" in before
        ):
            continue
        volatile = "IMMUTABLE" if name in ("evil_key", "evil_constant") else "VOLATILE"
        mallory.rows(
            EVIL.format(
                name=name, takes=takes, gives=gives, volatile=volatile, ran=ran, result=result
            )
        )
    for text in before.split("; "):
        if text and (text not in types or "small" in text):
            mallory.rows(text)
    if "SERVER loop" in made:
        mallory.rows(f"CREATE TABLE far AS {PLAIN}")
    mallory.rows(made)


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_refused_before_it_is_sprung(
    traps: Person, root: Person, alice: Person, trap: str, request: pytest.FixtureRequest
) -> None:
    if trap == "statistics" and root.connection.server_version < 140000:
        pytest.skip("statistics on expressions are of PostgreSQL 14")
    if "foreign" in trap:
        request.getfixturevalue("loop")
        for person in (alice, traps):
            name = person.sql_name.replace("%", "%%")
            root.rows(
                f"DROP USER MAPPING IF EXISTS FOR {name} SERVER loop; "
                f"CREATE USER MAPPING FOR {name} SERVER loop OPTIONS (user %s, password_required 'false')",
                (person.name,),
            )
    lay(traps, trap)
    before = root.rows("SELECT last_value, is_called FROM public.ran")
    for call in CALLS:
        error = alice.refused(f"SELECT {call}")
        assert error.pgcode == "42501", (call, error)
        assert "code of another role" in str(error), (call, error)
        assert traps.name in str(error), (call, error)
        assert "CREATE TABLE mine AS" in str(error.diag.message_hint)
    assert root.rows("SELECT last_value, is_called FROM public.ran") == before


@pytest.mark.parametrize("call", MORE)
def test_every_reader_passes_the_gate(
    traps: Person, root: Person, alice: Person, call: str
) -> None:
    lay(traps, "domain")
    before = root.rows("SELECT last_value, is_called FROM public.ran")
    error = alice.refused(f"SELECT {call}")
    assert (error.pgcode, "code of another role" in str(error)) == ("42501", True), error
    assert root.rows("SELECT last_value, is_called FROM public.ran") == before


@pytest.mark.parametrize(
    "call",
    [
        "cerebro_predict_row('mallory.out', ARRAY[1, 2])",
        "cerebro_predict_outputs('mallory.out', '[[1, 2]]')",
        "cerebro_predict('mallory.out', 'rows', 'id', 'x', 'o')",
        "cerebro_fit_multiple('packed', 'o', 'mallory.configs', 1)",
        "cerebro_fit_multiple('mallory.packed', 'o', 'configs', 1)",
    ],
)
def test_what_lies_beside_tables_of_others_passes_the_gate_first(
    traps: Person, root: Person, alice: Person, call: str
) -> None:
    """Whether a model is known already is asked of the table of its states; configurations have a summary."""
    guarded = {"out_states": "mst_key", "configs_summary": "1", "packed_summary": "1"}
    for table in (*MODEL_TABLES, "configs", "configs_summary", "packed", "packed_summary"):
        copy = f"mallory.{table}"
        root.rows(f"CREATE TABLE {copy} AS SELECT * FROM {alice.sql_name}.{table}")
        root.rows(f"ALTER TABLE {copy} OWNER TO {traps.sql_name}; GRANT SELECT ON {copy} TO PUBLIC")
    lay_function = EVIL.format(
        name="evil_check", takes="integer", gives="boolean", volatile="VOLATILE",
        ran=RAN.format(owner="'" + traps.name + "'"), result="true",
    )  # fmt: skip
    traps.rows(lay_function)
    for table, given in guarded.items():
        traps.rows(
            f"CREATE POLICY p ON {table} USING (evil_check({given})); "
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        )
    before = root.rows("SELECT last_value, is_called FROM public.ran")
    error = alice.refused(f"SELECT {call}")
    assert (error.pgcode, "code of another role" in str(error)) == ("42501", True), error
    assert root.rows("SELECT last_value, is_called FROM public.ran") == before


def test_a_table_of_others_with_a_trigger_is_not_written_into(
    traps: Person, alice: Person, root: Person
) -> None:
    ran = RAN.format(owner="'" + traps.name + "'")
    traps.rows("SELECT cerebro_load_model('theirs', %s)", (NET,))
    traps.rows(
        "GRANT ALL ON theirs TO PUBLIC; CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS "
        f"$${'BEGIN ' + ran + ' RETURN NEW; END'}$$; "
        "CREATE TRIGGER t BEFORE INSERT ON theirs FOR EACH ROW EXECUTE PROCEDURE evil()"
    )
    before = root.rows("SELECT last_value, is_called FROM public.ran")
    error = alice.refused("SELECT cerebro_load_model('mallory.theirs', %s)", (NET,))
    assert error.pgcode == "42501", error
    assert "writing into mallory.theirs may run code of another role" in str(error)
    assert root.rows("SELECT last_value, is_called FROM public.ran") == before


def test_what_runs_no_code_of_others_is_read(traps: Person, alice: Person, root: Person) -> None:
    """Types, views and checks with what the server brings, and code of roles that one belongs to."""
    traps.rows(
        "CREATE TYPE mood AS ENUM ('a', 'b'); CREATE DOMAIN small AS integer CHECK (VALUE > 0); "
        "CREATE TABLE plain AS SELECT i::small AS id, ARRAY[i, 1]::real[] AS x, 'a'::mood AS y "
        "FROM generate_series(1, 8) i; CREATE VIEW seen AS SELECT * FROM plain WHERE id::integer % 3 < 3; "
        "CREATE FUNCTION kept(integer) RETURNS boolean LANGUAGE sql AS 'SELECT true'; "
        "CREATE VIEW ours AS SELECT * FROM plain WHERE kept(id)"
    )
    for table in ("plain", "seen"):
        alice.rows(f"SELECT cerebro_pack('mallory.{table}', 'o', 'y', 'x', replace := true)")
    assert alice.refused("SELECT cerebro_pack('mallory.ours', 'p', 'y', 'x')").pgcode == "42501"
    root.rows(f"GRANT {traps.sql_name} TO {alice.sql_name}")
    try:
        alice.rows("SELECT cerebro_pack('mallory.ours', 'o', 'y', 'x', replace := true)")
        assert alice.value("SELECT sum(num_rows) FROM o") == 8
    finally:
        root.rows(f"REVOKE {traps.sql_name} FROM {alice.sql_name}")
