"""Remains of the output tables of an earlier run where someone has dropped those that matter."""

from __future__ import annotations

from collections.abc import Callable

from cerebro_db.postgres.control import transaction
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.relations import (
    check_not_hidden,
    exists_already,
    new_name,
    own_columns,
)
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.table_kinds import MODELS

# The table of models and its summary make a run's output what it is. Who has dropped both drops a
# model as MADlib's users do, whose module has fewer tables; the others of ours are of no use then.
_WHOLE = "_summary"
_LEFT = {
    suffix: columns for suffix, columns in MODELS.columns.items() if suffix not in ("", _WHOLE)
}


def new_output(session: Session, text: str | None, role: str) -> QualifiedName:
    """The name of output tables to be made, which do not exist, but for what is left of others.

    Raises:
        DuplicateTable: one exists.
    """
    return _found(session, text, role)[0]


def cleared_output(
    session: Session, text: str | None, role: str, notify: Callable[[str], None]
) -> None:
    """The same check, made again, and what is left is dropped, all or none.

    Raises:
        DuplicateTable: one of the others exists.
        StatementFailed: something depends on what is left.
    """
    _, left = _found(session, text, role)
    if not left:
        return
    with transaction(session):
        for table in left:
            session.run(f"DROP TABLE {table.sql}")
    names = " and ".join(map(str, left))
    notify(f"dropped {names}, left of a table of models that is gone")


def _found(
    session: Session, text: str | None, role: str
) -> tuple[QualifiedName, list[QualifiedName]]:
    """The name, and tables of the caller that a run has made beside another one of that name."""
    output = new_name(session, text, role)
    wanted: dict[QualifiedName, frozenset[str] | None] = {
        output: None,
        output.suffixed(_WHOLE): None,
    }
    wanted |= {output.suffixed(suffix): columns for suffix, columns in _LEFT.items()}
    there = own_columns(session, output.schema, [table.name for table in wanted])
    left = []
    for table, columns in wanted.items():
        if table.name in there:
            if columns is None or not columns <= there[table.name]:
                raise exists_already(text, role, table)
            left.append(table)
    check_not_hidden(session, text, role, list(wanted))
    return output, left
