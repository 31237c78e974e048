"""A server that a test has broken must not fail the tests that follow: sessions and clusters come back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any, Protocol

import psycopg2
from servers import connected

from cerebro_db.errors import ClusterFailed
from chaos.segments import Control, NotHere, Segments

_SECONDS, _PAUSE = 120.0, 1.0
_MIRRORS = "SELECT count(*) FROM gp_segment_configuration WHERE role = 'm'"
_ANSWERS = "SET statement_timeout = '30s'; SELECT count(*) FROM gp_dist_random('gp_id')"


class Holder(Protocol):
    """What tests share has a connection."""

    connection: Any


def revive(holders: Iterable[Holder]) -> None:
    """Connect those anew whose session the server has ended, and end transactions."""
    for holder in holders:
        with suppress(psycopg2.Error):
            holder.connection.cursor().execute("ROLLBACK")
        if holder.connection.closed:
            holder.connection = connected(holder.connection.dsn)


class Upkeep:
    """Looks after a cluster with segments that runs.

    Args:
        dsn: of one of its databases.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn, self._controls, self._gave_up = dsn, list[Control](), ""
        with suppress(NotHere):  # then it can only be waited for
            server = Segments(dsn)
            if not server.value(_MIRRORS):  # which take over
                self._controls = server.controls()
            server.forget_session()

    def restore(self) -> None:
        """Start servers that are down, where that is possible, and wait until all answer.

        Raises:
            ClusterFailed: they do not; at once where that was so before.
        """
        if not self._gave_up and self._refusal():
            self._start()
            self._gave_up = self._refusal_in_time()
        if self._gave_up:
            raise ClusterFailed(f"an earlier test has left a cluster that says: {self._gave_up}")

    def _start(self) -> None:
        for control in self._controls:
            if not control.is_up:
                with suppress(subprocess.CalledProcessError):  # it says why when it is asked
                    control.start()

    def _refusal_in_time(self) -> str:
        deadline = time.monotonic() + _SECONDS
        while (refusal := self._refusal()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return refusal

    def _refusal(self) -> str:
        try:
            with closing(connected(self._dsn)) as connection:
                connection.cursor().execute(_ANSWERS)
        except psycopg2.Error as error:
            return str(error).strip() or type(error).__name__
        return ""
