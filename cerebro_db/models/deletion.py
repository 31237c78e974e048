"""Deleting a model from an architecture table."""

from __future__ import annotations

from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.models.loading import ROLE
from cerebro_db.postgres import libraries
from cerebro_db.postgres.control import lock
from cerebro_db.postgres.relations import KINDS, find
from cerebro_db.postgres.sessions import Session


def delete_model(session: Session, model_arch_table: str | None, model_id: int | None) -> str:
    """Delete a model, and the table with its last one; returns what was done.

    Args:
        session: in a transaction; knows where the table's name is looked for.
        model_arch_table, model_id: as given.

    Raises:
        InvalidArgument: the table has no such model.
        WrongObjectType: the table is of another kind.
    """
    found = find(session, model_arch_table, ROLE)
    missing = [name for name in libraries.ARCHITECTURE_COLUMNS if not found.has(name)]
    if found.kind not in ("r", "p") or missing:
        raise WrongObjectType(
            f"{ROLE}: got {found.name}, a {KINDS[found.kind]}; allowed: a table with "
            f"{', '.join(libraries.ARCHITECTURE_COLUMNS)}",
            hint="cerebro.cerebro_load_model makes such tables",
        )
    lock(session, f"models of {found.name}")
    if not session.run(libraries.delete_architecture(found.name), (model_id,)):
        raise InvalidArgument(
            f"model_id: got {_shown(model_id)}, which {found.name} does not have",
            hint=f"SELECT model_id FROM {found.name} shows those there are",
        )
    # A statement of its own: whether one sees what it does itself depends on the server.
    if session.run(libraries.count_architectures(found.name))[0][0]:
        return f"model {model_id} deleted from {found.name}"
    session.run(f"DROP TABLE {found.name.sql}")
    return f"model {model_id} deleted; {found.name} had no other, and was dropped"


def _shown(value: int | None) -> str:
    return "NULL" if value is None else str(value)
