"""Models for single rows where the caller's session must not read tables inside of a function.

They are read through another session, which sees what is committed. Whether a model has been
replaced is asked once in each statement of the caller, not for each of its rows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.models.registered import RegisteredModel, named_models
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.control import control_session
from cerebro_db.postgres.relations import CallerPath
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.times import Styles
from cerebro_db.scoring.class_texts import shown_classes
from cerebro_db.server import network
from cerebro_db.server.host import Host
from cerebro_db.server.rows_loading import LoadedModel, built, read_model

_KEY = "cerebro.rows_apart"
_MOST_MODELS = 16
_Place = tuple[str, CallerPath, Styles, str, int | None]


@dataclass
class _Kept:
    """A model, which version it is, and the statement that asked for that."""

    model: LoadedModel
    version: tuple[Any, ...]
    statement: int


def model_apart(plpy: Any, gd: dict[str, Any], text: str, mst_key: int | None) -> LoadedModel:
    """The model of a table, loaded where it has not been, or where it was replaced."""
    network.require()
    host = Host.of(plpy, gd)
    kept: OrderedDict[_Place, _Kept] = gd.setdefault(_KEY, OrderedDict())
    place = (host.pool.dsn, host.search_path, host.styles, text, mst_key)
    found, statement = kept.get(place), plpy.statement_began()
    if found is None or found.statement != statement:
        kept.pop(place, None)
        found = kept[place] = _current(host, found, text, mst_key, statement)
        while len(kept) > _MOST_MODELS:
            kept.popitem(last=False)
    return found.model


def _current(
    host: Host, known: _Kept | None, text: str, mst_key: int | None, statement: int
) -> _Kept:
    with control_session(host.pool, host.search_path) as session:
        version = _version(session, text, mst_key)
        if known is not None and known.version == version:
            return _Kept(known.model, version, statement)
        settings = Catalog(session).settings()
        asked, data = read_model(session, text, mst_key)
        kinds, values = asked.class_kinds, asked.class_values
        values = shown_classes(session, values, kinds, host.styles)
        asked = replace(asked, class_values=values, class_kinds=())  # nothing is left to be shown
    return _Kept(built(host.plpy, asked, data, settings), version, statement)


def _version(session: Session, text: str, mst_key: int | None) -> tuple[Any, ...]:
    """Version of a model: another one as soon as the state is."""
    table = named_models(session, text)
    if mst_key is not None:
        table.check_key(mst_key)
    key = table.only_key() if mst_key is None else mst_key
    if isinstance(table, RegisteredModel):  # a version never changes
        return (key,)
    rows = session.run(
        "SELECT s.tableoid::bigint, s.xmin::text, s.ctid::text "
        f"FROM {table.states.sql} s WHERE s.mst_key = %s AND s.chunk = 0",
        (key,),
    )
    return (*rows, key)
