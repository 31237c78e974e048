"""Course of a call of cerebro_automl: everything is checked, then planned, then made statement by statement."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.columns.encoded import Encoding
from cerebro_db.columns.values import Column
from cerebro_db.configs.messages import duration, shown
from cerebro_db.configs.names import ModelReference, model_name
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    InvalidData,
    UndefinedColumn,
    UndefinedModel,
)
from cerebro_db.models.registered import registered
from cerebro_db.packing.resolve import check_source
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.names import shown_identifier
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation, column, find, listed_columns
from cerebro_db.requests.automl import AutomlRequest
from cerebro_db.runs import lifecycle
from cerebro_db.runs.automl.facts import facts_of
from cerebro_db.runs.automl.features import Features, features_of
from cerebro_db.runs.automl.findings import HELD, VALIDATION, Findings
from cerebro_db.runs.automl.places import (
    FIRST,
    HOLDOUT,
    PACKED_TEST,
    TEST,
    TRAIN,
    Places,
    drop_quietly,
    places_of,
)
from cerebro_db.runs.automl.reports import kept, report_of
from cerebro_db.runs.automl.splits import (
    Split,
    check_holdout,
    shares_of,
    split_of,
    split_statements,
)
from cerebro_db.runs.automl.statements import Clock, OutOfTime, Statements, statements_of
from cerebro_db.runs.automl.tasks import CLASSES, TargetFacts, Task, task_of
from cerebro_db.runs.automl.training import Training, too_short

CHAMPION = "champion"
_MOST_SHOWN = 20


@dataclass(frozen=True)
class Plan:
    """Plan of a call, as far as the table decides it.

    Attributes:
        source: the table.
        target: facts of it.
        task: of the model.
        features: what it learns from.
        split: of the rows.
        compares: whether there is a champion, which is scored on the rows for validation, too.
    """

    source: Relation
    target: TargetFacts
    task: Task
    features: Features
    split: Split
    compares: bool = False

    @property
    def names(self) -> list[str]:
        """Columns of both parts of the rows: a champion may have learnt from others."""
        label = self.target.column.name
        if not self.compares:
            return self.features.names
        return [one.name for one in self.source.columns if one.name != label]

    def notices(self) -> list[str]:
        """Lines that say what was chosen, and why."""
        name, task = self.target.column.name, self.task
        what = f"one of {task.classes} classes" if task.kind == CLASSES else "a number"
        lines = [f"task: {name} is {what}: {task.reason}; models are compared by {task.objective}"]
        if self.target.known < self.target.rows:
            missing = self.target.rows - self.target.known
            lines.append(
                f"target: {missing} of {self.target.rows} rows have no {name}, and are left out"
            )
        left_out = list(self.features.left_out.items())
        lines += [
            f"columns: {column} is left out: {reason}" for column, reason in left_out[:_MOST_SHOWN]
        ]
        if len(left_out) > _MOST_SHOWN:
            lines.append(f"columns: {len(left_out) - _MOST_SHOWN} more are left out")
        lines.append(f"split: {self.split.how}")
        return lines


def automl(host: JobHost, request: AutomlRequest) -> int | None:
    """Make, register and promote a model of a table.

    Args:
        host: of the call.
        request: of what and for how long.

    Returns:
        The version; None where the champion that there is stays.

    Raises:
        CerebroError: nothing can be learned of the table, or the call was cancelled; nothing is left of it.
    """
    clock = Clock(request.max_seconds)
    with control_session(host.pool, host.search_path) as control:
        reference = model_name(request.model, "model")
        source = find(control, request.source_table, "source_table")
        places = places_of(control, request.output_table, reference.name)
        plan = _planned(control, source, request)
        plan = replace(plan, compares=_has_champion(control, reference, plan))
        for line in plan.notices():
            host.notice(line)
        before = last_run(control)
        try:
            with statements_of(host, clock) as statements:
                version = _made(host, control, statements, request, plan, places, clock)
        except OutOfTime as error:
            take_back(host, control, places, before)
            raise too_short(clock, f"to split and pack the rows: {error.message}") from None
        except BaseException:
            take_back(host, control, places, before)
            raise
        if request.output_table is None:
            drop_tables(host, control, places)
        return version


def _made(
    host: JobHost,
    control: Session,
    statements: Statements,
    request: AutomlRequest,
    plan: Plan,
    places: Places,
    clock: Clock,
) -> int | None:
    """Make the steps; returns the version."""
    source, task = str(plan.source.name), plan.task
    for text in split_statements(source, places, plan.names, plan.target, task, plan.split):
        statements.run(text)
    rows = _parts(statements, places, plan)
    training = Training(control, statements, plan.target, task, places, clock)
    features = plan.features
    if request.time_column is None:
        features = training.cross(features, plan.target.known)
    held = plan.split.held / plan.split.share
    training.pack(features, request.num_partitions, request.seed, held)
    run_id, searched = training.train(request)
    statements.bounded = False  # a model is there, and becomes what the call was made for
    name = model_name(request.model, "model").name
    alias = f"model:{name}@{CHAMPION}"
    version: int | None = statements.call("cerebro_promote_if_better", run_id=run_id, model=alias)
    if searched is not None and (joined := training.joined(searched, name)) is not None:
        validation = places[PACKED_TEST]
        if statements.call(
            "cerebro_promote_if_better",
            run_id=None,
            model=alias,
            validation_table=validation,
            version=joined,
        ):
            version = joined
        else:
            statements.call("cerebro_drop_model", name=name, version=joined)
    if version is None:
        host.notice(f"{alias} stays: no new model is better on the rows for validation")
    else:
        found = Findings(statements, places, clock, f"model:{name}:{version}")
        scores = found.scores(is_held=held > 0)
        report = report_of(request, found, scores, rows, len(features.names), task.classes)
        reference = model_name(request.model, "model").at(version)
        kept(
            control, reference, report, statements, plan.notices(), training.runs, str(places.base)
        )
        host.notice(
            f"version {version} is {alias} now, after {duration(clock.elapsed)}: SELECT cerebro.cerebro_predict("
            f"'{alias}', 'new rows', 'their id', NULL, 'predictions')"
        )
    return version


def _parts(statements: Statements, places: Places, plan: Plan) -> dict[str, int]:
    """Rows of each part; a NOTICE counts those that are in none."""
    suffixes = {"training": TRAIN, VALIDATION: TEST}
    if plan.split.held:
        suffixes[HELD] = HOLDOUT
    counted = ", ".join(f"(SELECT count(*) FROM {places[one]})" for one in suffixes.values())
    (counts,) = statements.look(f"SELECT {counted}")
    if left_out := plan.target.known - sum(counts):
        parts = "validation and the holdout" if plan.split.held else "validation"
        statements.notice(
            f"split: {left_out} rows for {parts} are left out: no row for training has their class"
        )
    return dict(zip(suffixes, counts, strict=True))


# -- checks ------------------------------------------------------------------------
def _planned(control: Session, source: Relation, request: AutomlRequest) -> Plan:
    check_source(source)
    target = column(source, request.target, "target")
    by_time, by_group = (
        None if text is None else column(source, text, role)
        for text, role in (
            (request.time_column, "time_column"),
            (request.group_column, "group_column"),
        )
    )
    _check_split(request, target, by_time, by_group)
    shares = shares_of(request.validation_share, request.holdout_share)
    excluded = _excluded(source, request.excluded)
    with facts_of(control, source) as facts:
        found = facts.target(target)
        task = task_of(found, request.task, request.metric)
        others = [one for one in source.columns if one.name != target.name]
        features = features_of(
            facts.features([one for one in others if one.name not in excluded]),
            by_time.name if by_time else None,
            by_group.name if by_group else None,
        )
        features.left_out |= dict.fromkeys(excluded, "it is excluded")
        if not features.names:
            raise InvalidData(
                f"source_table: {source.name} has no column that tells anything about {shown(target.name)}",
                hint="; ".join(f"{name}: {why}" for name, why in features.left_out.items())[:1000]
                or "it has no other column",
            )
        check_holdout(shares, found.known)
        split = split_of(facts, target, task, shares, request.seed, by_time, by_group)
    return Plan(source, found, task, features, split)


def _excluded(source: Relation, text: str | None) -> set[str]:
    if text is None:
        return set()
    return {one.name for one in listed_columns(source, text, "excluded")}


def _check_split(
    request: AutomlRequest, target: Column, by_time: Column | None, by_group: Column | None
) -> None:
    if by_time is not None and by_group is not None:
        raise InvalidArgument(
            "group_column: got one beside time_column; allowed: one of them",
            hint="rows after a time are of other groups already, or of groups that are known",
        )
    for role, one in (("time_column", by_time), ("group_column", by_group)):
        if one is not None and one.name == target.name:
            raise InvalidArgument(
                f"{role}: got {shown(one.name)}, which is the target; allowed: another column",
                hint=f"without {role} rows are split at random",
            )


def check_without_owner(reference: ModelReference, role: str) -> None:
    """Refuse the name of a model that somebody else would have to register."""
    if reference.owner is not None:
        raise InvalidArgument(
            f"{role}: got {shown(str(reference))}; allowed: a name without owner, as a model belongs to the role that "
            "registers it"
        )


def _has_champion(control: Session, reference: ModelReference, plan: Plan) -> bool:
    """True if there is a champion that a new model can be compared with.

    Raises:
        InvalidArgument: it is somebody else's, or its champion tells something else.
    """
    check_without_owner(reference, "model")
    try:
        champion = registered(control, ModelReference(None, reference.name, CHAMPION))
    except UndefinedModel:
        return False
    target = plan.target.column.name
    is_class = champion.targets.kind == "class"
    if champion.dependent_varnames != (target,) or is_class != (plan.task.kind == CLASSES):
        kind = "classes" if is_class else "numbers"
        tells = ", ".join(map(shown_identifier, champion.dependent_varnames))
        raise InvalidArgument(
            f"model: got {shown(reference.name)}, whose {CHAMPION} tells {kind} of {tells}, and this call "
            f"{'classes' if plan.task.kind == CLASSES else 'numbers'} of {shown_identifier(target)}; allowed: another name",
            hint="cerebro.registered_models shows the names that are taken",
        )
    encoding = champion.encoding
    needed = encoding.names if isinstance(encoding, Encoding) else []
    lacking = [shown_identifier(name) for name in needed if not plan.source.has(name)]
    if lacking:
        raise UndefinedColumn(
            f"source_table: {plan.source.name} lacks {', '.join(lacking[:_MOST_SHOWN])}, which the {CHAMPION} of "
            f"{reference.name} needs to be compared",
            hint="name another model, or a view that has these columns",
        )
    return True


# -- what is left of a call -------------------------------------------------------------
def drop_tables(host: JobHost, control: Session, places: Places) -> None:
    """Drop the tables of a call that has made what it shall; a NOTICE names those that something else needs."""
    if left := drop_quietly(control, places):
        host.notice(f"these tables stay: {', '.join(left)}")


_LAST_RUN = "SELECT COALESCE(pg_catalog.max(run_id), 0) FROM cerebro.runs"
# A version that was registered already keeps its run. Parameters: twice the last run before, the tables of models.
_RUNS = """
SELECT run_id FROM cerebro.runs
 WHERE run_id > %s AND run_id NOT IN (SELECT v.run_id FROM cerebro.registered_versions v WHERE v.run_id > %s)
   AND model_output_table = ANY (%s)
 ORDER BY 1
"""


def last_run(control: Session) -> int:
    """The greatest number of a run so far; 0 where there is none."""
    return int(control.run(_LAST_RUN)[0][0])


def take_back(host: JobHost, control: Session, places: Places, before: int) -> None:
    """Drop the tables and the runs of a call that failed or was cancelled."""
    with host.pool.undisturbed(), control.undisturbed():
        control.recover()
        tables = [places[suffix] for suffix in ("", FIRST)]
        with suppress(CerebroError):
            for (run_id,) in control.run(_RUNS, (before, before, tables)):
                _drop_run(host, control, run_id)
        left = drop_quietly(control, places)
    text = f"these tables stay: {', '.join(left)}" if left else "nothing is left of it to resume"
    with suppress(Exception):
        host.notice(f"the call has not come to its end: {text}")


def _drop_run(host: JobHost, control: Session, run_id: Any) -> None:
    with suppress(CerebroError), transaction(control):
        lifecycle.drop_run(control, host.dialect, run_id)
