"""Requests of others to a run while it goes on: that it stops, or changes."""

from __future__ import annotations

import time

from cerebro_db.core.decisions import EXTEND, NOBODY, Answer, Ending, Request, read_request
from cerebro_db.errors import CerebroError, InvalidArgument
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.wire import encode

# Seconds until the next look: longer where looks take longer, as on segments, each of which has a
# process that looks. They take this part of the time at most, unless it were too late to answer.
_SOONEST, _LATEST = 0.25, 1.0
_SHARE = 0.005
_OF_THE_RUN = {"cancel": "cancelled", "pause": "paused"}
_OVER = "max_seconds are over"


class Stopped(Exception):
    """The run shall stop now.

    Args:
        status: how it ends: ``cancelled`` or ``paused``.
        reason: for people.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Requests:
    """Looks into the catalog every so often, and at the clock.

    Args:
        catalog: of the driver.
        run_id: which run.
        deadline: on the clock ``time.monotonic``, None for none.
        max_seconds: what that came from.

    Attributes:
        search_ends: on the same clock: when a search begins nothing any more; None for never.
    """

    def __init__(
        self,
        catalog: Catalog,
        run_id: int,
        deadline: float | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self._catalog, self._run_id = catalog, run_id
        self._deadline, self._max_seconds = deadline, max_seconds
        self.search_ends: float | None = None
        self._next_look = 0.0

    def first(self) -> list[Request]:
        """Requests from before this driver began: a search that has ended shall go on."""
        rows = [row for row in self._catalog.requests(self._run_id) if row[1] == EXTEND]
        return [one for row in rows if (one := self._read(row)) is not None]

    def done(self, request_id: int) -> None:
        """A request to cancel a configuration was followed."""
        self._catalog.forget_requests(self._run_id, request_id)

    def refused(self, request_id: int, error: CerebroError) -> None:
        """A request cannot be followed."""
        if request_id:
            found = Answer(error=error.message, hint=error.hint)
            self._catalog.answer(request_id, encode(found))

    def look(self) -> list[Request]:
        """Requests about configurations or the search, and those of the clock.

        Raises:
            Stopped: the whole run shall stop.
        """
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            raise Stopped("paused", f"max_seconds := {self._max_seconds:g} are over")
        if self.search_ends is not None and now >= self.search_ends:
            self.search_ends = None
            return [Request(0, NOBODY, "max_seconds", Ending(_OVER))]
        if now < self._next_look:
            return []
        self._next_look = now + _SOONEST
        found = self._read_all()
        if self._next_look:
            done = time.monotonic()
            self._next_look = done + min(max((done - now) / _SHARE, _SOONEST), _LATEST)
        return found

    def _read_all(self) -> list[Request]:
        found: list[Request] = []
        for row in self._catalog.requests(self._run_id):
            request_id, action, mst_key, who, _ = row
            if action == EXTEND:
                continue  # for the driver after this one
            if mst_key is not None or action not in _OF_THE_RUN:
                one = self._read(row)
                found += [] if one is None else [one]
            elif found:  # these come first; what concerns the run is looked at again right after
                self._next_look = 0.0
                return found
            else:
                self._catalog.forget_requests(self._run_id, request_id)
                status = _OF_THE_RUN[action]
                raise Stopped(status, f"{status} by {who}")
        return found

    def _read(self, row: tuple[int, str, int | None, str, str]) -> Request | None:
        """A request; None for what is none, which is refused."""
        try:
            return read_request(*row)
        except InvalidArgument as error:
            self.refused(row[0], error)
            return None
