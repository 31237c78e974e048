"""Scratch tables: what a call makes for its own sessions, and drops before it ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cerebro_db.errors import CerebroError
from cerebro_db.postgres.catalog import STATES_SCHEMA
from cerebro_db.postgres.control import lock_key
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions import Session

PREFIX = "rows_"
_DIGITS = 16
# Those of the caller's roles, whose call may have been killed.
_LEFT = (
    "SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = '{STATES_SCHEMA}' AND c.relkind = 'r' AND pg_catalog.left(c.relname, {len(PREFIX)}) = '{PREFIX}' "
    "AND pg_catalog.pg_has_role(c.relowner, 'USAGE')"
)


@contextmanager
def scratch_tables(session: Session) -> Iterator[QualifiedName]:
    """The name with which scratch tables of a call begin; they are dropped at the end.

    Those of calls that were killed are dropped first. While a call lasts, its session holds a lock of the name.

    Args:
        session: of the call, in no transaction.
    """
    _drop_left(session)
    base = QualifiedName(STATES_SCHEMA, f"{PREFIX}{secrets.token_hex(_DIGITS // 2)}")
    session.run("SELECT pg_catalog.pg_advisory_lock(%s)", (lock_key(base.text),))
    try:
        yield base
    finally:
        session.recover()
        if not session.closed:
            # What can't be dropped now, as somebody reads it, goes with the next call.
            with suppress(CerebroError), session.undisturbed():
                _drop(session, base)
            with suppress(CerebroError), session.undisturbed():
                session.run("SELECT pg_catalog.pg_advisory_unlock(%s)", (lock_key(base.text),))


def is_in_use(session: Session, table: str) -> bool:
    """True if a table of the schema of states is a scratch table of a call that goes on.

    Args:
        session: in a transaction, at whose end it lets go of the name again.
        table: its name.
    """
    if not table.startswith(PREFIX):
        return False
    key = lock_key(_base(table).text)
    return not session.run("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", (key,))[0][0]


def _base(table: str) -> QualifiedName:
    return QualifiedName(STATES_SCHEMA, table[: len(PREFIX) + _DIGITS])


def _drop_left(session: Session) -> None:
    for base in {_base(name) for (name,) in session.run(_LEFT)}:
        key = lock_key(base.text)
        if session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,))[0][0]:
            try:
                _drop(session, base)
            finally:
                session.run_through("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,))


def _drop(session: Session, base: QualifiedName) -> None:
    names = [name for (name,) in session.run(_LEFT) if name.startswith(base.name)]
    if names:
        listed = ", ".join(QualifiedName(STATES_SCHEMA, name).sql for name in names)
        session.run(f"DROP TABLE IF EXISTS {listed}")
