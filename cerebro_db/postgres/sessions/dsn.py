"""Connection strings of libpq: what sessions add to them, and what they refuse."""

from __future__ import annotations

import os

import psycopg2
import psycopg2.extensions

from cerebro_db.errors import (
    InvalidArgument,
)
from cerebro_db.postgres.sessions.errors import (
    shown_line,
)

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


def check_dsn(dsn: str) -> None:
    """Refuse a connection string that the client library of sessions cannot use.

    Raises:
        InvalidArgument: it has a keyword that is not known, of a later version for example.
    """
    try:
        psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError as error:
        raise InvalidArgument(
            f"setting worker_dsn: got a connection string that libpq {_libpq()} cannot use: {shown_line(error)}",
            hint="leave that keyword out, or install a psycopg2 with a newer libpq",
        ) from None


def without_cleartext(dsn: str) -> str:
    """The connection string with which no server gets a password in clear text.

    One that tells itself what is required is left as it is, and one that leaves it to a service. A libpq
    before 16 cannot be excluded: there a server that asks for it gets it.
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


def first_settings(dsn: str) -> dict[str, str]:
    """Settings that must hold from the start, though a role, or a database, may have it otherwise.

    The client decides by the one setting how to quote values; by the other one, to connect would end
    in an error where the server takes longer for the client's own first statement.
    """
    options = options_of_dsn(dsn)
    return {
        "client_encoding": "UTF8",
        "options": f"{options} -c standard_conforming_strings=on -c statement_timeout=0".strip(),
    }


def options_of_dsn(dsn: str) -> str:
    """The options of a connection: those of its string, else of the environment, as libpq has them."""
    try:
        given = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:  # whoever connects tells what is wrong
        given = {}
    return given.get("options") or os.environ.get("PGOPTIONS", "")
