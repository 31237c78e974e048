"""Contents of a live view of a run: read in few statements, however large the run is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.watching import reading
from cerebro_db.watching.reading import Pace, RunFacts, Source


@dataclass(frozen=True)
class Line:
    """A row of ``cerebro.dashboard``.

    Attributes:
        progress: a bar, as text.
        curve: of what it is ranked by, as text.
        measure: name of that.
        result: the last value of it.
    """

    rank: int
    mst_key: int
    status: str
    epoch: int
    epochs: int
    progress: str
    time_left: str | None
    curve: str | None
    measure: str | None
    result: float | None
    configuration: str


@dataclass(frozen=True)
class Worker:
    """A worker, and the last hop that it has committed.

    Attributes:
        busy: seconds in hops, of ``seconds`` since its first one began.
        waited: seconds of these without anything to do; the rest is scoring and the like.
        since: seconds since that hop ended, by the server's clock.
    """

    worker: int
    pid: int
    hops: int
    mst_key: int
    epoch: int
    partition_key: int
    busy: float
    waited: float
    seconds: float
    memory_mb: int
    since: float

    @property
    def idle(self) -> float:
        """Share of time with nothing to do, from 0 to 1, until its last hop ended."""
        return reading.idle_share(self.waited, self.seconds)

    @property
    def scoring(self) -> float:
        """Share of time in scans and other tasks between hops."""
        return max(0.0, 1 - self.idle - self.busy / self.seconds) if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class View:
    """A run at one moment.

    Attributes:
        lines: the first ones of the leaderboard.
        count: of all configurations.
        statuses: how many configurations there are of each.
    """

    facts: RunFacts
    pace: Pace
    lines: Sequence[Line]
    count: int
    statuses: dict[str, int]
    workers: Sequence[Worker]


def view_of(source: Source, run_id: int | None, most: int) -> View:
    """A run at this moment.

    Args:
        source: whose role may see it.
        run_id: None for the newest that goes on, or else the newest.
        most: how many configurations are shown.

    Raises:
        UndefinedRun: the caller has no such run.
    """
    facts = reading.run_facts(source, run_id)
    rows = source.run(_LINES, (facts.run_id, most))
    statuses = {str(status): int(count) for status, count in source.run(_STATUSES, (facts.run_id,))}
    workers = [Worker(*row) for row in source.run(_WORKERS, (facts.run_id, facts.run_id))]
    return View(
        facts,
        reading.pace(source, facts.run_id),
        [Line(*row) for row in rows],
        sum(statuses.values()),
        statuses,
        workers,
    )


_LINES = """
SELECT d.rank, d.mst_key, d.status, d.epoch, d.epochs, d.progress, d.time_left, d.curve, d.measure, d.result,
       d.configuration
  FROM cerebro.dashboard d WHERE d.run_id = %s ORDER BY d.rank, d.mst_key LIMIT %s
"""
_STATUSES = """
SELECT s.status, count(*) FROM cerebro._statuses s WHERE s.run_id = %s GROUP BY 1
"""
_WORKERS = """
SELECT l.worker, l.pid, s.hops, l.mst_key, l.epoch, l.partition_key, s.busy, s.waited, s.seconds, s.memory_mb,
       extract(epoch FROM clock_timestamp() - l.finished)::double precision
  FROM (SELECT DISTINCT ON (h.worker) h.worker, h.pid, h.mst_key, h.epoch, h.partition_key, h.finished
          FROM cerebro.hops h WHERE h.run_id = %s ORDER BY h.worker, h.finished DESC) l
  JOIN cerebro._worker_times s ON s.run_id = %s AND s.worker = l.worker
 ORDER BY l.worker
"""


def as_json(view: View) -> dict[str, Any]:
    """The view as plain values."""
    return {
        "run": vars(view.facts),
        "pace": {**vars(view.pace), "seconds_left": view.pace.seconds_left},
        "configurations": [vars(line) for line in view.lines],
        "workers": [{**vars(one), "idle": one.idle} for one in view.workers],
    }
