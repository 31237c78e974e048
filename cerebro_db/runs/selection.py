"""The configurations that a caller has chosen: rows of a model selection table, or one model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import Change
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.models.one_model import architectures_of
from cerebro_db.postgres.relations import Relation, find, find_if_there
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.table_kinds import Facts
from cerebro_db.runs.request import FitRequest

_HINT = "cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make such tables"
_SELECTION = ("mst_key", "model_id", "compile_params", "fit_params")


def chosen_by(session: Session, request: FitRequest) -> tuple[str | None, list[Change], Relation]:
    """The name of the table of configurations, its rows, and the table of architectures."""
    if request.one is not None:
        row = request.one.row()
        return None, [_change(row, request.epochs)], architectures_of(session, request.one)
    selection = find(session, request.model_selection_table, "model_selection_table")
    rows = [_change(row, request.epochs) for row in _selection_rows(session, selection)]
    return str(selection.name), rows, _architecture_table(session, selection)


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


def _architecture_table(session: Session, selection: Relation) -> Relation:
    summary = selection.name.suffixed("_summary")
    if find_if_there(session, summary.text, "model_selection_table") is None:
        raise WrongObjectType(
            f"model_selection_table: {selection.name} has no summary table {summary}",
            hint="cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make both",
        )
    rows = session.run(f"SELECT model_arch_table FROM {summary.sql}")
    if len(rows) != 1:
        raise WrongObjectType(f"{summary}: got {len(rows)} rows; allowed: one", hint=_HINT)
    facts = Facts("model_selection_table", summary, {"model_arch_table": rows[0][0]}, _HINT)
    return find(session, facts.text("model_arch_table"), "model_arch_table")
