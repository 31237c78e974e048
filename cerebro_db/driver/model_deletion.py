"""Deleting a model from an architecture table."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.database import libraries
from cerebro_db.database.relations import KINDS, find
from cerebro_db.database.sessions import SessionPool, Tick, no_tick
from cerebro_db.driver.control import control_session, lock, transaction
from cerebro_db.driver.model_loading import ROLE
from cerebro_db.errors import InvalidArgument, WrongObjectType


@dataclass(frozen=True)
class DeleteRequest:
    """The arguments of ``cerebro_delete_model``, as given; search_path is for the table's name."""

    model_arch_table: str | None
    model_id: int | None
    search_path: str | None = None


def delete_model(pool: SessionPool, request: DeleteRequest, tick: Tick = no_tick) -> str:
    """Delete a model, and the table with its last one; returns what was done.

    Raises:
        InvalidArgument: the table has no such model.
        WrongObjectType: the table is of another kind.
    """
    with control_session(pool, request.search_path, tick) as session:
        found = find(session, request.model_arch_table, ROLE, tick)
        missing = [name for name in libraries.ARCHITECTURE_COLUMNS if not found.has(name)]
        if found.kind not in ("r", "p") or missing:
            raise WrongObjectType(
                f"{ROLE}: got {found.name}, a {KINDS[found.kind]}; allowed: a table with "
                f"{', '.join(libraries.ARCHITECTURE_COLUMNS)}",
                hint="cerebro.cerebro_load_model makes such tables",
            )
        with transaction(session, tick):
            lock(session, f"models of {found.name}", tick)
            sql = libraries.delete_architecture(found.name)
            if not session.run(sql, (request.model_id,), tick):
                raise InvalidArgument(
                    f"model_id: got {_shown(request.model_id)}, which {found.name} does not have",
                    hint=f"SELECT model_id FROM {found.name} shows those there are",
                )
            # A statement of its own: whether one sees what it does itself depends on the server.
            if session.run(libraries.count_architectures(found.name), (), tick)[0][0]:
                return f"model {request.model_id} deleted from {found.name}"
            session.run(f"DROP TABLE {found.name.sql}", (), tick)
    return f"model {request.model_id} deleted; {found.name} had no other, and was dropped"


def _shown(value: int | None) -> str:
    return "NULL" if value is None else str(value)
