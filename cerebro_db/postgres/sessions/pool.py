"""Sessions of one caller that stay open for the next step of its work."""

from __future__ import annotations

import select
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from cerebro_db.errors import (
    LoopbackFailed,
)
from cerebro_db.postgres.sessions.errors import (
    LOOPBACK_HINT,
    StatementFailed,
    not_carried,
)
from cerebro_db.postgres.sessions.session import (
    POLL_SECONDS,
    Session,
    Tick,
    Ticking,
    no_tick,
    wait_any,
)

CONNECT_SECONDS = 30.0


class SessionPool(Ticking):
    """Sessions of one caller; those that have nothing to do stay open for the next step of its work.

    Args:
        dsn: libpq connection string of every session.
        settings: statements that each session runs first.
        tick: of the sessions, from when they are taken on.

    Attributes:
        tick: as above; another caller may have another one.
        caller: settings of the session for which these work.
    """

    def __init__(self, dsn: str, settings: Sequence[str], tick: Tick = no_tick) -> None:
        self.dsn, self.tick = dsn, tick
        self._settings = settings
        self.caller: Mapping[str, str] = MappingProxyType({})
        self._beginning: Sequence[str] = ()
        self._idle: list[Session] = []
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    def work_for(self, caller: Mapping[str, str], beginning: Sequence[str]) -> None:
        """Have the sessions that are taken from now on work for a session with other settings.

        Args:
            caller: its settings.
            beginning: statements that give these to a session.
        """
        if dict(caller) != dict(self.caller):
            self.close()
            self.caller, self._beginning = caller, beginning

    def busy(self) -> list[Session]:
        """The sessions of this pool that wait for the server."""
        return [one for one in self._sessions if one.busy and not one.closed]

    def take(self, count: int) -> list[Session]:
        """``count`` sessions ready for use: idle ones, then new ones."""
        idle = [session for session in self._idle if is_alive(session)]
        taken, self._idle = idle[:count], idle[count:]
        for session in taken:
            session.tick = self.tick
        fresh: list[Session] = []
        try:
            while len(taken) + len(fresh) < count:
                fresh.append(Session(self.dsn, "cerebro worker", self.tick))
            _settle_all(fresh)
            self._sessions.update(fresh)
            for session in fresh:
                # None that takes a snapshot: by the role's settings it may wait for other transactions.
                session.send("; ".join(self._settings))
            _settle_all(fresh)
            self._carry(fresh)
        except BaseException:
            for session in [*taken, *fresh]:
                session.close()
            raise
        return taken + fresh

    def _carry(self, fresh: Sequence[Session]) -> None:
        """Give new sessions the settings of the one for which they work.

        Raises:
            NotSupported: the role may not set one of them.
        """
        for session in fresh:
            session.caller = self.caller
            if self._beginning:
                session.send("; ".join(self._beginning))
        try:
            _settle_all(fresh)
        except StatementFailed as error:
            raise not_carried(error) from None

    def give(self, sessions: Iterable[Session]) -> None:
        """Keep sessions for what comes next; those that are busy, or work for another session, are closed."""
        for session in sessions:
            if session.busy or session.caller is not self.caller:
                session.close()
            elif not session.closed:
                self._idle.append(session)

    def close(self) -> None:
        """End all idle sessions."""
        for session in self._idle:
            session.close()
        self._idle.clear()


def is_alive(session: Session) -> bool:
    """True if an idle session's server process is still there (its socket has no end-of-file)."""
    if session.closed:
        return False
    poller = select.poll()
    poller.register(session.fileno(), select.POLLIN | select.POLLHUP)
    if poller.poll(0):
        session.close()
        return False
    return True


def _settle_all(sessions: Sequence[Session]) -> None:
    deadline = time.monotonic() + CONNECT_SECONDS
    pending = list(sessions)
    while pending:
        pending = [session for session in pending if not session.advance()]
        if pending:
            if time.monotonic() > deadline:
                raise LoopbackFailed(
                    f"a session was not ready after {CONNECT_SECONDS:.0f} s", hint=LOOPBACK_HINT
                )
            wait_any(pending, POLL_SECONDS)
            pending[0].tick()
