"""Requests of others to a run while it goes on: that it stops, or one of its configurations."""

from __future__ import annotations

import time

from cerebro_db.postgres.catalog import Catalog

# Seconds until the next look: longer where looks take longer, as on segments, each of which has a
# process that looks. They take this part of the time at most, unless it were too late to answer.
_SOONEST, _LATEST = 0.25, 1.0
_SHARE = 0.005


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
        self._next_look = 0.0

    def done(self, request_id: int) -> None:
        """A request to cancel a configuration was followed."""
        self._catalog.forget_requests(self._run_id, request_id)

    def look(self) -> list[tuple[int, int, str]]:
        """The configurations that someone cancelled: id of the request, mst_key, who.

        Raises:
            Stopped: the whole run shall stop.
        """
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            raise Stopped("paused", f"max_seconds := {self._max_seconds:g} are over")
        if now < self._next_look:
            return []
        self._next_look = now + _SOONEST
        found = self._asked()
        if self._next_look:
            done = time.monotonic()
            self._next_look = done + min(max((done - now) / _SHARE, _SOONEST), _LATEST)
        return found

    def _asked(self) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for request_id, action, mst_key, who in self._catalog.requests(self._run_id):
            if mst_key is not None:
                found.append((request_id, mst_key, who))
            elif found:  # these come first; what concerns the run is looked at again right after
                self._next_look = 0.0
                return found
            else:
                self._catalog.forget_requests(self._run_id, request_id)
                status = {"cancel": "cancelled", "pause": "paused"}[action]
                raise Stopped(status, f"{status} by {who}")
        return found
