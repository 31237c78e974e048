"""Sessions that wait because a server runs so many statements of a role at a time, no more."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cerebro_db.postgres.sessions import Session

_LOOK_SECONDS, _PATIENCE = 1.0, 2.0
# How such a server shows that in the title of a process, which can be read without a statement: one
# would have to wait, too.
_QUEUING = b" queuing"


class Waiting:
    """Looks every so often; what is told once is not told again before a session had its turn."""

    def __init__(self) -> None:
        self._next_look = 0.0
        self._since: float | None = None
        self._told = False

    def tells(self, sessions: Iterable[Session]) -> bool:
        """Tell whether one of these has waited for so long that the caller is told."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        if not any(_is_queued(session.pid) for session in sessions):
            self._since, self._told = None, False
            return False
        self._since = self._since or now
        if self._told or now - self._since < _PATIENCE:
            return False
        self._told = True
        return True


def _is_queued(pid: int) -> bool:
    with suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").endswith(_QUEUING)
    return False
