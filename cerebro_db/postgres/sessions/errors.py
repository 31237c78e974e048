"""Errors of statements and of sessions, made from those of the client libraries."""

from __future__ import annotations

import re
from typing import Any

from cerebro_db.errors import (
    UNNAMED,
    CerebroError,
    LoopbackFailed,
    NotSupported,
    TooManyConnections,
    advice_of_server,
)

# Where Python raised an error; the server's own that came through Python begin with their class.
_PYTHON, _SERVERS = 'PL/Python function "', "spiexceptions."
# Where an error comes from a segment, that is put behind its message.
_WHERE = re.compile(r"  \((?:seg|entry db)[^()]*\)$")
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


class SessionLost(CerebroError):
    """The server ended a session, or the connection broke."""

    advice = (
        "the log of the server tells why; a run goes on by SELECT cerebro.cerebro_resume(run_id)"
    )

    sqlstate = "08006"


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


LOOPBACK_HINT = (
    "worker sessions connect from the server to itself as the calling role; "
    "docs/install.md tells how to allow it (worker_dsn, pg_hba.conf, pg_ident.conf)"
)
# An error of connecting has no SQLSTATE in libpq.
_TOO_MANY = re.compile(r"too many (clients|connections)|connection slots are reserved")


def refused(error: Any) -> LoopbackFailed:
    """The error of a session that was not opened."""
    line = shown_line(error)
    if _TOO_MANY.search(line):
        return TooManyConnections(line)
    return LoopbackFailed(line, hint=LOOPBACK_HINT)


def is_loss(error: Any) -> bool:
    """True if a session has ended with an error, or what it had on a segment has."""
    if error.pgcode == _INTERNAL:
        return _NO_COMMIT.match(str(error)) is not None
    return error.pgcode is None or error.pgcode in LOST_SQLSTATES


def lost(error: Any) -> str:
    """Error of a session that has ended; it names a segment that does not answer."""
    detail = error.diag.message_detail if error.pgcode == _SEGMENT_LOST else None
    return f"{shown_line(error)}: {' '.join(detail.split())}" if detail else shown_line(error)


def as_raised(message: str, context: str | None = _PYTHON) -> str:
    """A message of ours as it was raised; any other as it is."""
    if _PYTHON not in (context or "") or message.startswith(_SERVERS):
        return message
    return _WHERE.sub("", message).removeprefix(f"{UNNAMED}: ")


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


def shown_line(error: BaseException) -> str:
    """That line for users: where the socket of the server lies is for administrators to know."""
    return _SOCKET.sub("on its socket", first_line(error))


_SOCKET = re.compile(r'on socket "[^"]*"')


def not_carried(error: StatementFailed) -> NotSupported:
    """The error where a session cannot have a setting of the one for which it works."""
    return NotSupported(
        f"a setting of this session cannot be given to sessions that work for it: {error.message}",
        hint="RESET it in this session, or have ALTER ROLE ... SET give it to each session of the role",
    )
