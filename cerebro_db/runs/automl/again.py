"""Replay of a call: its packed tables by its steps, its search by the recorded decisions, its winner compared bit by bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cerebro_db.configs.names import ModelReference, model_name, model_reference
from cerebro_db.core.model_reports import ModelReport, Step
from cerebro_db.errors import DuplicateTable, InvalidArgument, InvalidData, NotPermitted
from cerebro_db.models.registry import describe
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.catalog.registry import Registry
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.automl import ReplayAutomlRequest
from cerebro_db.runs.automl.course import (
    check_without_owner,
    drop_tables,
    last_run,
    take_back,
)
from cerebro_db.runs.automl.places import FIRST, PACKED_TEST, PACKED_TRAIN, Places, places_of
from cerebro_db.runs.automl.statements import Clock, Statements, statements_of
from cerebro_db.wire import decode_stored

_PACK, _FIT, _ENSEMBLE = "cerebro_pack_validation", "cerebro_fit", "cerebro_ensemble"
_HINT = "make a version anew, by cerebro.cerebro_automl"


class Made(NamedTuple):
    """A version as it was made.

    Attributes:
        reference: the version.
        key: its number in the whole database.
        run_id, mst_key: of what trained it.
        is_mean: whether it is the mean of several models of the run.
        report: what was kept of the call.
    """

    reference: ModelReference
    key: int
    run_id: int
    mst_key: int
    is_mean: bool
    report: ModelReport

    def step(self, function: str) -> Step:
        """The step that calls a function."""
        return next(one for one in self.report.steps if one.function == function)


def replay(host: JobHost, request: ReplayAutomlRequest) -> int:
    """Make a version again; returns the number of the new one.

    Args:
        host: of the call; gets notices of the steps.
        request: which version.

    Raises:
        UndefinedModel, UndefinedRun: the caller has no such version, or its run is gone.
        NotPermitted: it is another role's, whose statements would be made with the rights of the caller.
        InvalidArgument: no call of cerebro_automl has made it.
        InvalidData: the weights differ; nothing is left of the call.
    """
    name = model_name(request.name, "name")
    check_without_owner(name, "name")
    with control_session(host.pool, host.search_path) as control:
        made = _made(control, model_reference(request.model, "model"))
        Catalog(control).run(made.run_id)
        places = _places(control, made)
        before = last_run(control)
        try:
            with statements_of(host, Clock(math.inf)) as statements:
                version = _again(control, statements, made, places, name)
        except BaseException:
            take_back(host, control, places, before)
            raise
        drop_tables(host, control, places)
    host.notice(f"{name.at(version)} has the weights of {made.reference} to the bit")
    return version


# Parameter: the number of the model.
_IS_MINE = "SELECT m.owner = cerebro._role() FROM cerebro._models m WHERE m.model_id = %s"
# Parameter: the number of the version.
_VERSION = """
SELECT v.run_id, v.mst_key, v.lineage::jsonb ? 'ensemble', v.report::text
  FROM cerebro.registered_versions v WHERE v.version_id = %s
"""


def _made(control: Session, reference: ModelReference) -> Made:
    registry = Registry(control)
    found = registry.usable(reference)
    exact = reference.at(found.version)
    ((is_mine,),) = control.run(_IS_MINE, (registry.kept(reference),))
    if not is_mine:
        raise NotPermitted(
            f"model: got {exact}, a version of another role; allowed: your own",
            hint="its owner can make it again",
        )
    ((run_id, mst_key, is_mean, text),) = control.run(_VERSION, (found.key,))
    if text is None:
        raise InvalidArgument(
            f"model: got {exact}; allowed: a version that cerebro.cerebro_automl has made",
            hint="cerebro.cerebro_replay makes any search again, whose packed tables are still there",
        )
    report = decode_stored(ModelReport, text, "report", _HINT)
    if not {_PACK, _FIT} <= {step.function for step in report.steps} or not report.runs:
        raise InvalidData(f"{exact}: its report lacks steps of the call", hint=_HINT)
    return Made(exact, found.key, run_id, mst_key, is_mean, report)


def _places(control: Session, made: Made) -> Places:
    """The names of the tables of the call, which are free again."""
    try:
        return places_of(control, made.report.tables, made.reference.name)
    except DuplicateTable as error:
        raise DuplicateTable(
            f"model: {made.reference} is made again under the names of its tables: {error.message}",
            hint="rename or drop them: those that the call has kept may be in the way, as output_table was given",
        ) from None


def _again(
    control: Session, statements: Statements, made: Made, places: Places, name: ModelReference
) -> int:
    steps = made.report.steps
    _repeat(statements, steps[: 1 + steps.index(made.step(_PACK))])
    if made.run_id == made.report.runs[0]:
        run_id = _first(control, statements, made, places)
    else:
        run_id = statements.call(
            "cerebro_replay",
            run_id=made.run_id,
            model_output_table=str(places.base),
            name=f"automl {name.name}, again",
            source_table=places[PACKED_TRAIN],
            validation_table=places[PACKED_TEST],
        )
    version = int(_registered(statements, made, run_id, name.name))
    new = Registry(control).usable(name.at(version))
    if _states(control, new.key) != _states(control, made.key):
        statements.call("cerebro_drop_model", name=name.name, version=version)
        raise InvalidData(
            f"model: the weights of {made.reference} come out differently; allowed: the rows, versions of packages and "
            "settings that it was made with",
            hint=_HINT,
        )
    with transaction(control):
        describe(control, str(name.at(version)), f"{made.reference} made again, to the bit", None)
    return version


def _repeat(statements: Statements, steps: Sequence[Step]) -> None:
    for step in steps:
        statements.make(step)


def _first(control: Session, statements: Statements, made: Made, places: Places) -> int:
    """Train the first model again, for as many epochs as it had time for; returns the run."""
    steps = made.report.steps
    fit = made.step(_FIT)
    _repeat(statements, steps[1 + steps.index(made.step(_PACK)) : steps.index(fit)])
    ((epochs,),) = control.run(
        "SELECT epoch FROM cerebro.leaderboard WHERE run_id = %s AND mst_key = %s",
        (made.run_id, made.mst_key),
    )
    given: Mapping[str, Any] = {**fit.given, "model_output_table": places[FIRST]}
    changed = {"num_iterations": epochs, "max_seconds": None}
    return int(statements.call(_FIT, **{**given, **changed}))


def _registered(statements: Statements, made: Made, run_id: int, name: str) -> Any:
    if not made.is_mean:
        key = made.mst_key
        return statements.call("cerebro_register_model", run_id=run_id, mst_key=key, name=name)
    given = made.step(_ENSEMBLE).given
    version = statements.call(_ENSEMBLE, **{**given, "run_id": run_id, "name": name})
    if version is None:
        raise InvalidData(f"model: no mean of models is {made.reference} this time", hint=_HINT)
    return version


def _states(control: Session, key: int) -> list[tuple[Any, ...]]:
    """Checksums of the parts of a version's state."""
    return control.run(
        "SELECT s.chunk, pg_catalog.md5(s.state) FROM cerebro._usable_states s WHERE s.mst_key = %s ORDER BY 1",
        (key,),
    )
