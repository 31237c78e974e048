"""One run in steps: a statement trains on all segments at once, each its own configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.database.dialects.choice import PostgreSQL
from cerebro_db.database.dialects.postgresql_training import (
    HopMade,
    HopOrder,
    RotationStatements,
    Statement,
)
from cerebro_db.database.sessions import StatementFailed
from cerebro_db.driver.fit_request import HOPPER, ROTATION, FitRequest
from cerebro_db.driver.fit_setup import RunSetup
from cerebro_db.driver.jobs import Hops
from cerebro_db.driver.run import Rows, Run, no_rows, own_seconds
from cerebro_db.driver.scoreboard import Scan
from cerebro_db.driver.state_store import StateTable
from cerebro_db.driver.workers import Worker
from cerebro_db.errors import NotSupported
from cerebro_db.planning.dispatch import Dispatcher
from cerebro_db.planning.orders import Visit
from cerebro_db.planning.rotation import Rotation


@dataclass(frozen=True)
class _Sweep:
    """Scans of one data set."""

    scans: tuple[Scan, ...]


def rotates(setup: RunSetup) -> bool:
    """Whether a run goes in steps."""
    return setup.request.schedule == ROTATION


def check_schedule(dialect: PostgreSQL, request: FitRequest) -> None:
    """Refuse steps where a statement is computed by one process."""
    if request.schedule == ROTATION and dialect.rotation is None:
        raise NotSupported(
            f"schedule: got {ROTATION!r}; allowed on this server: {HOPPER!r}, as no statement can "
            "train on segments side by side",
            hint=f"leave it out: {HOPPER!r} is the default",
        )


class RotationRun(Run):
    """The loop of a run with one session, whose statements all segments work for.

    What is planned, and what comes out, is that of a run without steps.
    """

    def __init__(self, *args: Any) -> None:
        # When each partition's process had its part of the last step done.
        self._free_since: dict[int, float] = {}
        super().__init__(*args)

    def _new_dispatcher(self) -> Dispatcher:
        self._rotation = Rotation(len(self._partitions), self._costs)
        return self._rotation

    @property
    def _statements(self) -> RotationStatements:
        found = self._context.dialect.rotation
        assert found is not None
        return found

    # -- giving work -------------------------------------------------------------
    def _assign_scan_or_visit(self, worker: Worker) -> None:
        held = self._held()
        scans = self._next_scans(held)
        if not scans:
            visits = self._next_visits(worker, held)
            if visits:
                self._send_visits(worker, visits)
                return
            scans = self._next_scans(None)
        if scans:
            self._send_sweep(worker, scans)

    def _next_scans(self, awaited: Collection[int] | None) -> tuple[Scan, ...]:
        while found := self._board.next_all(self._alive, awaited):
            scans = tuple(scan for scan in found if self._is_wanted(scan))
            if scans:
                return scans
        return ()

    def _next_visits(self, worker: Worker, held: Collection[int]) -> tuple[Visit, ...]:
        alone = self._handing.next_alone(worker.number, self._alive)
        return self._rotation.next_step(held) if alone is None else (alone,)

    def _timed(self, orders: Sequence[HopOrder]) -> list[HopOrder]:
        """The same, told by the processes that make them and not by the session."""
        return [self._timed_by_process(order) for order in orders]

    def _timed_by_process(self, order: HopOrder) -> HopOrder:
        since = self._free_since.get(order.partition_key)
        waited = order.waited if since is None else time.monotonic() - since
        number = self._partitions.index(order.partition_key)
        return replace(order, worker=number, waited=waited)

    def _statement(self, orders: Sequence[HopOrder]) -> Statement:
        return self._statements.step(self._setup.packed, orders)

    def _send_sweep(self, worker: Worker, scans: tuple[Scan, ...]) -> None:
        orders = [self._scan_order(worker, scan) for scan in scans]
        worker.job = _Sweep(scans)
        worker.session.send(*self._statements.sweep(self._tables[scans[0].dataset], orders))

    def _is_only(self, job: Hops, mst_key: int) -> bool:
        """Never: with the only session all segments would lose what they have in memory."""
        return False

    # -- taking results ------------------------------------------------------------
    def _done(self, worker: Worker, job: Any, rows: Rows, target: StateTable | None) -> None:
        if isinstance(job, _Sweep):
            self._swept(worker, job, rows)
        else:
            super()._done(worker, job, rows, target)

    def _hopped(self, worker: Worker, job: Hops, rows: Rows, target: StateTable) -> None:
        ended, errors = time.monotonic(), {row[0]: row[1] for row in rows if row[1] is not None}
        made: dict[int, HopMade] = {}
        for visit in job.visits:
            own = [row[2:] for row in rows if row[0] == visit.mst_key] or no_rows(visit)
            if visit.mst_key not in errors:
                made[visit.mst_key] = self._sql.made(own)
        # A hop ends when its own training does; the rest of the step is the same for all of them.
        longest = max(map(own_seconds, made.values()), default=0.0)
        used = self._store.use([target])
        for visit in job.visits:
            found = made.get(visit.mst_key)
            waits = longest - own_seconds(found)
            self._free_since[visit.partition_key] = ended - waits
            _keep(worker, visit.partition_key, found.kept if found else ())
            if found is not None:
                seconds = ended - worker.sent - waits
                self._record(worker, visit, found, seconds)
                self._visited(visit, found, seconds, target)
            else:
                self._store.failed(target)
                self._visit_failed(visit, _failure(errors[visit.mst_key]))
        self._store.give_back(used)

    def _swept(self, worker: Worker, job: _Sweep, rows: Rows) -> None:
        results = {partition_key: json.loads(text) for partition_key, text in rows}
        for scan in job.scans:
            result = results[scan.partition_key]
            _keep(worker, scan.partition_key, result["kept"])
            self._scanned(scan, result)


def _keep(worker: Worker, partition_key: int, kept: Sequence[str]) -> None:
    """What the process of one partition has in memory."""
    others = {name for name in worker.kept if int(name.rpartition("/")[2]) != partition_key}
    worker.kept = others | set(kept)


def _failure(text: str) -> StatementFailed:
    found = json.loads(text)
    return StatementFailed(found["message"], found["sqlstate"], found["hint"], None)
