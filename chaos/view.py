"""What can be seen of a run from outside while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chaos.grid import Job
from chaos.moments import ENDING, IMPORTING, OVER, SETTING_UP, TRAINING
from chaos.server import Server


@dataclass(frozen=True)
class View:
    """A run as it is seen at one moment.

    Attributes:
        run_id: None before it is registered.
        written: its status as its driver wrote it down.
        status, error: as ``cerebro.runs`` tells it.
        hops: that are committed.
        has_driver: whether the session that drives it is there.
        workers: process ids of sessions that work for it.
        others: process ids of further sessions of drivers.
    """

    run_id: int | None
    written: str | None
    status: str | None
    error: str | None
    hops: int
    has_driver: bool
    workers: Sequence[int]
    others: Sequence[int]

    @property
    def going_on(self) -> bool:
        """Whether the view says that it goes on."""
        return self.status in ("starting", "running")

    def phase(self, job: Job) -> str:
        """The phase that it is in."""
        if self.written == "finished":
            return OVER
        if not self.has_driver:  # what an earlier driver has written down tells nothing
            return SETTING_UP
        if self.written != "running":
            return IMPORTING if self.workers else SETTING_UP
        return TRAINING if self.hops < job.hops else ENDING

    def reached(self, phase: str, hops: int) -> bool:
        """Whether a phase has begun, and so many hops are done."""
        if phase == SETTING_UP or self.written == "finished":
            return True
        if not self.has_driver:
            return False
        if phase == IMPORTING:
            return bool(self.workers) or self.written == "running"
        return self.written == "running" and self.hops >= hops


def look(server: Server, job: Job) -> View:
    """See how a run stands; its output table names it."""
    ((others,),) = server.fetch(_SESSIONS)
    rows = server.fetch(_RUN, (job.output,))
    if not rows:
        return View(None, None, None, None, 0, False, [], others)
    return View(*rows[0], others)


_SESSIONS = """
SELECT coalesce(array_agg(pid ORDER BY pid), '{}') FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name = 'cerebro worker'
"""

# Workers share the lock of a run's guard, which is the one after the run's own.
_RUN = """
SELECT r.run_id, r.status, (SELECT v.status FROM cerebro.runs v WHERE v.run_id = r.run_id), r.error,
       (SELECT count(*) FROM cerebro.catalog_hops h WHERE h.run_id = r.run_id),
       EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.pid = r.driver_pid),
       (SELECT coalesce(array_agg(l.pid ORDER BY l.pid), '{}') FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.objsubid = 1
           AND (l.classid::bigint << 32) | l.objid::bigint = r.lock_key + 1)
  FROM cerebro.catalog_runs r WHERE r.output_name = %s ORDER BY r.run_id DESC LIMIT 1
"""
