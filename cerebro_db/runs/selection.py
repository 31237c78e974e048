"""The configurations that a caller has chosen: rows of a model selection table, or one model."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from msgspec import structs

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import Change
from cerebro_db.core.spec import Space
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.models.object_tables import object_table
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import Facts
from cerebro_db.postgres.tables.relations import Relation, find, find_if_there
from cerebro_db.requests.fitting import FitOneRequest, FitRequest
from cerebro_db.requests.searching import SearchRequest

_HINT = "cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make such tables"
_SELECTION = ("mst_key", "model_id", "compile_params", "fit_params")


class Chosen(NamedTuple):
    """The configurations of a call.

    Attributes:
        table: name of the table that they are from; None for one model.
        rows: the configurations, with the names of registered functions.
        architectures: the table of their models.
        object_table: name of the table that MADlib's names of functions are from; None where there is none.
        space: that a search chooses from, in place of rows.
    """

    table: str | None
    rows: list[Change]
    architectures: Relation
    object_table: str | None
    space: Space | None = None

    @property
    def model_ids(self) -> set[int]:
        """The architectures that they may have."""
        found = {row.text.model_id for row in self.rows}
        return found if self.space is None else set(self.space.model_ids)

    @property
    def fit_texts(self) -> list[str]:
        """Their fit parameters, or the grid of these."""
        found = [row.text.fit_params for row in self.rows]
        return found if self.space is None else [self.space.fit_params_grid]


def chosen_by(session: Session, request: FitRequest | FitOneRequest | SearchRequest) -> Chosen:
    """The configurations that a call names."""
    if isinstance(request, SearchRequest):
        return _searched(session, request)
    if isinstance(request, FitOneRequest):
        table, listed, named = None, [request.row()], request.object_table
        architectures = find(session, request.model_arch_table, "model_arch_table")
    else:
        selection = find(session, request.model_selection_table, "model_selection_table")
        table, listed = str(selection.name), _selection_rows(session, selection)
        architectures, named = _referred_to(session, selection)
    objects = object_table(session, named)
    if objects is not None:
        named = objects.name
        listed = [(key, model, objects.in_params(text), fit) for key, model, text, fit in listed]
    rows = [_change(row, request.epochs) for row in listed]
    return Chosen(table, rows, architectures, named)


def _searched(session: Session, request: SearchRequest) -> Chosen:
    """The space of a search, with the names of registered functions."""
    objects, space = object_table(session, request.object_table), request.space
    if objects is not None:
        grid = objects.in_grid(space.compile_params_grid)
        space = structs.replace(space, compile_params_grid=grid)
    table = find(session, request.model_arch_table, "model_arch_table")
    return Chosen(
        request.model_selection_table, [], table, None if objects is None else objects.name, space
    )


def _change(row: tuple[int, int, str, str], epochs: int) -> Change:
    return Change(row[0], epochs, ConfigurationText(*row[1:]))


def _selection_rows(session: Session, selection: Relation) -> list[tuple[int, int, str, str]]:
    for name in _SELECTION:
        if not selection.has(name):
            raise WrongObjectType(
                f"model_selection_table: {selection.name} has no column {name}",
                hint=_HINT,
            )
    rows = session.run(f"SELECT {', '.join(_SELECTION)} FROM {selection.name.sql} ORDER BY mst_key")
    if not rows:
        raise InvalidArgument(f"model_selection_table: {selection.name} is empty", hint=_HINT)
    for row in rows:
        _check_nulls(selection, row)
    checked = [_checked(selection, row) for row in rows]
    repeated = [key for key, count in Counter(row[0] for row in checked).items() if count > 1]
    if repeated:
        raise InvalidArgument(
            f"model_selection_table: {selection.name} has the mst_key {repeated[0]} more than once; "
            "allowed: each mst_key once",
            hint="give each configuration a mst_key of its own",
        )
    return checked


def _check_nulls(selection: Relation, row: tuple[Any, ...]) -> None:
    missing = [name for name, value in zip(_SELECTION, row, strict=True) if value is None]
    if missing:
        mst_key = row[0]
        which = f"the row of mst_key {mst_key}" if mst_key is not None else "a row"
        raise InvalidArgument(
            f"model_selection_table: {which} of {selection.name} has NULL in the column "
            f"{missing[0]}; allowed: no NULL",
            hint=f"UPDATE {selection.name} SET {missing[0]} = ... fills it; fit_params may be ''"
            if mst_key is not None
            else f"DELETE FROM {selection.name} WHERE mst_key IS NULL removes it",
        )


def _checked(selection: Relation, row: tuple[Any, ...]) -> tuple[int, int, str, str]:
    values = dict(zip(_SELECTION, row, strict=True))
    facts = Facts("model_selection_table", selection.name, values, _HINT)
    mst_key, model_id = (facts.whole(name, values[name], -(2**31)) for name in _SELECTION[:2])
    return mst_key, model_id, facts.text("compile_params"), facts.text("fit_params")


def _referred_to(session: Session, selection: Relation) -> tuple[Relation, str | None]:
    """The table of architectures, and the name of the object table, where that is still there."""
    name = selection.name.suffixed("_summary")
    summary = find_if_there(session, name.text, "model_selection_table")
    if summary is None:
        raise WrongObjectType(
            f"model_selection_table: {selection.name} has no summary table {name}",
            hint="cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make both",
        )
    objects = "object_table" if summary.has("object_table") else "NULL::text"
    rows = session.run(f"SELECT model_arch_table, {objects} FROM {name.sql}")
    if len(rows) != 1:
        raise WrongObjectType(f"{name}: got {len(rows)} rows; allowed: one", hint=_HINT)
    values = dict(zip(("model_arch_table", "object_table"), rows[0], strict=True))
    facts = Facts("model_selection_table", name, values, _HINT)
    architectures = find(session, facts.text("model_arch_table"), "model_arch_table")
    # What is stored has the registered names, and needs the table no more.
    named = None if rows[0][1] is None else facts.text("object_table")
    is_there = named is not None and find_if_there(session, named, "object_table") is not None
    return architectures, named if is_there else None
