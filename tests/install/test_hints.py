"""Each function that users call tells what to do when it is called in a wrong way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

import cerebro_db
from cerebro_db.install.script import Script
from cerebro_db.requests.declared import usage

# Name, names and types of the arguments that go in, in their order.
FUNCTIONS = """
SELECT p.proname::text, p.proargnames[1:p.pronargs]::text[], ARRAY(
           SELECT t.type::regtype::text FROM unnest(p.proargtypes) WITH ORDINALITY AS t(type, place)
            ORDER BY place)
  FROM pg_proc p
 WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')
   AND proname LIKE 'cerebro\\_%%' AND NOT EXISTS (SELECT 1 FROM pg_aggregate WHERE aggfnoid = p.oid)
 ORDER BY 1, p.oid
"""
TAKES_NOTHING = {
    "cerebro_version", "cerebro_work",
    "cerebro_convert_bytea_to_real_array", "cerebro_convert_bytea_to_integer_array",  # NULL of NULL
}  # fmt: skip


@pytest.fixture
def functions(sql: Any) -> list[tuple[str, list[str], list[str]]]:
    """All functions of users, overloads one by one."""
    found = [row for row in sql.fetch(FUNCTIONS, ()) if row[0] not in TAKES_NOTHING]
    assert len({name for name, _, _ in found}) >= 37
    return found


def test_a_call_with_nothing_but_nulls_has_a_sqlstate_and_a_hint(
    sql: Any, functions: list[tuple[str, list[str], list[str]]]
) -> None:
    for name, _, types in functions:
        nulls = ", ".join(f"NULL::{kind}" for kind in types)
        with pytest.raises(psycopg2.Error) as caught:
            sql.fetch(f"SELECT cerebro.{name}({nulls})")
        told = caught.value.diag
        assert re.match(r"[a-z]\w*: got", told.message_primary), (name, told.message_primary)
        assert told.sqlstate == ("42704" if "run_id" in told.message_primary else "22023"), name
        assert told.message_hint, (name, told.message_primary)


def test_a_message_begins_with_no_class_of_python(sql: Any) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        sql.fetch("SELECT cerebro.cerebro_pack('no_table', 'o', 'y', 'x')")
    told = caught.value.diag
    assert (
        told.message_primary == "source_table: got 'no_table'; no table or view of that name exists"
    )
    assert told.sqlstate == "42P01"
    with pytest.raises(psycopg2.Error) as caught:
        sql.fetch("SELECT cerebro.cerebro_pause(7)")
    assert caught.value.diag.message_primary.startswith("run_id: got 7")


def test_the_last_resort_is_how_the_function_is_called(
    sql: Any, functions: list[tuple[str, list[str], list[str]]]
) -> None:
    for name, names, _ in functions:
        in_order = ", ".join(rf"{one} [^()]*?" for one in names)
        shown = (usage(name) or "").split(" or ")
        assert any(re.fullmatch(rf"cerebro\.{name}\({in_order}\)", one) for one in shown), (
            name,
            names,
        )
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as caught:
        sql.fetch("SELECT cerebro.cerebro_train_test_split('t', 'o', 2.0)")
    hint = caught.value.diag.message_hint
    assert hint == "cerebro.cerebro_train_test_split(..., train_proportion double precision, ...)"
    assert usage("cerebro_search", "no name: got 3") == (
        "cerebro.cerebro_search(source_table text, model_output_table text, model_arch_table text, "
        "model_selection_table text, model_id_list integer[], compile_params_grid text, "
        "fit_params_grid text, ...)"
    )
    assert usage("cerebro_pause") == "cerebro.cerebro_pause(run_id bigint)"
    assert usage("cerebro_vacuum") == "cerebro.cerebro_vacuum(older_than interval DEFAULT '7 days')"
    assert usage("no_such_function") is None


# Other schemas come before cerebro in the search_path: who follows a hint must not call what lies there.
_UNQUALIFIED = re.compile(
    r"(?<![.\w])("
    + "|".join(name for name in Script().functions() if name[0] != "_")
    + r")\b(?!\.)"
)


def texts_of(path: Path) -> Iterator[str]:
    """The texts of a module that may be told to someone: all but docstrings."""
    tree = ast.parse(path.read_text())
    bodies = [
        node for node in ast.walk(tree) if hasattr(node, "body") and isinstance(node.body, list)
    ]
    first = {
        id(node.body[0].value)
        for node in bodies
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in first:
            yield node.value


def test_functions_are_named_with_their_schema_in_all_that_is_reported() -> None:
    modules = sorted(Path(cerebro_db.__file__).parent.rglob("*.py"))
    found = {
        f"{path.name}: {text}"
        for path in modules
        for text in texts_of(path)
        if _UNQUALIFIED.search(text) and not _UNQUALIFIED.fullmatch(text)
    }
    assert found == set()
