"""Live view of a run: its contents, read in few statements, however large the run is, and when it is looked at again.

Looking takes no more than a fiftieth of one core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cerebro_db.watching import reading
from cerebro_db.watching.reading import Pace, RunFacts, Source

# Between two looks, at least.
SECONDS = 2.0
# Times as long as a look has taken, which is more than it has computed.
_PATIENCE = 50.0


class Line(NamedTuple):
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


class Worker(NamedTuple):
    """A worker, and the last hop that it has committed.

    Attributes:
        busy: seconds in hops, of ``seconds`` since its first one began.
        waited: seconds of these without anything to do.
        idle, scoring: shares of the time, from 0 to 1, until its last hop ended; the rest are hops.
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
    idle: float
    scoring: float
    since: float


class View(NamedTuple):
    """A run at one moment.

    Attributes:
        lines: the first ones of the leaderboard.
        total: number of all configurations.
        statuses: how many configurations there are of each.
    """

    facts: RunFacts
    pace: Pace
    lines: Sequence[Line]
    total: int
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
    workers = [Worker._make(row) for row in source.run(_WORKERS, (facts.run_id, facts.run_id))]
    return View(
        facts,
        reading.pace(source, facts.run_id),
        [Line._make(row) for row in rows],
        sum(statuses.values()),
        statuses,
        workers,
    )


_LINES = f"""
SELECT {reading.columns(Line)} FROM cerebro.dashboard WHERE run_id = %s ORDER BY rank, mst_key LIMIT %s
"""
_STATUSES = """
SELECT s.status, count(*) FROM cerebro._statuses s WHERE s.run_id = %s GROUP BY 1
"""
_WORKERS = """
SELECT l.worker, l.pid, s.hops, l.mst_key, l.epoch, l.partition_key, s.busy, s.waited, s.seconds, s.memory_mb,
       s.idle, s.scoring, extract(epoch FROM clock_timestamp() - l.finished)::double precision
  FROM (SELECT DISTINCT ON (h.worker) h.worker, h.pid, h.mst_key, h.epoch, h.partition_key, h.finished
          FROM cerebro.hops h WHERE h.run_id = %s ORDER BY h.worker, h.finished DESC) l
  JOIN cerebro._worker_times s ON s.run_id = %s AND s.worker = l.worker
 ORDER BY l.worker
"""


def as_json(view: View) -> dict[str, Any]:
    """The view as plain values."""
    return {
        "run": view.facts._asdict(),
        "pace": view.pace._asdict(),
        "configurations": [line._asdict() for line in view.lines],
        "workers": [one._asdict() for one in view.workers],
    }


def pause_after(began: float, seconds: float = SECONDS) -> float:
    """Seconds until the next look.

    Args:
        began: when this one began, by ``time.monotonic``.
        seconds: at least.
    """
    return max(seconds, _PATIENCE * (time.monotonic() - began))


def wait(pause: float, seconds: float, is_over: Callable[[], bool]) -> None:
    """Wait for the next look; not beyond the end of the run, which is small to ask for.

    Args:
        pause: seconds to wait.
        seconds: between questions.
        is_over: asks whether the run is.
    """
    end = time.monotonic() + pause
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, seconds))
        if left > seconds and is_over():
            return


def until_stopped(stop: threading.Event, look: Callable[[], None], seconds: float) -> None:
    """Look at a run at intervals until a call has ended, and once more then.

    Args:
        stop: is set at the end of the call.
        look: at the run.
        seconds: before the first look, and between two at least.
    """
    ended, pause = False, seconds
    while not ended:
        ended = stop.wait(pause)
        began = time.monotonic()
        look()
        pause = pause_after(began, seconds)
