"""Records of hops on their way to the catalog, where hops do not write them themselves."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from cerebro_db.database.catalog import Catalog
from cerebro_db.database.dialects.postgresql_training import HopOrder, HopTold
from cerebro_db.database.hops import HopRow, add_hops

# Who looks at the progress of a run sees it that late.
_SECONDS = 1.0


class HopRecords:
    """Rows that are written together, some time after their hops.

    A hop is done when its state is there. Those whose rows are lost with their driver get them from
    their states when the run goes on, so no table of states may go before they are written.

    Args:
        catalog: of the driver.
        run_id: whose hops.
    """

    def __init__(self, catalog: Catalog, run_id: int) -> None:
        self._catalog, self._run_id = catalog, run_id
        self._rows: list[HopRow] = []
        self._due = 0.0
        # The server's time at zero of that clock: by one clock no hop seems to begin too early.
        self._zero: datetime | None = None

    def add(
        self, order: HopOrder, pid: int, sent: float, seconds: float, rows: int, told: HopTold
    ) -> None:
        """A hop is done.

        Args:
            order: that it was made from.
            pid: of the session that made it.
            sent: when it began, on the clock ``time.monotonic``.
            seconds: from its start to its end.
            rows: that it trained on.
            told: what it says of itself.
        """
        if self._zero is None:
            self._zero = told.started - timedelta(seconds=sent)
        started = self._zero + timedelta(seconds=sent)
        finished = self._zero + timedelta(seconds=sent + seconds)
        if not self._rows:
            self._due = time.monotonic() + _SECONDS
        self._rows.append(
            HopRow(
                order.mst_key, order.epoch, order.position, order.partition_key, order.worker, pid,
                started, finished, order.waited, told.read,
                told.trained, told.written, rows, told.loss, told.compiled, told.cached,
                told.memory_mb,
            )
        )  # fmt: skip

    def flush_if_due(self, now: float) -> None:
        """Write what waits for long enough; ``now`` on the clock ``time.monotonic``."""
        if self._rows and now >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write all of them."""
        if self._rows:
            add_hops(self._catalog, self._run_id, self._rows)
            self._rows = []
