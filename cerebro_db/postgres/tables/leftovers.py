"""Tables that go with the call that made them: unfinished ones that a killed call has left, and scratch tables."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cerebro_db.errors import CerebroError, DuplicateTable
from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName
from cerebro_db.postgres.sessions.locks import (
    lock_key,
    transaction,
    try_lock,
    try_lock_here,
    unlock,
)
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import BUILD_SUFFIX, DRAFTS, PACKING_SUFFIXES, PACKINGS


def packing_key(output: QualifiedName) -> int:
    """The advisory lock of whoever packs into a table."""
    return lock_key(f"pack {output}")


def draft_key(draft: QualifiedName) -> int:
    """The advisory lock of whoever writes into a table that has no name of its own yet."""
    return lock_key(draft.text)


def drop_leftovers(session: Session, notify: Callable[[str], None]) -> None:
    """Drop the unfinished tables of the calling role that no call works on any more.

    Args:
        session: in no transaction.
        notify: gets a line for each table.
    """
    for schema, name, comment in session.run(_UNFINISHED, ([_PACKING, _DRAFT],)):
        table = QualifiedName(schema, name)
        key = _packing_of(table) if comment == _PACKING else draft_key(table)
        # Whoever reads it now keeps it for the time being.
        with suppress(CerebroError):
            if _dropped(session, table, comment, key):
                notify(f"dropped {table}, which a call has left that was killed")


def free_name(session: Session, table: QualifiedName, comment: str) -> None:
    """Drop an unfinished table of a call that was killed, whose name is needed.

    Raises:
        DuplicateTable: a table of that name has another comment, or none.
    """
    for (found,) in session.run(_COMMENT, (table.schema, table.name)):
        if found != comment:
            raise DuplicateTable(
                f"output_table: the table {table} exists already; its name is needed"
            )
        session.run(f"DROP TABLE {table.sql}")


def _dropped(session: Session, table: QualifiedName, comment: str, key: int) -> bool:
    """Drop a table unless a call works on it; whether that was done."""
    with transaction(session):
        if not try_lock_here(session, key):
            return False
        session.run("SET LOCAL lock_timeout = '1s'")
        session.run(f"LOCK TABLE {table.sql} IN ACCESS EXCLUSIVE MODE")
        # Its call may have finished it, and given its name to another one, since it was looked for.
        if session.run(_COMMENT, (table.schema, table.name)) != [(comment,)]:
            return False
        session.run(f"DROP TABLE {table.sql}")
        return True


def _packing_of(table: QualifiedName) -> int:
    """The advisory lock of the packing that makes an unfinished table."""
    suffix = next((one for one in PACKING_SUFFIXES if table.name.endswith(one)), "")
    return packing_key(QualifiedName(table.schema, table.name.removesuffix(suffix)))


_PACKING, _DRAFT = PACKINGS.text(BUILD_SUFFIX), DRAFTS.text()
_COMMENT = """
SELECT pg_catalog.obj_description(c.oid, 'pg_class')
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s
"""
# Parameter: comments.
_UNFINISHED = """
SELECT n.nspname::text, c.relname::text, d.description
  FROM pg_catalog.pg_description d JOIN pg_catalog.pg_class c ON c.oid = d.objoid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objsubid = 0
   AND d.description = ANY (%s) AND c.relkind = 'r'
   AND c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
 ORDER BY 1, 2
"""


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
                unlock(session, lock_key(base.text))


def is_in_use(session: Session, table: str) -> bool:
    """True if a table of the schema of states is a scratch table of a call that goes on.

    Args:
        session: in a transaction, at whose end it lets go of the name again.
        table: its name.
    """
    if not table.startswith(PREFIX):
        return False
    key = lock_key(_base(table).text)
    return not try_lock_here(session, key)


def _base(table: str) -> QualifiedName:
    return QualifiedName(STATES_SCHEMA, table[: len(PREFIX) + _DIGITS])


def _drop_left(session: Session) -> None:
    for base in {_base(name) for (name,) in session.run(_LEFT)}:
        key = lock_key(base.text)
        if try_lock(session, key):
            try:
                _drop(session, base)
            finally:
                unlock(session, key)


def _drop(session: Session, base: QualifiedName) -> None:
    names = [name for (name,) in session.run(_LEFT) if name.startswith(base.name)]
    if names:
        listed = ", ".join(QualifiedName(STATES_SCHEMA, name).sql for name in names)
        session.run(f"DROP TABLE IF EXISTS {listed}")
