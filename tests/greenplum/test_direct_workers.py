"""Workers of other machines, where states lie on the segments of their next partitions.

What becomes of a hop, whoever dies: tests/fitting/test_direct_workers.py and test_direct_fence.py, with --server=segments.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import until

from cerebro_db.install import installer
from conftest import Sql
from tests.fitting.conftest import ADAM, TABLES_OF_STATES, select
from tests.fitting.direct import hops_of, ordered, starting, status
from tests.fitting.direct import keepers as keepers
from tests.fitting.test_progress import Background
from tests.greenplum.test_fitting import TABLES, make_tables

pytestmark = pytest.mark.slow

EPOCHS = 14
# Of the states of a run that can go on: where they lie, and where they go.
STATES = (
    "SELECT mst_key, version, segment_key, coalesce(partition_key, 0) >= 0, "
    "(report::json #>> '{{hops,0,rows}}')::int "
    "FROM cerebro_states.{} WHERE chunk = 0"
)


@pytest.fixture
def tables(segments: Sql, blobs: Any) -> Iterator[Sql]:
    """Packed tables, and configurations whose hops take a while."""
    ends = ("", "_info", "_summary", "_states", "_history")
    names = ", ".join(f"{name}{end}" for name in (*TABLES, "direct") for end in ends)
    drop = f"DROP TABLE IF EXISTS blobs, {names} CASCADE"
    segments.run(drop)
    make_tables(segments, blobs, "")
    rates = [ADAM, ADAM.replace("0.01", "0.003")]
    select(segments, "direct", [2], rates, ["batch_size=1, epochs=20"])
    yield segments
    segments.run(drop)


def fit(sql: Sql, out: str, strategy: str, more: str = "") -> int:
    call = (
        f"SELECT cerebro_fit_multiple('packed', '{out}', 'direct', {EPOCHS}, validation_table := 'val', "
        f"metrics_compute_frequency := 2, strategy := '{strategy}'{more})"
    )
    return int(sql.value(call))


def left(sql: Sql, out: str, run_id: int) -> list[Any]:
    """What a run leaves."""
    return [
        sql.fetch(f"SELECT mst_key, md5(model_weights) FROM {out} ORDER BY 1"),
        sql.fetch(
            f"SELECT mst_key, md5(string_agg(state, '' ORDER BY chunk)) FROM {out}_states GROUP BY 1 ORDER BY 1"
        ),
        sql.fetch(
            "SELECT mst_key, epoch, dataset, loss, metrics FROM cerebro.metrics WHERE run_id = %s ORDER BY 1, 2, 3",
            (run_id,),
        ),
        sql.fetch(
            "SELECT mst_key, epoch, position, partition_key, rows FROM cerebro.hops WHERE run_id = %s ORDER BY 1, 2, 3",
            (run_id,),
        ),
    ]


def states(sql: Sql) -> dict[tuple[int, int], list[tuple[int, bool, int | None]]]:
    """Segment keys of all states, whether these are originals, and rows that were trained on."""
    found: dict[tuple[int, int], list[tuple[int, bool, int | None]]] = {}
    for table in sql.column(TABLES_OF_STATES):
        for mst_key, version, *more in sql.fetch(STATES.format(f'"{table}"')):
            found.setdefault((mst_key, version), []).append(tuple(more))
    return found


@pytest.mark.parametrize("strategy", ["hopper", "averaging"])
def test_states_go_where_they_are_trained_next(tables: Sql, keepers: Path, strategy: str) -> None:
    """Any partition, one hop after another; killed in one of them; the same bits as without."""
    calm = left(tables, "out", fit(tables, "out", strategy))
    run_id = fit(tables, "again", strategy, ", max_seconds := 0.2")
    resume = "SELECT cerebro_resume(%s)"
    with starting(tables.dsn, keepers) as start:
        one = start(run_id)
        until(lambda: status(tables, run_id) == ["joining"])
        caller = Background(tables.dsn, resume, (run_id,))
        until(lambda: hops_of(tables, run_id)[0] >= 4)
        until(lambda: ordered(tables, run_id))
        one.process.send_signal(signal.SIGKILL)
        until(lambda: status(tables, run_id) == ["left"])
        two = start(run_id)
        until(lambda: hops_of(tables, run_id)[1:] and hops_of(tables, run_id)[1] >= 1)
        tables.run("SELECT cerebro_pause(%s)", (run_id,))
        caller.join()
        sessions = "SELECT pid FROM cerebro.direct_workers WHERE run_id = %s"
        pids = set(tables.column(sessions, (run_id,)))
        hops = tables.fetch(
            "SELECT mst_key, epoch, position, partition_key, pid FROM cerebro.hops WHERE run_id = %s ORDER BY 1, 2, 3",
            (run_id,),
        )
        lie, where = (
            states(tables),
            dict(tables.fetch("SELECT DISTINCT partition_key, segment_key FROM packed")),
        )
        following = dict(
            tables.fetch(
                "SELECT (mst_key, (epoch - 1) * %s + position)::text, partition_key FROM cerebro.catalog_plan "
                "WHERE run_id = %s",
                (len(where), run_id),
            )
        )
        seen = set()
        for mst_key, epoch, position, partition_key, pid in hops:
            done = (epoch - 1) * len(where) + position + 1
            version = done if strategy == "hopper" else -done
            goal = where[partition_key]
            if strategy == "hopper":
                goal = where.get(following.get(f"({mst_key},{done})", partition_key))
            if pid in pids and (mst_key, version) in lie:
                # The state has its hop's report, from which a crashed driver's row is made.
                ((segment_key, is_original, rows),) = lie[mst_key, version]
                assert (segment_key, is_original, bool(rows)) == (goal, True, True)
                seen.add(partition_key)
        assert len(seen) > 1
        resumed = Background(tables.dsn, resume, (run_id,))
        before = hops_of(tables, run_id)[1]
        until(lambda: hops_of(tables, run_id)[1] > before or not resumed.is_alive())
        resumed.join()
        assert (caller.error and caller.error.pgcode, resumed.error) == (None, None)
        assert two.ended()[0] == 0
    assert left(tables, "again", run_id) == calm
    made = "SELECT count(*), count(CASE WHEN pid = ANY (%s) THEN 1 END) FROM cerebro.hops WHERE run_id = %s"
    every, direct = tables.row(made, (list(pids), run_id))
    assert every > direct == sum(hops_of(tables, run_id)) >= 5
    tables.run("SELECT cerebro_drop_run(%s)", (run_id,))


def test_runs_that_go_on_are_paused_before_an_upgrade(tables: Sql) -> None:
    assert installer.pause_runs(tables.dsn) == ()
    call = f"SELECT cerebro_fit_multiple('packed', 'out', 'direct', {EPOCHS})"
    caller = Background(tables.dsn, call, ())
    newest = "SELECT run_id, status FROM cerebro.runs ORDER BY run_id DESC LIMIT 1"
    going_on = "SELECT count(*) > 0 FROM cerebro.hops JOIN cerebro.runs USING (run_id) WHERE status = 'running'"
    until(lambda: tables.value(going_on))
    ((run_id, status_),) = tables.fetch(newest)
    assert status_ == "running"
    assert installer.pause_runs(tables.dsn) == (run_id,)
    caller.join()
    assert tables.fetch(newest) == [(run_id, "paused")]
    tables.run("SELECT cerebro_drop_run(%s)", (run_id,))
