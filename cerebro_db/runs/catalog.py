"""Records of a run while it goes on, for whoever goes on with it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from cerebro_db.core.events import Verdict
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import HopResult, Measures, RoundRecord, round_record
from cerebro_db.errors import WrongRunStatus
from cerebro_db.postgres.catalog.records import (
    EndRow,
    HopRow,
    add_hops,
    add_rounds,
    record_ends,
    rounds_of,
)
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.protocol import HopReport, StateReport

# Who looks at the progress of a run sees a hop that late.
_SECONDS = 1.0


class RunCatalog:
    """The catalog as one run writes it.

    A hop is done when its state is there. Rows of hops are written some time later, together; those
    that are lost with their driver are made from the states when the run goes on, so no table of states
    may go before they are written.

    Args:
        catalog: of the driver; its session is not a worker's.
        run_id: which run.
        manifest: what workers must tell of themselves, where that matters.
        functions: registered ones that configurations use, a part of the manifest.
    """

    def __init__(
        self,
        catalog: Catalog,
        run_id: int,
        manifest: Mapping[str, Any] = MappingProxyType({}),
        functions: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._catalog, self._run_id = catalog, run_id
        self._manifest, self._functions = manifest, functions
        self._rows: list[HopRow] = []
        self._rounds: list[RoundRecord] = []
        self._due = 0.0
        # The server's time at zero of that clock: by one clock no hop seems to begin too early.
        self._zero: datetime | None = None

    @property
    def functions(self) -> Mapping[str, Any]:
        """Registered functions that workers know of."""
        return self._functions

    def planned(self, hops: Sequence[Hop], reasons: Mapping[tuple[int, int], str]) -> None:
        """Hops are planned; before any of them is begun."""
        if hops:
            self._catalog.add_plan(self._run_id, hops, reasons)

    def begun(self, manifests: Sequence[dict[str, Any]], *, is_first: bool) -> None:
        """A worker is ready.

        Raises:
            WrongRunStatus: other software, or another processor, would give other results.
        """
        for manifest in manifests:
            if self._functions:
                manifest["functions"] = self._functions
            for name, value in manifest.items():
                if name in self._manifest and self._manifest[name] != value:
                    raise WrongRunStatus(
                        f"run {self._run_id} began with {name} {self._manifest[name]}; "
                        f"this server has {value}, so that results would not be the same",
                        hint="any_version := true goes on all the same",
                    )
        if is_first:
            self._catalog.started(self._run_id, manifests[0])

    def hop_done(self, result: HopResult) -> None:
        """A hop was made."""
        if self._zero is None:
            now = time.monotonic()
            self._zero = self._catalog.now() - timedelta(seconds=now)
        # Rounded once: what begins when this ends begins no microsecond before.
        started, finished = (
            self._zero + timedelta(seconds=at) for at in (result.sent, result.sent + result.seconds)
        )
        if not self._rows:
            self._due = time.monotonic() + _SECONDS
        self._rows.append(
            _row(
                result.hop,
                result.report,
                started,
                finished,
                result.waited,
                result.written,
            )
        )

    def round_done(self, record: RoundRecord) -> None:
        """A round was made that has a record."""
        self._rounds.append(record)

    def flush(self, *, now: float = math.inf) -> None:
        """Write the rows of hops; if a time is given, where they wait for long enough by then.

        Records of rounds come first: a round that has one, and not all rows of its hops, is made again in
        the same order, and ends with the same bits.
        """
        if not self._rows or now < self._due:
            return
        if self._rounds:
            add_rounds(self._catalog, self._run_id, self._rounds)
            self._rounds = []
        add_hops(self._catalog, self._run_id, self._rows)
        self._rows = []

    def restore(self, spec: RunSpec, left: Iterable[tuple[int, int, StateReport]]) -> None:
        """Write the rows of hops that another driver could not write any more.

        How long their workers waited, and their states took, nobody knows.

        Args:
            spec: of the run.
            left: mst_key, version and report of states whose last hop has no row.
        """
        recorded = {
            (one.mst_key, one.epoch, one.round) for one in rounds_of(self._catalog, self._run_id)
        }
        for mst_key, version, report in left:
            finished = datetime.fromtimestamp(report.trained_at, UTC)
            # A state of a round that is averaged later has the version -1 - number of its hop.
            first = abs(version) - len(report.hops)
            hops = []
            for number, one in enumerate(report.hops, first):
                epoch, position = divmod(number, spec.hops_an_epoch)
                hops.append(Hop(mst_key, epoch + 1, position, one.partition_key))
                seconds = timedelta(seconds=one.read_seconds + one.train_seconds)
                self._rows.append(_row(hops[-1], one, finished - seconds, finished))
            key = (mst_key, hops[0].epoch, spec.round_of(hops[0]))
            if report.round is not None and key not in recorded:
                self._rounds.append(round_record(*key, report.round))
        self.flush()

    def measured(self, rows: Sequence[Measures]) -> None:
        """Results of configurations are there: no crash may leave them without those of their hops."""
        self.flush()
        self._catalog.add_metrics(self._run_id, rows)

    def judged(self, tracks: Collection[Track]) -> None:
        """Callbacks have come to other verdicts on configurations."""
        found = {one.configuration.mst_key: end_of(one.verdict, None) for one in tracks}
        record_ends(self._catalog, self._run_id, found)

    def ended(self, mst_key: int, status: str, error: str) -> None:
        """A configuration failed or was cancelled."""
        self._catalog.configuration_ended(self._run_id, mst_key, status, error)


def _row(
    hop: Hop,
    report: HopReport,
    started: datetime,
    finished: datetime,
    waited: float = 0.0,
    written: float = 0.0,
) -> HopRow:
    return HopRow(
        hop.mst_key, hop.epoch, hop.position, hop.partition_key, report.worker, report.pid, started, finished,
        waited, report.read_seconds, report.train_seconds, written, report.rows, report.loss,
        report.compiled, report.cached, report.memory_mb,
    )  # fmt: skip


def ends_of(state: RunState) -> dict[int, EndRow]:
    """Ends of the configurations that were trained to their end."""
    return {
        key: end_of(track.verdict, track.budget)
        for key, track in state.tracks.items()
        if track.ended is None
    }


def end_of(verdict: Verdict, last: int | None) -> EndRow:
    """End of a configuration, whose last epoch is known or not."""
    last = verdict.stopped_epoch or last
    model_epoch = None if last is None else verdict.restored_epoch or last
    return EndRow(verdict.stopped_epoch, verdict.best_epoch, model_epoch)
