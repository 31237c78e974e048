"""Configurations that come and go while a run goes on: the same to the bit, killed or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pace import stretched

from tests.fitting.conftest import ADAM, TABLES_OF_STATES, select
from tests.fitting.deciding import SCRIPT
from tests.fitting.test_resume import results

WATCHED = "batch_size=8,callbacks=[EarlyStopping(monitor='val_loss',patience=9)]"
DECISIONS = (
    "SELECT number, mst_key, action, epochs, source, source_epoch, reason FROM cerebro.decisions "
    "WHERE run_id = %s ORDER BY 1, 2"
)


@pytest.fixture(scope="module")
def searched(bench: Any) -> None:
    """The configurations that runs begin with."""
    select(bench, "four", [1, 2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=8"])
    bench.run(
        "CREATE TABLE searched AS SELECT * FROM four; "
        "CREATE TABLE searched_summary AS SELECT * FROM four_summary; "
        f"INSERT INTO searched VALUES (5, 1, $${ADAM}$$, $${WATCHED}$$)"
    )


def drive(bench: Any, name: str, *arguments: object) -> int:
    """Begin or resume a run in a process of its own; returns its exit status."""
    command = [sys.executable, "-m", "fitting.deciding", bench.dsn, name, *map(str, arguments)]
    return subprocess.run(command, cwd=Path(__file__).parents[1], timeout=stretched(300)).returncode


def run_of(bench: Any, name: str) -> int:
    return int(bench.value("SELECT run_id FROM cerebro.runs WHERE name = %s", (name,)))


def left_by(bench: Any, name: str) -> list[Any]:
    """All that a run leaves, its decisions among it."""
    run_id = run_of(bench, name)
    plan = (
        "SELECT mst_key, epoch, position, partition_key FROM cerebro.catalog_plan "
        "WHERE run_id = %s ORDER BY 1, 2, 3"
    )
    more = [bench.fetch(query, (run_id,)) for query in (DECISIONS, plan)]
    return results(bench, name, run_id) + more


@pytest.fixture(scope="module")
def undisturbed(bench: Any, searched: None) -> list[Any]:
    """What the run leaves that nothing stopped."""
    assert drive(bench, "calm_search", 2) == 0
    return left_by(bench, "calm_search")


def test_what_was_decided_is_what_was_trained(bench: Any, undisturbed: list[Any]) -> None:
    run_id = run_of(bench, "calm_search")
    assert len({row[0] for row in bench.fetch(DECISIONS, (run_id,))}) == len(SCRIPT)
    epochs = (
        "SELECT h.mst_key, count(*) / min(r.num_partitions) FROM cerebro.hops h "
        "JOIN cerebro.runs r USING (run_id) WHERE h.run_id = %s GROUP BY 1 ORDER BY 1"
    )
    trained = {1: 2, 2: 2, 3: 4, 4: 2, 5: 1, 10: 2, 11: 1, 20: 3, 21: 1}
    assert dict(bench.fetch(epochs, (run_id,))) == trained
    ends = "SELECT mst_key, status, model_epoch FROM calm_search_info ORDER BY 1"
    assert bench.fetch(ends) == [(key, "finished", epoch) for key, epoch in trained.items()]
    assert bench.value(
        "SELECT hops_done = hops_planned FROM cerebro.progress WHERE run_id = %s", (run_id,)
    )
    measured = (
        "SELECT epoch FROM cerebro.metrics "
        f"WHERE run_id = {run_id} AND mst_key = 3 AND dataset = 'training' ORDER BY 1"
    )
    assert bench.column(measured) == [1, 2, 3, 4]
    # A clone goes on from what it was cloned from, and is another model afterwards.
    assert bench.value("SELECT count(DISTINCT md5(model_weights)) FROM calm_search") == 9


def test_a_run_that_is_killed_around_its_decisions_ends_the_same(
    bench: Any, undisturbed: list[Any]
) -> None:
    name = "stormy_search"
    assert drive(bench, name, 1, "", "before", 0) == -signal.SIGKILL
    run_id = run_of(bench, name)
    assert bench.fetch(DECISIONS, (run_id,)) == []
    for kill in (("after", 3), ("before", 5)):
        assert drive(bench, name, 2, run_id, *kill) == -signal.SIGKILL
    assert drive(bench, name, 3, run_id) == 0
    assert left_by(bench, name) == undisturbed
    assert bench.fetch(TABLES_OF_STATES) == []
