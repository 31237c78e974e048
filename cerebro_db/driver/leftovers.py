"""What is left of the output tables of an earlier run where someone has dropped those that matter."""

from __future__ import annotations

from collections.abc import Callable

from cerebro_db.database.names import QualifiedName
from cerebro_db.database.relations import new_table
from cerebro_db.database.sessions import Session, Tick
from cerebro_db.driver.control import transaction

# The table of models and its summary make a run's output what it is. Who has dropped both drops a
# model as MADlib's users do, whose module has fewer tables; the others of ours are of no use then.
_WHOLE = "_summary"
_LEFT = {
    "_info": ("mst_key", "model_id", "compile_params", "fit_params", "model_type", "status"),
    "_states": ("mst_key", "chunk", "state"),
    "_history": ("mst_key", "iteration", "run_id", "epoch", "dataset", "loss"),
}


def new_output(session: Session, text: str | None, role: str, tick: Tick) -> QualifiedName:
    """The name of output tables to be made, which do not exist, but for what is left of others.

    Raises:
        DuplicateTable: one exists.
    """
    name = new_table(session, text, role, (_WHOLE,), tick)
    left = leftovers(session, name, tick)
    others = [suffix for suffix in _LEFT if name.suffixed(suffix) not in left]
    return new_table(session, text, role, others, tick)


def leftovers(session: Session, output: QualifiedName, tick: Tick) -> list[QualifiedName]:
    """Tables of the caller that a run has made beside ``output``, where they stand alone."""
    if _columns(session, output, tick) or _columns(session, output.suffixed(_WHOLE), tick):
        return []
    return [
        output.suffixed(suffix)
        for suffix, wanted in _LEFT.items()
        if set(wanted) <= set(_columns(session, output.suffixed(suffix), tick))
    ]


def clear(
    session: Session, output: QualifiedName, tick: Tick, notify: Callable[[str], None]
) -> None:
    """Drop them, all or none.

    Raises:
        StatementFailed: something depends on one of them.
    """
    left = leftovers(session, output, tick)
    with transaction(session, tick):
        for table in left:
            session.run(f"DROP TABLE {table.sql}", (), tick)
    if left:
        names = " and ".join(map(str, left))
        notify(f"dropped {names}, left of a table of models that is gone")


def _columns(session: Session, table: QualifiedName, tick: Tick) -> list[str]:
    """The columns of a table; none where there is no such table, or it is not the caller's."""
    return [row[0] for row in session.run(_COLUMNS, (table.schema, table.name), tick)]


_COLUMNS = """
SELECT a.attname::text
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'r'
   AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
"""
