"""The server process for which a function works: how its server is reached, its sessions, its caller."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cerebro_db.configs.settings import parse_setting
from cerebro_db.errors import InvalidArgument, LoopbackFailed, OpenTransaction
from cerebro_db.postgres.calls.settings import check_settings, settings_of, work_for
from cerebro_db.postgres.catalog.jobs import Jobs
from cerebro_db.postgres.dialects.choice import ASKS_NOTHING, IDENTITY, PostgreSQL, dialect_of
from cerebro_db.postgres.sessions.dsn import without_cleartext
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.search_path import (
    CallerPath,
    SearchPath,
    forget_search_path,
    search_path_with,
)
from cerebro_db.postgres.tables.times import Styles
from cerebro_db.server.caller import (
    INT4,
    PATH_FACTS,
    CallerSession,
    caller_session,
    refuse_on_segments,
    refuse_read_only,
    search_path_of,
)

# Numbers of roles in the catalog: after a restore, or REASSIGN OWNED, they are others. Nearly always there is nothing to do.
_ADOPT = "SELECT cerebro._adopt()"
_QUEUE_LOOK_SECONDS, _PATIENCE = 1.0, 2.0
# How such a server shows that in the title of a process, which can be read without a statement: one
# would have to wait, too.
_QUEUING = b" queuing"


class Waiting:
    """Looks at intervals whether sessions wait in a queue of the server; true once for each wait."""

    def __init__(self) -> None:
        self._next_look = 0.0
        self._since: float | None = None
        self._has_notified = False

    def tells(self, sessions: Iterable[Session]) -> bool:
        """True if a session has waited for so long that the caller is to be notified."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _QUEUE_LOOK_SECONDS
        if not any(_is_queued(session.pid) for session in sessions):
            self._since, self._has_notified = None, False
            return False
        self._since = self._since or now
        if self._has_notified or now - self._since < _PATIENCE:
            return False
        self._has_notified = True
        return True


def _is_queued(pid: int) -> bool:
    with suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").endswith(_QUEUING)
    return False


_POOL_KEY = "cerebro.pool"
_LOOK_SECONDS = 1.0


class OwnLocks:
    """Looks now and then whether sessions wait for a lock that the caller's transaction holds.

    It would hold that until the call ends, and the server cannot see that the call waits for them.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def check(self, plpy: Any, pool: SessionPool, sql: str | None) -> None:
        """Look, unless that was done a moment ago.

        Args:
            plpy: of the caller.
            pool: of the sessions.
            sql: of the dialect; None where this session is not to be asked.

        Raises:
            OpenTransaction: one waits.
        """
        if sql is None or time.monotonic() < self._next or not (busy := pool.busy()):
            return
        self._next = time.monotonic() + _LOOK_SECONDS
        if rows := plpy.execute(plpy.prepare(sql, [f"{INT4}[]"]), [[one.pid for one in busy]]):
            table = rows[0]["relation"]
            what = "something" if table is None else table
            raise OpenTransaction(
                f"the transaction of this call holds a lock of {what}, for which a session of the "
                "function waits"
            )


@dataclass(frozen=True)
class Host:
    """Surroundings of one call of a function: its caller, its sessions, its server.

    Attributes:
        plpy: the server's interface, lent by the process whose call this is.
        pool: sessions of the calling role; those of a driver end with its call.
        dialect: what this server can do.
        search_path: the caller's, for the names that it gives.
        read_only: ``transaction_read_only`` of the caller.
        styles: in which the caller's session shows dates and times.
        waiting: whether its sessions wait for their turn.
        own_locks: looks for locks of the caller that the sessions wait for.
        job_id: there is none, as a session waits for the call.
    """

    plpy: Any
    pool: SessionPool
    dialect: PostgreSQL
    search_path: CallerPath
    read_only: str
    styles: Styles
    waiting: Waiting = field(default_factory=Waiting)
    own_locks: OwnLocks = field(default_factory=OwnLocks)
    job_id: None = None

    def __post_init__(self) -> None:
        self.pool.tick = self.tick

    @classmethod
    def of(cls, plpy: Any, gd: dict[str, Any]) -> Host:
        """The host of this call, whatever the caller's transaction has done.

        Args:
            plpy: the server's interface, lent by the process whose call this is.
            gd: what this process keeps from call to call.

        Raises:
            NotSupported: it was called for rows that lie on segments, and runs there.
        """
        refuse_on_segments(plpy)
        own = plpy.facts() if plpy.asks_nothing else None
        facts = plpy.execute(_FACTS)[0] if own is None else {**own, "dialect": ASKS_NOTHING}
        dialect = dialect_of(int(facts["version"]), facts["dialect"])
        if own is None:
            pool, path = _pool(gd, _dsn(facts), dialect), search_path_of(facts)
        else:
            pool, path = _asking_pool(plpy, gd, facts, dialect), facts["search_path"]
        settings = settings_of(plpy)
        work_for(pool, settings)
        styles = Styles.of(settings)
        return cls(plpy, pool, dialect, path, facts["read_only"], styles)

    @classmethod
    def apart(cls, plpy: Any, gd: dict[str, Any], *, writes: bool = True) -> Host:
        """The host of a call that works in sessions of its own, which see what is committed.

        Args:
            plpy, gd: as above.
            writes: whether it makes tables.

        Raises:
            ReadOnlyTransaction: it makes tables, and the caller's transaction may not.
            OpenTransaction: that has written something.
        """
        host = cls.of(plpy, gd)
        if writes:
            refuse_read_only(host.read_only)
        (session,) = host.pool.take(1)
        try:
            check_settings(session)
            session.run(_ADOPT)
            if session.run(host.dialect.has_written, (plpy.pid,))[0][0]:
                raise OpenTransaction(_HAS_WRITTEN)
            # Jobs that a restart of the server has ended go on with the next call of anybody.
            with suppress(StatementFailed):
                Jobs(session).start()
            return replace(host, search_path=host._known_path(session))
        finally:
            host.pool.give([session])

    def _known_path(self, session: Session) -> SearchPath:
        """Search path of names, with the temporary tables of the caller."""
        if isinstance(self.search_path, SearchPath):
            return self.search_path
        path = search_path_with(session, self.search_path, self.plpy.facts()["temporary_schema"])
        forget_search_path(session)
        return path

    def tick(self) -> None:
        """Let the server act on a cancel request or a timeout; then this raises.

        Raises:
            RunInterrupted: nobody waits for the call any more.
        """
        _listen(self.plpy, self.pool, self.dialect, self.waiting)
        self.own_locks.check(self.plpy, self.pool, self.dialect.blockers)

    def callers(self) -> AbstractContextManager[CallerSession]:
        """The caller's own session, to write tables in."""
        return caller_session(self.plpy, writes=True, tick=self.tick)

    def notice(self, message: str) -> None:
        """Send the caller a NOTICE."""
        self.plpy.notice(message)


def _listen(plpy: Any, pool: SessionPool, dialect: PostgreSQL, waiting: Waiting) -> None:
    """Look for a cancel request or a lost client while sessions work."""
    plpy.listen()
    if dialect.queues_statements and waiting.tells(pool.busy()):
        plpy.notice(_WAITING)


_WAITING = (
    "waiting for a slot: the resource queue or group of this role runs no more statements at a time; "
    "pg_stat_activity shows them"
)
_HAS_WRITTEN = (
    "the transaction has written, or locked rows, before this call; allowed: one that has not, as "
    "the function works in sessions of its own, which see what is committed"
)
# The socket's folder may be read by superusers only, hence the function that tells it.
_FACTS = f"""
SELECT {IDENTITY} AS dialect,
       pg_catalog.current_setting('server_version_num') AS version,
       {PATH_FACTS},
       pg_catalog.current_setting('port') AS port,
       pg_catalog.current_database() AS dbname,
       current_user AS "user",
       cerebro._loopback('unix_socket_directories') AS directories,
       cerebro._loopback('worker_dsn') AS worker_dsn
"""
# What an administrator has set, known as long as the caller stays.
_WORKER_DSN_KEY = "cerebro.worker_dsn"
_WORKER_DSN = "SELECT cerebro._loopback('worker_dsn') AS worker_dsn"


def reached_as(plpy: Any, role: str) -> tuple[str, PostgreSQL]:
    """Connection string by which the server reaches itself as a role, and its dialect.

    Args:
        plpy: of a call that runs with the rights of the owner of the catalog.
        role: to connect as.
    """
    own = plpy.facts() if plpy.asks_nothing else None
    if own is None:
        facts = plpy.execute(_FACTS)[0]
    else:
        facts = {**own, "dialect": ASKS_NOTHING, **plpy.execute(_WORKER_DSN)[0]}
    dialect = dialect_of(int(facts["version"]), facts["dialect"])
    return _dsn({**facts, "user": role}), dialect


def _asking_pool(
    plpy: Any, gd: dict[str, Any], facts: dict[str, Any], dialect: PostgreSQL
) -> SessionPool:
    """The pool of sessions where this session must not read tables: one that is connected is asked how
    to connect. Only where nobody can connect without settings, this session has to look."""
    facts["worker_dsn"] = gd.get(_WORKER_DSN_KEY)
    pool = _pool(gd, _dsn(facts), dialect)
    if _WORKER_DSN_KEY not in gd:
        pool.tick = functools.partial(_listen, plpy, pool, dialect, Waiting())
        try:
            (session,) = pool.take(1)
            gd[_WORKER_DSN_KEY] = session.run(_WORKER_DSN)[0][0]
            pool.give([session])
        except LoopbackFailed:
            gd[_WORKER_DSN_KEY] = plpy.execute(_WORKER_DSN)[0]["worker_dsn"]
        facts["worker_dsn"] = gd[_WORKER_DSN_KEY]
    return _pool(gd, _dsn(facts), dialect)


def close_sessions(gd: dict[str, Any]) -> None:
    """End the sessions of a caller, and forget where they were."""
    gd.pop(_WORKER_DSN_KEY, None)
    pool: SessionPool | None = gd.pop(_POOL_KEY, None)
    if pool is not None:
        pool.close()


def _pool(gd: dict[str, Any], dsn: str, dialect: PostgreSQL) -> SessionPool:
    """The sessions of this caller."""
    pool: SessionPool | None = gd.get(_POOL_KEY)
    if pool is not None:
        if pool.dsn == dsn:
            return pool
        pool.close()
    gd[_POOL_KEY] = fresh = SessionPool(dsn, dialect.session_settings())
    return fresh


def _dsn(facts: dict[str, Any]) -> str:
    """Connection string by which the server reaches itself, always as the role whose rights count in this call."""
    user = f"user={_value(facts['user'])}"
    if facts["worker_dsn"]:
        # An earlier version may have stored what is no longer allowed.
        given = str(parse_setting("worker_dsn", facts["worker_dsn"]))
        # Of a keyword that is given twice the last one counts: the user cannot be overridden.
        return without_cleartext(f"{given} {user}")
    fields = {
        "host": _socket_directory(facts["directories"]) or "localhost",
        "port": facts["port"],
        "dbname": facts["dbname"],
    }
    common = " ".join(f"{name}={_value(text)}" for name, text in fields.items())
    return f"{common} {user}"


def _socket_directory(directories: str | None) -> str:
    first = (directories or "").split(",")[0].strip()
    return first.strip('"')


def _value(text: str) -> str:
    if "\0" in text:
        raise InvalidArgument("got a connection setting with a NUL character")
    return "'" + str(text).replace("\\", "\\\\").replace("'", "\\'") + "'"
