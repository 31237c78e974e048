"""Tables that a call of the same role has begun and not finished, as its process was killed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from cerebro_db.errors import CerebroError
from cerebro_db.postgres.control import lock_key, transaction
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.table_kinds import BUILD_SUFFIX, DRAFTS, PACKING_SUFFIXES, PACKINGS


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


def _dropped(session: Session, table: QualifiedName, comment: str, key: int) -> bool:
    """Drop a table unless a call works on it; whether that was done."""
    with transaction(session):
        if not session.run(_TRY_LOCK, (key,))[0][0]:
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
_TRY_LOCK = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
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
