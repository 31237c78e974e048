"""The backend in which a function runs: how it reaches its own server, its pool, its caller."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.database.dialects.backend import own_facts
from cerebro_db.database.dialects.capabilities import segment_of_process
from cerebro_db.database.dialects.choice import HAS_SEGMENTS, PostgreSQL, dialect_of
from cerebro_db.database.dialects.interrupts import held, put_off
from cerebro_db.database.sessions import SessionPool
from cerebro_db.errors import InvalidArgument, LoopbackFailed, NotSupported, RunInterrupted
from cerebro_db.server.computing import listen
from cerebro_db.server.waiting import Waiting

_POOL_KEY = "cerebro.pool"


@dataclass(frozen=True)
class Host:
    """One call of a function inside a backend.

    Attributes:
        plpy: the module that the server hands to PL/Python bodies.
        pool: worker sessions, kept from call to call of the same caller.
        dialect: what this server can do.
        search_path: the caller's, for the names that it gives.
        postmaster: the process that started this one.
        waiting: whether its sessions wait for their turn.
    """

    plpy: Any
    pool: SessionPool
    dialect: PostgreSQL
    search_path: str
    postmaster: int = field(default_factory=os.getppid)
    waiting: Waiting = field(default_factory=Waiting)

    @classmethod
    def of(cls, plpy: Any, gd: dict[str, Any]) -> Host:
        """The host of this call.

        Args:
            plpy: the module that the server hands to PL/Python bodies.
            gd: the dictionary that lives as long as the backend.

        Raises:
            NotSupported: it was called for rows that lie on segments, and runs there.
        """
        if segment_of_process() is not None:
            raise NotSupported(_ON_SEGMENT, hint=_VALUES_HINT)
        own = own_facts()
        facts = plpy.execute(_FACTS)[0] if own is None else {**own, "has_segments": True}
        put_off()
        dialect = dialect_of(int(facts["version"]), facts["has_segments"])
        if own is None:
            pool = _pool(gd, _dsn(facts), dialect)
        else:
            pool = _asking_pool(plpy, gd, facts, dialect)
        return cls(plpy, pool, dialect, facts["search_path"])

    def tick(self) -> None:
        """Let the server act on a cancel request or a timeout; then this raises.

        Raises:
            RunInterrupted: the first process of the server is gone. No new one starts while this
                one is there, which would look for lost sessions for long.
        """
        if os.getppid() != self.postmaster:
            raise RunInterrupted("the server has died; this session ends too")
        _listen(self.plpy, self.pool, self.dialect, self.waiting)

    def notice(self, message: str) -> None:
        """Tell the caller how far the work is."""
        _notice(self.plpy, message)


def _listen(plpy: Any, pool: SessionPool, dialect: PostgreSQL, waiting: Waiting) -> None:
    """What is done again and again while sessions are waited for."""
    listen(plpy)
    if dialect.queues_statements and waiting.tells(pool.busy()):
        _notice(plpy, _WAITING)


def _notice(plpy: Any, message: str) -> None:
    with held():  # a cancel request is told as one by the next tick
        plpy.notice(message)


_WAITING = (
    "waiting for a slot: the resource queue or group of this role runs no more statements at a time; "
    "pg_stat_activity shows them"
)
_ON_SEGMENT = "got a call for rows that lie on segments; allowed: calls in FROM, or with values"
_VALUES_HINT = (
    "take a value out of a table by a query in parentheses: f((SELECT x FROM t WHERE id = 1))"
)

# The socket's folder may be read by superusers only, hence the function that tells it.
_FACTS = f"""
SELECT {HAS_SEGMENTS} AS has_segments,
       pg_catalog.current_setting('server_version_num') AS version,
       pg_catalog.current_setting('search_path') AS search_path,
       pg_catalog.current_setting('port') AS port,
       pg_catalog.current_database() AS dbname,
       current_user AS "user",
       cerebro._loopback('unix_socket_directories') AS directories,
       cerebro._loopback('worker_dsn') AS worker_dsn
"""


# What an administrator has set, known for the life of the session.
_WORKER_DSN_KEY = "cerebro.worker_dsn"
_WORKER_DSN = "SELECT cerebro._loopback('worker_dsn') AS worker_dsn"


def _asking_pool(
    plpy: Any, gd: dict[str, Any], facts: dict[str, Any], dialect: PostgreSQL
) -> SessionPool:
    """The pool where this session must not read tables itself: one that is connected is asked how
    to connect. Only where nobody can connect without being told, this session has to look."""
    facts["worker_dsn"] = gd.get(_WORKER_DSN_KEY)
    pool = _pool(gd, _dsn(facts), dialect)
    if _WORKER_DSN_KEY not in gd:
        tick = functools.partial(_listen, plpy, pool, dialect, Waiting())
        try:
            (session,) = pool.take(1, tick=tick)
            gd[_WORKER_DSN_KEY] = session.run(_WORKER_DSN, (), tick)[0][0]
            pool.give([session])
        except LoopbackFailed:
            gd[_WORKER_DSN_KEY] = plpy.execute(_WORKER_DSN)[0]["worker_dsn"]
        facts["worker_dsn"] = gd[_WORKER_DSN_KEY]
    return _pool(gd, _dsn(facts), dialect)


def _pool(gd: dict[str, Any], dsn: str, dialect: PostgreSQL) -> SessionPool:
    pool = gd.get(_POOL_KEY)
    if isinstance(pool, SessionPool):
        if pool.dsn == dsn:
            return pool
        pool.close()
    gd[_POOL_KEY] = fresh = SessionPool(dsn, dialect.session_settings())
    return fresh


def _dsn(facts: dict[str, Any]) -> str:
    """Where the server reaches itself, always as the role whose rights count in this call."""
    fields = {
        "host": _socket_directory(facts["directories"]) or "localhost",
        "port": facts["port"],
        "dbname": facts["dbname"],
    }
    common = " ".join(f"{name}={_value(text)}" for name, text in fields.items())
    # Of a keyword that is given twice the last one counts: the user cannot be overridden.
    return f"{facts['worker_dsn'] or common} user={_value(facts['user'])}"


def _socket_directory(directories: str | None) -> str:
    first = (directories or "").split(",")[0].strip()
    return first.strip('"')


def _value(text: str) -> str:
    if "\0" in text:
        raise InvalidArgument("got a connection setting with a NUL character")
    return "'" + str(text).replace("\\", "\\\\").replace("'", "\\'") + "'"
