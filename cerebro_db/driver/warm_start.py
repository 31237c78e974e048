"""Whether the tables of an earlier run are such that another one can go on from them and replace them."""

from __future__ import annotations

from cerebro_db.database.libraries import SPELLED
from cerebro_db.database.relations import find
from cerebro_db.database.sessions import Session, Tick
from cerebro_db.driver.fit_setup import HISTORY_SUFFIX, RunSetup
from cerebro_db.driver.trained import ModelTable, load_model_table, one_or_all
from cerebro_db.errors import InvalidArgument, UndefinedTable, WrongObjectType

ROLE = "model_output_table"
_HISTORY = ("mst_key", "iteration", "run_id", "dataset")


def check_previous(session: Session, setup: RunSetup, tick: Tick) -> None:
    """Compare what is to be trained with what was.

    Raises:
        InvalidArgument: the models were trained on other classes, or another kind of target.
        WrongObjectType: a table that a run would replace was made by someone else.
    """
    _check_history(session, setup, tick)
    name = session.run(SPELLED, (setup.output.schema, setup.output.name), tick)[0][0]
    try:
        earlier = load_model_table(session, name, tick)
    except WrongObjectType:
        return  # no model was trained to the end: all start fresh
    _check_targets(setup, earlier)


def _check_history(session: Session, setup: RunSetup, tick: Tick) -> None:
    table = setup.output.suffixed(HISTORY_SUFFIX)
    spelled = session.run(SPELLED, (table.schema, table.name), tick)[0][0]
    try:
        found = find(session, spelled, ROLE, tick)
    except UndefinedTable:
        return
    if not all(map(found.has, _HISTORY)):
        raise WrongObjectType(
            f"{ROLE}: {table} was not made by cerebro_fit_multiple, and warm_start := true would "
            "replace it",
            hint="rename that table",
        )


def _check_targets(setup: RunSetup, earlier: ModelTable) -> None:
    targets = setup.packed.targets
    given = (
        one_or_all([target.kind for target in targets]),
        one_or_all([target.shape for target in targets]),
        one_or_all([target.class_values for target in targets]),
    )
    wanted = (
        one_or_all([target.kind for target in earlier.targets.each]),
        one_or_all([target.shape for target in earlier.targets.each]),
        one_or_all(earlier.class_values),
    )
    for what, got, allowed in zip(_TOLD, given, wanted, strict=True):
        if got != allowed:
            raise InvalidArgument(
                f"source_table: got {setup.packed.relation.name} with {what} {got}; the models of "
                f"{earlier.relation.name}, from which warm_start := true goes on, have {allowed}",
                hint="pack it with cerebro_pack_validation and the table of the earlier run",
            )


_TOLD = ("a target of the kind", "a target of shape", "the class values")
