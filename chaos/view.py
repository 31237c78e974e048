"""View of a run from outside while it goes on."""

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
        """True if the view says that it goes on."""
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
        """True if a phase has begun, and so many hops are done."""
        if phase == SETTING_UP or self.written == "finished":
            return True
        if not self.has_driver:
            return False
        if phase == IMPORTING:
            return bool(self.workers) or self.written == "running"
        return self.written == "running" and self.hops >= hops


def look(server: Server, job: Job) -> View:
    """See how a run stands; its output table names it."""
    others = server.drivers()
    row = server.run(job.output)
    return View(None, None, None, None, 0, False, [], others) if row is None else View(*row, others)
