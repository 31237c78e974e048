"""A session that works asynchronously, polled from one thread."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import psycopg2
import psycopg2.extensions

from cerebro_db.configs.rounding import TAG
from cerebro_db.errors import (
    CerebroError,
)
from cerebro_db.postgres.sessions.dsn import (
    first_settings,
)
from cerebro_db.postgres.sessions.errors import (
    SessionLost,
    StatementFailed,
    as_raised,
    failure_of,
    is_loss,
    lost,
    refused,
)
from cerebro_db.postgres.sessions.parts import in_parts

POLL_SECONDS = 0.1
Tick = Callable[[], None]


def no_tick() -> None:
    """The tick of a client process, which has nothing to ask while it waits."""


class Ticking:
    """Base of what calls a tick while it waits.

    Attributes:
        tick: raises where the caller wants no more.
    """

    tick: Tick

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Suspend the tick, also for sessions that are taken inside: for what follows a cancel."""
        before, self.tick = self.tick, no_tick
        try:
            yield
        finally:
            self.tick = before


class _Reports:
    """The notices of a connection that are reports of workers; others are dropped, or kept where somebody wants them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.others: list[str] | None = None

    def append(self, notice: str) -> None:
        """Take a notice, as the client library hands it over."""
        if TAG in notice:
            self.texts.append(_first_line_of(notice))
        elif self.others is not None:
            self.others.append(_first_line_of(notice))


def _first_line_of(notice: str) -> str:
    """The message of a notice, without its severity and the segment that it is of."""
    return as_raised(notice.partition(":")[2].strip().partition("\n")[0])


class Session(Ticking):
    """Session of libpq with at most one statement under way, whose rows are fetched when it is done.

    Args:
        dsn: libpq connection string.
        application_name: what ``pg_stat_activity`` shows.
        tick: called again and again while a statement is waited for; raises to cancel it.

    Attributes:
        tick: as above; also for who waits for something else meanwhile.
        caller: settings of the session for which this one works.
        inserted: rows that its statements have inserted; of a text of several statements, by its last one.
        anywhere: what ends CREATE TABLE where the caller would see a NOTICE of the server without it.
    """

    caller: Mapping[str, str] = MappingProxyType({})
    anywhere = ""

    def __init__(self, dsn: str, application_name: str, tick: Tick = no_tick) -> None:
        self.tick = tick
        # Where names are looked for; None as long as nobody has asked.
        self.search_path: Any = None
        self._rows: list[tuple[Any, ...]] | None = None
        self._cursor: Any = None
        # Rows that its INSERTs have written, for as long as it lives.
        self.inserted = 0
        try:
            self._connection = psycopg2.connect(
                dsn, async_=True, application_name=application_name, **first_settings(dsn)
            )
        except psycopg2.Error as error:
            raise refused(error) from None
        self._reports = _Reports()
        self._connection.notices = self._reports
        self._connected = False
        self._busy = True
        self.waits_for = select.POLLOUT

    # -- life ----------------------------------------------------------------
    @property
    def pid(self) -> int:
        """The process id of the server process that serves this session."""
        return int(self._connection.info.backend_pid)

    @property
    def server_version(self) -> int:
        """Version of the server in libpq's form, for example 150018."""
        return int(self._connection.server_version)

    @property
    def closed(self) -> bool:
        """True if the session can no longer be used."""
        return bool(self._connection.closed)

    @property
    def busy(self) -> bool:
        """True if a statement, or the connecting, is under way."""
        return self._busy

    @property
    def in_transaction(self) -> bool:
        """True if a failed statement undoes earlier ones with it, so that it cannot be retried."""
        idle = psycopg2.extensions.TRANSACTION_STATUS_IDLE
        return bool(self._connection.info.transaction_status != idle)

    def close(self) -> None:
        """End the session; what it was doing is rolled back by the server."""
        if not self._connection.closed:
            self._connection.close()

    def cancel(self) -> None:
        """Ask the server to cancel the statement under way."""
        if self._busy and self._connected and not self.closed:
            try:
                self._connection.cancel()
            except psycopg2.Error:  # the session is gone: nothing left to cancel
                return

    # -- statements ----------------------------------------------------------
    def send(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Start a statement and return at once."""
        if self._busy:
            raise RuntimeError("the session is busy")
        self._rows = None
        try:
            self._cursor = self._connection.cursor()
            self._cursor.execute(sql, tuple(parameters))
        except psycopg2.Error as error:
            raise self._translated(error) from None
        self._busy = True

    def advance(self) -> bool:
        """Poll once; true when the statement is done.

        Raises:
            StatementFailed: the server refused or aborted the statement.
            SessionLost: the session is gone.
        """
        if not self._busy:
            return True
        try:
            answer = self._connection.poll()
        except psycopg2.Error as error:
            self._busy = False
            raise self._translated(error) from None
        if answer != psycopg2.extensions.POLL_OK:
            writes = answer == psycopg2.extensions.POLL_WRITE
            self.waits_for = select.POLLOUT if writes else select.POLLIN
            return False
        self._busy = False
        self._connected = True
        if self._cursor is not None:
            self._rows = self._cursor.fetchall() if self._cursor.description else []
            if (self._cursor.statusmessage or "").startswith("INSERT"):
                self.inserted += max(0, self._cursor.rowcount)
            self._cursor.close()
            self._cursor = None
        return True

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the finished statement."""
        return self._rows or []

    def reports(self) -> list[str]:
        """Reports of workers since the last time, about values that float32 does not hold."""
        found = list(self._reports.texts)
        self._reports.texts.clear()
        return found

    @contextlib.contextmanager
    def keeping_notices(self) -> Iterator[list[str]]:
        """The notices of what is run inside, a line each."""
        kept: list[str] = []
        self._reports.others = kept
        try:
            yield kept
        finally:
            self._reports.others = None

    def take_notifications(self) -> bool:
        """True if somebody has notified this session since the last time; it has nothing else to do."""
        try:
            self._connection.poll()
        except psycopg2.Error as error:
            raise self._translated(error) from None
        found = self.has_notifications
        self._connection.notifies.clear()
        return found

    @property
    def has_notifications(self) -> bool:
        """True if that has come with the answer to a statement."""
        return bool(self._connection.notifies)

    def fileno(self) -> int:
        """The socket, for poll()."""
        return int(self._connection.fileno())

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Send a statement and wait for its rows; on an exception from the tick it is cancelled.

        Bytes that are many go there before it, in parts.
        """
        self.settle()
        self.send(*in_parts(self.run, sql, parameters))
        self.settle()
        return self.rows()

    def write(self, function: str, *values: Any) -> Any:
        """Call a function that writes the catalog; returns its value."""
        places = ", ".join(["%s"] * len(values))
        return self.run(f"SELECT cerebro.{function}({places})", values)[0][0]

    def run_through(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement without a tick, as it must be known whether it was done."""
        with self.undisturbed():
            return self.run(sql, parameters)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        try:
            while not self.advance():
                wait_any([self], POLL_SECONDS)
                self.tick()
        except (StatementFailed, SessionLost):
            raise
        except BaseException:
            self.cancel()
            raise

    @property
    def ticks(self) -> bool:
        """True if something can cancel what is waited for."""
        return self.tick is not no_tick

    def wait_for_locks(self) -> None:
        """Inside of a transaction: from now on a lock is waited for until a tick ends that."""
        self.run_through("SET LOCAL lock_timeout = 0")

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Inside of a transaction: a statement that fails ends what is run inside, and no more."""
        self.run_through("SAVEPOINT attempt")
        try:
            yield
        except StatementFailed:
            self.run_through("ROLLBACK TO SAVEPOINT attempt")
            raise

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Outside of a transaction: what is run inside is taken back."""
        self.run("BEGIN")
        try:
            yield
        finally:
            self.reset()

    def reset(self) -> None:
        """Cancel what the session does, and leave it as :meth:`recover` does."""
        self.cancel()
        self.recover()

    def recover(self) -> None:
        """Leave whatever the session is in: no statement, no transaction."""
        with contextlib.suppress(CerebroError), self.undisturbed():
            self.settle()
        # A cancel request that comes late may still hit the first statement after it.
        for _ in range(2):
            if not self.closed:
                with contextlib.suppress(CerebroError):
                    self.run_through("ROLLBACK")
                    return

    # -- inside --------------------------------------------------------------
    def _translated(self, error: Any) -> CerebroError:
        if not self._connected:
            self.close()
            return refused(error)
        if self._connection.closed or is_loss(error):
            self.close()
            return SessionLost(f"a server session ended: {lost(error)}")
        return failure_of(error)


def wait_any(sessions: Iterable[Session], timeout: float) -> None:
    """Sleep until one of the busy sessions can go on, or ``timeout`` seconds passed."""
    poller = select.poll()
    count = 0
    for session in sessions:
        if session.busy and not session.closed:
            poller.register(session.fileno(), session.waits_for)
            count += 1
    if count:
        poller.poll(timeout * 1000)
    else:
        time.sleep(min(timeout, 0.01))


def reset_all(sessions: Sequence[Session]) -> None:
    """Cancel what the sessions do, side by side, and leave them without statement or transaction."""
    for session in sessions:
        session.cancel()
    for session in sessions:
        session.recover()


def close_all(sessions: Sequence[Session]) -> None:
    """End the sessions: what they do is cancelled and over, and their trainers are free for others."""
    reset_all(sessions)
    for session in sessions:
        session.close()
