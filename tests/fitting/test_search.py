"""Searches on a server: the same trials, decisions and weights with any workers, killed or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fitting.searching import METHODS
from tests.fitting.test_resume import results

DECISIONS = (
    "SELECT number, mst_key, action, epochs, source, source_epoch, reason, who, heard::text, "
    "detail::text FROM cerebro._decisions WHERE run_id = %s ORDER BY 1, 2"
)
TABLES = "SELECT relname FROM pg_class WHERE relname LIKE 'run\\_%' ORDER BY 1"


def drive(bench: Any, name: str, *arguments: object) -> int:
    """Begin or resume a search in a process of its own; returns its exit status."""
    command = [sys.executable, "-m", "fitting.searching", bench.dsn, name, *map(str, arguments)]
    return subprocess.run(command, cwd=Path(__file__).parents[1], timeout=300).returncode


def run_of(bench: Any, name: str) -> int:
    return int(bench.value("SELECT run_id FROM cerebro.runs WHERE name = %s", (name,)))


def left_by(bench: Any, name: str) -> list[Any]:
    """All that a search leaves."""
    run_id = run_of(bench, name)
    plan = (
        "SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_plan "
        "WHERE run_id = %s ORDER BY 1, 2, 3"
    )
    return results(bench, name, run_id) + [
        bench.fetch(query, (run_id,)) for query in (DECISIONS, plan)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_number_of_workers_does_not_show(bench: Any, method: str) -> None:
    name = method.replace("-", "_")
    assert drive(bench, f"{name}_1", 1, method) == 0
    first = left_by(bench, f"{name}_1")
    assert bench.value(f"SELECT count(*) FROM {name}_1") > 3
    for workers in (2, 4):
        assert drive(bench, f"{name}_{workers}", workers, method) == 0
        assert left_by(bench, f"{name}_{workers}") == first


def test_a_search_that_is_killed_around_its_decisions_ends_the_same(bench: Any) -> None:
    method = "asha+"
    assert drive(bench, "calm_asha", 2, method) == 0
    calm, before = left_by(bench, "calm_asha"), bench.fetch(TABLES)
    assert len({row[0] for row in calm[-2]}) > 8
    assert drive(bench, "stormy_asha", 1, method, "", "before", 1) == -signal.SIGKILL
    run_id = run_of(bench, "stormy_asha")
    assert bench.fetch(DECISIONS, (run_id,)) == []
    for kill in (("after", 2), ("before", 5), ("after", 7)):
        assert drive(bench, "stormy_asha", 2, method, run_id, *kill) == -signal.SIGKILL
    assert drive(bench, "stormy_asha", 3, method, run_id) == 0
    assert left_by(bench, "stormy_asha") == calm
    assert bench.fetch(TABLES) == before
