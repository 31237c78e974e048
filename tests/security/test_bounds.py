"""Bounds of what owners write into their rows of the catalog: others read it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.conftest import Person

CHECK, INVALID = "23514", "22023"
HOSTILE = {
    "long": "repeat('x', 100 * 1024 * 1024)",
    "escape": "'a' || chr(27) || ']0;owned' || chr(7)",
    "delete": "'a' || chr(127)",
}
CONFIGURATION = (
    "INSERT INTO cerebro._configurations (run_id, mst_key, model_id, compile_params, fit_params, hop_seconds, "
    "initial_seed, jit, steps_per_call, goal, status) VALUES (%s, 1, 1, '', '', 1, 1, false, 1, '', 'waiting')"
)
OF_RUNS = {
    "_runs": ("status", "error", "states"),
    "_configurations": ("status", "error"),
}


@pytest.fixture(scope="module")
def run(bob: Person, bobs_run: int) -> Iterator[int]:
    """A run of bob that has a configuration."""
    bob.rows(CONFIGURATION, (bobs_run,))
    yield bobs_run
    bob.rows("DELETE FROM cerebro._configurations WHERE run_id = %s", (bobs_run,))


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize(
    ("view", "column"), [(view, column) for view, names in OF_RUNS.items() for column in names]
)
def test_rows_of_runs(bob: Person, run: int, view: str, column: str, what: str) -> None:
    error = bob.refused(
        f"UPDATE cerebro.{view} SET {column} = {HOSTILE[what]} WHERE run_id = %s", (run,)
    )
    assert error.pgcode == CHECK


def test_json_is_bounded_too(bob: Person, bobs_run: int) -> None:
    query = "UPDATE cerebro._runs SET manifest = to_json({}) WHERE run_id = %s"
    assert bob.refused(query.format(HOSTILE["long"]), (bobs_run,)).pgcode == CHECK


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
