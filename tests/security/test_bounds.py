"""Bounds of what owners write into their rows of the catalog: others read it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.security.conftest import Person, paused_run

CHECK, INVALID = "23514", "22023"
HOSTILE = {
    "long": "repeat('x', 100 * 1024 * 1024)",
    "escape": "'a' || chr(27) || ']0;owned' || chr(7)",
    "delete": "'a' || chr(127)",
}
CALLS = {
    "status": "_run_ended(%s, {}, NULL, NULL)",
    "error": "_run_ended(%s, 'failed', {}, NULL)",
    "states": "_revived(%s, {})",
    "manifest": "_started(%s, to_json({}))",
    "status of a configuration": "_configurations_ended(%s, '{{1}}', {}, NULL, false)",
    "error of a configuration": "_configurations_ended(%s, '{{1}}', 'failed', {}, false)",
}
ADDED = {
    "budget": 1, "mst_key": 1, "model_id": 1, "compile_params": "", "fit_params": "", "hop_seconds": 1, "initial_seed": 1,
    "jit": False, "steps_per_call": 1, "goal": "", "is_warm": False, "status": "waiting",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(bob: Person) -> Iterator[int]:
    """A finished run of bob that has a configuration."""
    run = paused_run(bob)
    bob.rows("SELECT cerebro._add_configurations(%s, %s)", (run, json.dumps([ADDED])))
    bob.rows("SELECT cerebro._run_ended(%s, 'finished', NULL, NULL)", (run,))
    yield run
    bob.rows("SELECT cerebro._drop_run(%s)", (run,))


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("column", CALLS)
def test_rows_of_runs(bob: Person, run: int, column: str, what: str) -> None:
    if column == "manifest" and what != "long":
        return  # JSON has no such character but escaped
    error = bob.refused(f"SELECT cerebro.{CALLS[column].format(HOSTILE[what])}", (run,))
    assert error.pgcode == CHECK


def test_every_text_of_the_catalog_is_bounded(root: Person) -> None:
    unbounded = root.rows(
        "SELECT a.attrelid::regclass::text, a.attname FROM pg_attribute a "
        "WHERE a.attrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'r' AND c.relname ~ "
        "'^catalog_(runs|configurations|architectures|metrics|models|model_versions|model_aliases)$') "
        "AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid IN (25, 114, 1009) AND NOT EXISTS "
        "(SELECT FROM pg_constraint k WHERE k.conrelid = a.attrelid AND a.attnum = ANY (k.conkey) "
        "AND k.conname ~ '^bounded_')"
    )
    assert unbounded == []


def test_names_and_descriptions_are_refused_before_work(bob: Person) -> None:
    call = "SELECT cerebro_fit_multiple('packed', 'o', 'configs', 1, {} := %s)"
    for name, text in (("name", "a\x1b[2J"), ("name", "x" * 1001), ("description", "x" * 10_001)):
        error = bob.refused(call.format(name), (text,))
        assert error.pgcode == INVALID
        assert f"{name}: got a text of" in error.diag.message_primary
