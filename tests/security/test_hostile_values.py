"""Hostile names and values in every argument of every function: an answer or a clear error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.security.conftest import ADAM, NET, Person, Recruit, log_in, make_tables, quoted

# Classes of errors that say what is wrong with a call; XX001 is a damaged state, YC007 an order that is none.
ALLOWED = re.compile(r"0A000|21\w+|22\w+|23\w+|42\w+|44000|54\w+|55\w+|58000|XX001|YC007")
# Those of Python, and of a client that let a text through as SQL.
DEFECTS = re.compile(
    r"\b(Key|Type|Value|Attribute|Index|Assertion|Memory|Overflow|Recursion|Name|Runtime|"
    r"UnicodeDecode|UnicodeEncode|ZeroDivision)Error\b|Traceback|syntax error"
)
# What they are given is a statement of the caller's, which they run with the caller's rights.
STATEMENTS = ("cerebro._do_as_seen", "cerebro._seen_rows")
HOSTILE = [
    "", " ", "'", '"', '""', "''", "\\", "\\'", "%", "%s", "%(x)s", "%%", "{}", "{0}", "$1", "$$",
    "$cerebro$", "$cerebro$; DROP TABLE sentinel; --", "'; DROP TABLE sentinel; --",
    "\\'; DROP TABLE sentinel; --", '"; DROP TABLE sentinel; --', "/*", "*/", "--", ";",
    "x\ny", "\r\n", "\t", "\x01", "\x7f", "\u202e", "\ufeff", "\U0001f4a3", "\ud7ff", "é", "İ",
    "a" * 63, "a" * 64, "é" * 32, "a" * 5000, "a.b", "a.b.c", '"a"."b"', "a.", ".a", "pg_catalog",
    "pg_class", "pg_catalog.pg_authid", "cerebro.catalog_runs", "sentinel", "public.sentinel",
    "null", "NULL", "true", "0", "-1", "1e999", "NaN", "__import__('os').system('x')", "[]", "{}",
    '{"a": 1}', "[[[[[[", "loss='mse'", "loss='mse',optimizer='SGD()'", "loss=__import__('os')",
    "format('%I', 'x')", "%I %L %s", "{{ x }}", "${x}", "../../etc/passwd", "file:///etc/passwd",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    st.tuples(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE)).map("".join),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": texts,
    "name": texts,
    "json": st.sampled_from(
        ["{}", "[]", "null", "1", NET, json.dumps({"class_name": ["x"]}), '"x"']
    ),
    "jsonb": st.sampled_from(["{}", "[]", "null", "1", NET, '"x"']),
    "bytea": st.binary(max_size=40) | st.just(b"CRBS" + bytes(60)),
    "integer": st.sampled_from([0, 1, -1, 2, 7, 2**31 - 1, -(2**31)]),
    "bigint": st.sampled_from([0, 1, -1, 2, 2**63 - 1, -(2**63)]),
    "smallint": st.sampled_from([0, 1, -1, 2**15 - 1, -(2**15)]),
    "oid": st.sampled_from([0, 10, 2**32 - 1]),
    "double precision": st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e308, float("nan"), float("inf")]),
    "real": st.sampled_from([0.0, 1.0, -1.0, 0.5, 3e38, float("nan"), float("inf")]),
    "numeric": st.sampled_from(["0", "16777217", "1e400", "0.1", "NaN"]).map(Decimal),
    "boolean": st.just(False),
    "timestamp with time zone": st.sampled_from(["now", "epoch", "infinity", "2000-01-01"]),
    "interval": st.sampled_from(["1 day", "-1 day", "0", "178000000 years"]),
}
NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
for _kind in (*NUMBERS, "text", "timestamp with time zone"):
    VALUES[f"{_kind}[]"] = st.lists(st.none() | VALUES[_kind], max_size=3)


@pytest.fixture(scope="module")
def mallory(recruit: Recruit, root: Person, security_dsn: str) -> Iterator[Person]:
    """A user whose role has it that backslashes escape, which hurts clients that do not ask."""
    mallory = recruit("mallory", "cerebro_user")
    root.rows("CREATE TABLE public.sentinel (x int); INSERT INTO public.sentinel VALUES (42)")
    root.rows(f"ALTER TABLE public.sentinel OWNER TO {mallory.sql_name}")
    root.rows(f"ALTER ROLE {mallory.sql_name} SET standard_conforming_strings = off")
    again = log_in(security_dsn, mallory.name)
    make_tables(again)
    # This session becomes a worker: what it is given reaches the innermost checks.
    again.rows(PREPARE)
    yield again
    again.connection.close()
    root.rows("DROP TABLE public.sentinel")


def signatures(root: Person) -> dict[str, list[str]]:
    """The types of the arguments of every function that can be called."""
    return {
        signature.partition("(")[0] + "/" + str(len(kinds)) + signature[-20:]: [signature, *kinds]
        for signature, kinds in root.rows(
            "SELECT p.oid::regprocedure::text, "
            "ARRAY(SELECT format_type(a, NULL) FROM unnest(p.proargtypes) a) FROM pg_proc p "
            "WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND p.pronargs > 0 ORDER BY 1"
        )
    }


@pytest.fixture(scope="module")
def calls(root: Person) -> list[tuple[str, list[str]]]:
    """Every function: its name, and the types of its arguments."""
    return [(row[0].partition("(")[0], row[1:]) for row in signatures(root).values()]


def attempt(person: Person, sql: str, values: Any) -> psycopg2.Error | None:
    """The error of a statement, if it has one."""
    try:
        person.rows(sql, values)
    except psycopg2.Error as error:
        return error
    return None


def check(person: Person, sql: str, values: Any) -> None:
    """A statement returns, or fails as a call may."""
    error = attempt(person, sql, values)
    if error is None:
        return
    told = f"{sql} {values!r}: {error.pgcode} {error}"
    assert person.connection.closed == 0, told
    assert error.pgcode, told
    assert ALLOWED.fullmatch(error.pgcode), told
    assert not DEFECTS.search(error.diag.message_primary or ""), told


def test_every_argument_has_hostile_values(calls: list[tuple[str, list[str]]]) -> None:
    assert {kind for _, kinds in calls for kind in kinds} <= VALUES.keys()


PREPARE = "SELECT cerebro._prepare_worker(1, false, 1000000, 7)"
FEW = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FEW
@given(data=st.data())
def test_every_argument_of_every_function(
    data: st.DataObject, mallory: Person, root: Person, calls: list[tuple[str, list[str]]]
) -> None:
    name, kinds = data.draw(st.sampled_from(calls))
    # Names that exist lead further in than names that do not.
    good = st.sampled_from(["rows", "packed", "models", "configs", "y", "x", "id", ADAM])
    values = [
        data.draw(st.none() | VALUES[kind] | (good if kind == "text" else st.nothing()))
        for kind in kinds
    ]
    if name == "cerebro.cerebro_fit_multiple" and values[:3] == ["packed", "packed", "configs"]:
        return
    if name in STATEMENTS:
        return
    if name == "cerebro.cerebro_delete_model" and values == ["models", 1]:
        return  # other tests need it
    if name == "cerebro.cerebro_drop_outputs":
        values = [
            value if value not in ("models", "configs", "packed") else "x" for value in values
        ]
    arguments = ", ".join(f"%s::{kind}" for kind in kinds)
    check(mallory, f"SELECT {name}({arguments})", values)
    assert root.rows("SELECT x FROM public.sentinel") == [(42,)]


RECIPE: dict[str, Any] = {
    "mst_key": 1,
    "architecture": NET,
    "architecture_id": "net",
    "compile_params": ADAM,
    "fit_params": "batch_size=2",
    "targets": {"kind": "class", "num_classes": 2, "shape": []},
    "jit": False,
    "steps_per_call": 2,
}
PLACE: dict[str, Any] = {
    "run_id": 7,
    "dataset": "training",
    "partition_key": 0,
    "buffers": {"ids": [0], "rows": [2]},
    "targets": RECIPE["targets"],
}
HOP = RECIPE | PLACE | {"seed": 0, "epoch": 1, "salt": "x", "initial_seed": 5, "is_first": True}
ASKED = RECIPE | {"format": "state", "shape": [2], "divisor": 1.0, "ranks": [2]}
PARTIAL = {
    "rows": 2,
    "loss_sum": 1.0,
    "units": [2],
    "metrics": [[["float32", 1.0], ["float32", 2.0]]],
    "losses": [],
}
BUFFER = (
    "decode('0000000000000000000000000000803f', 'hex'), ARRAY[2, 2], "
    "decode('0000000001000000', 'hex'), ARRAY[2]"
)
SEVERAL = (
    "decode('0000000000000000000000000000803f', 'hex'), ARRAY[2, 1, 2, 1], "
    "decode('00000000010000000000803f0000803f', 'hex'), ARRAY[2, 2]"
)
NOTHING = "NULL::bytea, NULL::int[], NULL::bytea, NULL::int[]"
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "hop": (
        HOP,
        "SELECT cerebro.cerebro_train(k, t, NULL, NULL, 0, 0, x, xs, y, ys ORDER BY k) FROM "
        f"(SELECT 0, %s::text, {NOTHING} UNION ALL SELECT 2, NULL, {BUFFER}) v(k, t, x, xs, y, ys)",
    ),
    "scan": (
        PLACE,
        "SELECT cerebro.cerebro_measure(k, t, NULL, 0, x, xs, y, ys ORDER BY k) FROM "
        f"(SELECT 0, %s::text, {NOTHING} UNION ALL SELECT 2, NULL, {BUFFER}) v(k, t, x, xs, y, ys)",
    ),
    "scan of several": (
        PLACE
        | {
            "inputs": [[1], [1]],
            "targets": PLACE["targets"]
            | {"more": [{"kind": "float", "num_classes": 0, "shape": []}]},
        },
        "SELECT cerebro.cerebro_measure(k, t, NULL, 0, x, xs, y, ys ORDER BY k) FROM "
        f"(SELECT 0, %s::text, {NOTHING} UNION ALL SELECT 2, NULL, {SEVERAL}) v(k, t, x, xs, y, ys)",
    ),
    "trial": ({"configurations": [RECIPE]}, "SELECT cerebro._try_scores(%s)"),
    "combination": (
        {"configurations": [RECIPE | {"partials": [PARTIAL]}]},
        "SELECT cerebro._combine_measures(%s)",
    ),
    "prediction": (
        ASKED,
        "SELECT cerebro._begin_prediction(%s, (SELECT cerebro.cerebro_joined_state(state) "
        "FROM state))",
    ),
    "export": (
        RECIPE | {"facts": "{}"},
        "SELECT cerebro._export_model(%s, 'npz', (SELECT cerebro.cerebro_joined_state(state) "
        "FROM state))",
    ),
}
WRONG = [
    None, True, 0, -1, 2**31, 2**63, 2**200, 1e400, "", "x", "\ud800", [], [None], ["x"], [-1],
    [2**62], [2**31 - 1] * 40, {}, {"ids": [0], "rows": [2**31 - 1]}, {"ids": [0, 0], "rows": [1, 1]},
    {"ids": [0], "rows": []}, {"kind": "class", "num_classes": -1, "shape": []}, [[[[]]]], "a" * 9999,
]  # fmt: skip


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be changed in a JSON value."""
    found = [here] if here else []
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, inner in value.items() if isinstance(value, dict) else ():
        found += paths(inner, (*here, key))
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy in which one place has another value; ... removes it."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return copy


@pytest.fixture(scope="module")
def worker(mallory: Person) -> Person:
    """A session that is a worker, and has a state to load; whole tasks are done."""
    mallory.rows(PREPARE)
    mallory.rows("CREATE TABLE state AS SELECT ''::bytea AS state")
    for name, (task, sql) in TASKS.items():
        if name == "prediction":
            mallory.rows(
                "SELECT cerebro_fit_multiple('packed', 'fit', 'configs', 1, num_workers := 1)"
            )
            mallory.rows("UPDATE state SET state = (SELECT state FROM fit_states LIMIT 1)")
        answer = mallory.value(sql, (json.dumps(task),))
        assert answer, name
        assert "Error" not in str(answer), answer
    return mallory


@FEW
@given(data=st.data())
def test_tasks_of_workers(data: st.DataObject, worker: Person) -> None:
    task, sql = TASKS[data.draw(st.sampled_from(sorted(TASKS)))]
    path = data.draw(st.sampled_from(paths(task)))
    new = data.draw(st.sampled_from([..., *WRONG]))
    text = json.dumps(changed(task, path, new))
    check(worker, sql, (text[: data.draw(st.sampled_from([None, None, None, len(text) // 2]))],))


def test_sizes_are_checked_before_memory_is_taken(worker: Person) -> None:
    for sql, message in {
        "_prepare_worker(0, false, 0, 0)": "threads: got 0",
        "_prepare_worker(1025, false, 0, 0)": "threads: got 1025",
        "_prepare_worker(NULL, false, 0, 0)": "threads: got NULL",
        "_prepare_worker(1, false, -1, 0)": "cache_bytes: got -1",
        "_prepare_worker(1, false, 0, -1)": "run_id: got -1",
        "_prepare_worker(1, false, 0, 0, -1)": "place: got -1",
        "_prepare_process(NULL)": "got",  # elsewhere what is wrong with it, here that it has no use
        "_with_functions('{')": "invalid input syntax",
        """_with_functions('{"functions": {"evil": "os:system"}}')""": "invalid input syntax",
        "_predict_batch(1, '', 2147483647, 2147483647)": "token",
        "_predict_batch(1, '', -1, -1)": "count: got -1",
        "_predict_buffer(1, '', 2147483647)": "token",
        "_predict_buffer(1, '', -1)": "count: got -1",
        "_extend_prediction(1, '', -1)": "token -1",
        "_pack_arrays('', '', NULL, ARRAY[2147483647, 2147483647, 2147483647], 1, 'x', false)": "NULL, or",
        "_pack_arrays('', '', NULL, ARRAY[-1], 1, 'x', false)": "shape",
        "_pack_arrays('', '', NULL, NULL, 1, 'x', false)": "shape",
        "_pack_labels(decode('00000000', 'hex'), decode('000000000001', 'hex'), "
        "decode('05000000', 'hex'))": "beyond 1 rows",
        "_pack_labels(decode('00000000', 'hex'), decode('0000', 'hex'), NULL)": "cut off",
        "_saved_state(-1)": "no worker",
        "_average_step(NULL, ARRAY[1, 2]::float8[], 0, '')": "no worker",
        "_average_final(-1)": "no worker",
        "_try_peers('{}')": "no worker",
        "_state_weights(-1)": "token -1",
        "_train_final(-1)": "no worker",  # the trainer that got no memory has ended
        "_measure_final(NULL)": "no worker",
    }.items():
        error = worker.refused(f"SELECT cerebro.{sql}")
        assert message in str(error), f"{sql}: {error}"
        assert ALLOWED.fullmatch(error.pgcode or ""), f"{sql}: {error.pgcode}"


def test_everything_works_whatever_the_names_are(worker: Person, root: Person) -> None:
    """Schema, tables, columns, classes and the run have a name that is hard to quote."""
    name = """w'e"ird \\' %s; drop table sentinel; -- {0} $$ é"""
    root.rows(f"CREATE SCHEMA {quoted(name)} AUTHORIZATION {worker.sql_name}")

    def table(suffix: str) -> str:
        return f"{quoted(name)}.{quoted(name + suffix)}"

    x, y, row_id = (name[:44] + suffix for suffix in ("x", "y", "i"))
    worker.rows("SET standard_conforming_strings = on")
    statement = (
        f"CREATE TABLE {table('r')} AS SELECT i AS {quoted(row_id)}, "
        f"ARRAY[sin(i), cos(i)]::real[] AS {quoted(x)}, "
        f"CASE WHEN mod(i, 2) = 0 THEN 'a''b' ELSE '{name.replace(chr(39), chr(39) * 2)}' END "
        f"AS {quoted(y)} FROM generate_series(1, 40) i"
    )
    worker.rows(statement)
    worker.rows("RESET standard_conforming_strings")

    def call(function: str, *arguments: object) -> object:
        marks = ", ".join(["%s"] * len(arguments))
        return worker.value(f"SELECT cerebro_{function}({marks})", arguments)

    call("pack", table("r"), table("p"), quoted(y), x, None, 1.0, None, "all_segments", 2)
    call("pack_validation", table("r"), table("v"), y, quoted(x), table("p"))
    call("pack_columns", table("r"), table("k"), y, quoted(row_id))
    call("encode", table("r"), table("k"), table("n"), row_id)
    call("train_test_split", table("r"), table("s"), 0.5, None, quoted(y))
    net = json.loads(NET)
    net["config"]["name"] = "net"
    call("load_model", table("m"), json.dumps(net), None, name, name)
    worker.rows(
        "SELECT cerebro_load_configs(%s, %s, ARRAY[1], ARRAY[%s], ARRAY['batch_size=8'])",
        (table("m"), table("c"), ADAM),
    )
    run = worker.value(
        "SELECT cerebro_fit_multiple(%s, %s, %s, 2, num_workers := 1, validation_table := %s, "
        "name := %s, description := %s, max_seconds := 0.001)",
        (table("p"), table("o"), table("c"), table("v"), name, name),
    )
    assert call("resume", run) == run
    call("evaluate", table("o"), table("v"), table("e"))
    call("predict", table("o"), table("r"), row_id, x, table("a"), "response")
    shown = worker.rows("SELECT name, status FROM cerebro.runs WHERE run_id = %s", (run,))
    assert shown == [(name, "finished")]
    classes = {row[0] for row in worker.rows(f"SELECT class_value FROM {table('a')}")}
    assert classes <= {"a'b", name}
    assert worker.value(f"SELECT count(*) FROM {table('a')}") == 40
    assert worker.value(f"SELECT count(*) FROM {table('e')}") == 1
    call("drop_run", run)
    root.rows(f"DROP SCHEMA {quoted(name)} CASCADE")
