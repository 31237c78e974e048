"""Server sessions that work asynchronously, polled from one thread.

Whoever runs statements calls ``run(sql, parameters)``, and gets the rows, or a :class:`StatementFailed` with the server's SQLSTATE, hint and detail.
There are four that have it: :class:`Session` here, ``CallerSession`` (the caller's own, through SPI), ``DirectSession`` (blocking,
with COPY) and ``Connections`` (those of a user). The errors of all drivers become ours in :func:`failure_of`.

A ``Session`` never blocks: ``send`` starts a statement, ``advance`` polls it once, and one thread drives many of them by :func:`wait_any`.
``run`` is send, then advance until it is done. Each time it has waited for ``POLL_SECONDS`` it calls the session's *tick*, which raises where the caller
wants no more; the statement is cancelled then. A :class:`SessionPool` keeps what is open, and gives each session the settings of the caller's.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import psycopg2
import psycopg2.extensions

from cerebro_db.configs.rounding import TAG
from cerebro_db.errors import (
    UNNAMED,
    CerebroError,
    InvalidArgument,
    LoopbackFailed,
    NotSupported,
    TooManyConnections,
    advice_of_server,
)

# Where Python raised an error; the server's own that came through Python begin with their class.
_PYTHON, _SERVERS = 'PL/Python function "', "spiexceptions."
# Where an error comes from a segment, that is put behind its message.
_WHERE = re.compile(r"  \((?:seg|entry db)[^()]*\)$")

POLL_SECONDS = 0.1
CONNECT_SECONDS = 30.0
# A process of a segment is gone, and with it what the session had there.
_SEGMENT_LOST = "58M01"
LOST_SQLSTATES = ("57P01", "57P02", "57P03", "08000", "08003", "08006", _SEGMENT_LOST)
# So are these, which have no code of their own: what a statement did could not be committed there.
_INTERNAL = "XX000"
_NO_COMMIT = re.compile(
    r"(?i)(the distributed transaction|one phase commit|could not \w+ dispatch failed"
    r"|dispatching subtransaction|DTM transaction)"
)

_DEADLOCK = "40P01"
LOCK_TIMEOUT = "55P03"

Tick = Callable[[], None]


class StatementFailed(CerebroError):
    """A statement of a session failed; carries the server's SQLSTATE, message, hint and detail."""

    def __init__(self, message: str, sqlstate: str, hint: str | None, detail: str | None) -> None:
        super().__init__(message, hint)
        self.sqlstate = sqlstate
        self.detail = detail

    @property
    def last_resort(self) -> str | None:
        """Hint for what the server refused; an error of ours has its hint already."""
        return advice_of_server(self.sqlstate)


class Deadlocked(StatementFailed):
    """The server ended a statement because sessions waited for each other; it can be retried."""


# A connection that was cut without a word is known by either side within half a minute.
_KEEPALIVES = {
    "keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 30_000, "connect_timeout": 30,
}  # fmt: skip


def with_keepalives(dsn: str) -> str:
    """Connection string with keepalives, so that it is soon known where the connection was cut."""
    try:
        given = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:  # whoever connects tells what is wrong
        return dsn
    more = {key: value for key, value in _KEEPALIVES.items() if key not in given}
    return str(psycopg2.extensions.make_dsn(dsn, **more))


class SessionLost(CerebroError):
    """The server ended a session, or the connection broke."""

    advice = (
        "the log of the server tells why; a run goes on by SELECT cerebro.cerebro_resume(run_id)"
    )

    sqlstate = "08006"


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
            self.texts.append(notice)
        elif self.others is not None:
            self.others.append(_first_line_of(notice))


def _first_line_of(notice: str) -> str:
    """The message of a notice, without its severity."""
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
    """

    caller: Mapping[str, str] = MappingProxyType({})

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
                dsn, async_=True, application_name=application_name, **_first_settings(dsn)
            )
        except psycopg2.Error as error:
            raise _refused(error) from None
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
        """Send a statement and wait for its rows; on an exception from the tick it is cancelled."""
        self.settle()
        self.send(sql, parameters)
        self.settle()
        return self.rows()

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
            return _refused(error)
        if self._connection.closed or is_loss(error):
            self.close()
            return SessionLost(f"a server session ended: {_lost(error)}")
        return failure_of(error)


def failure_of(error: Any) -> StatementFailed:
    """The error of a statement that the server refused, from that of psycopg2 or psycopg."""
    diagnostics = getattr(error, "diag", None)
    message, context, hint, detail = (
        getattr(diagnostics, name, None)
        for name in ("message_primary", "context", "message_hint", "message_detail")
    )
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
    kind = Deadlocked if sqlstate == _DEADLOCK else StatementFailed
    return kind(as_raised(message or first_line(error), context), sqlstate, hint, detail)


def check_dsn(dsn: str) -> None:
    """Refuse a connection string that the client library of sessions cannot use.

    Raises:
        InvalidArgument: it has a keyword that is not known, of a later version for example.
    """
    try:
        psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError as error:
        raise InvalidArgument(
            f"setting worker_dsn: got a connection string that libpq {_libpq()} cannot use: {_shown_line(error)}",
            hint="leave that keyword out, or install a psycopg2 with a newer libpq",
        ) from None


def without_cleartext(dsn: str) -> str:
    """The connection string with which no server gets a password in clear text.

    One that tells itself what is required is left as it is, and one that leaves it to a service. A libpq
    before 16 cannot be told: there a server that asks for it gets it.
    """
    if _libpq() < _KNOWS_REQUIRE_AUTH:
        return dsn
    try:
        given = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:  # whoever connects tells what is wrong
        return dsn
    if "require_auth" in given or "service" in given:
        return dsn
    return f"{dsn} require_auth='!password'"


def _libpq() -> int:
    """The major version of the client library."""
    return int(psycopg2.extensions.libpq_version()) // 10000


_KNOWS_REQUIRE_AUTH = 16


def _first_settings(dsn: str) -> dict[str, str]:
    """Settings that must hold from the start, though a role, or a database, may have it otherwise.

    The client decides by the one setting how to quote values; by the other one, to connect would end
    in an error where the server takes longer for the client's own first statement.
    """
    options = options_of(psycopg2.extensions.parse_dsn(dsn))
    return {
        "client_encoding": "UTF8",
        "options": f"{options} -c standard_conforming_strings=on -c statement_timeout=0".strip(),
    }


def options_of(given: Mapping[str, str]) -> str:
    """The options of a connection: those of its string, else of the environment, as libpq has them."""
    return given.get("options") or os.environ.get("PGOPTIONS", "")


_LOOPBACK_HINT = (
    "worker sessions connect from the server to itself as the calling role; "
    "docs/install.md tells how to allow it (worker_dsn, pg_hba.conf, pg_ident.conf)"
)


# An error of connecting has no SQLSTATE in libpq.
_TOO_MANY = re.compile(r"too many (clients|connections)|connection slots are reserved")


def _refused(error: Any) -> LoopbackFailed:
    """The error of a session that was not opened."""
    line = _shown_line(error)
    if _TOO_MANY.search(line):
        return TooManyConnections(line)
    return LoopbackFailed(line, hint=_LOOPBACK_HINT)


def is_loss(error: Any) -> bool:
    """True if a session has ended with an error, or what it had on a segment has."""
    if error.pgcode == _INTERNAL:
        return _NO_COMMIT.match(str(error)) is not None
    return error.pgcode is None or error.pgcode in LOST_SQLSTATES


def _lost(error: Any) -> str:
    """Error of a session that has ended; it names a segment that does not answer."""
    detail = error.diag.message_detail if error.pgcode == _SEGMENT_LOST else None
    return f"{_shown_line(error)}: {' '.join(detail.split())}" if detail else _shown_line(error)


def as_raised(message: str, context: str | None = _PYTHON) -> str:
    """A message of ours as it was raised; any other as it is."""
    if _PYTHON not in (context or "") or message.startswith(_SERVERS):
        return message
    return _WHERE.sub("", message).removeprefix(f"{UNNAMED}: ")


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def _shown_line(error: BaseException) -> str:
    """That line for users: where the socket of the server lies is for administrators to know."""
    return _SOCKET.sub("on its socket", first_line(error))


_SOCKET = re.compile(r'on socket "[^"]*"')


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


def not_carried(error: StatementFailed) -> NotSupported:
    """The error where a session cannot have a setting of the one for which it works."""
    return NotSupported(
        f"a setting of this session cannot be given to sessions that work for it: {error.message}",
        hint="RESET it in this session, or have ALTER ROLE ... SET give it to each session of the role",
    )


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
                    f"a session was not ready after {CONNECT_SECONDS:.0f} s", hint=_LOOPBACK_HINT
                )
            wait_any(pending, POLL_SECONDS)
            pending[0].tick()
