"""Requests of others to a run while it goes on: that it stops, or changes."""

from __future__ import annotations

import json
import time

from cerebro_db.core.decisions import NOBODY, Asked
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.catalog import Catalog

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
        search_ends: on the same clock: when a search begins nothing any more; None for never.
    """

    def __init__(
        self,
        catalog: Catalog,
        run_id: int,
        deadline: float | None = None,
        max_seconds: float | None = None,
        search_ends: float | None = None,
    ) -> None:
        self._catalog, self._run_id = catalog, run_id
        self._deadline, self._max_seconds = deadline, max_seconds
        self._search_ends = search_ends
        self._next_look = 0.0

    def done(self, request_id: int) -> None:
        """A request to cancel a configuration was followed."""
        self._catalog.forget_requests(self._run_id, request_id)

    def refused(self, request_id: int, error: CerebroError) -> None:
        """A request cannot be followed."""
        if request_id:
            found = {"error": error.message, "hint": error.hint}
            self._catalog.answer(request_id, json.dumps(found))

    def look(self) -> list[Asked]:
        """What someone asks of configurations, or of the search; and what time asks for.

        Raises:
            Stopped: the whole run shall stop.
        """
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            raise Stopped("paused", f"max_seconds := {self._max_seconds:g} are over")
        if self._search_ends is not None and now >= self._search_ends:
            self._search_ends = None
            return [Asked(0, "finish", NOBODY, "max_seconds", {"reason": _OVER})]
        if now < self._next_look:
            return []
        self._next_look = now + _SOONEST
        found = self._asked()
        if self._next_look:
            done = time.monotonic()
            self._next_look = done + min(max((done - now) / _SHARE, _SOONEST), _LATEST)
        return found

    def _asked(self) -> list[Asked]:
        found: list[Asked] = []
        for request_id, action, mst_key, who, detail in self._catalog.requests(self._run_id):
            if mst_key is not None or action not in _OF_THE_RUN:
                given = json.loads(detail)
                found.append(Asked(request_id, action, mst_key or NOBODY, who, given))
            elif found:  # these come first; what concerns the run is looked at again right after
                self._next_look = 0.0
                return found
            else:
                self._catalog.forget_requests(self._run_id, request_id)
                status = _OF_THE_RUN[action]
                raise Stopped(status, f"{status} by {who}")
        return found
