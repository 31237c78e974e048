"""Prediction: answers of trained models for the rows of a table, in a new table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cerebro_db.configs.frameworks import output_names
from cerebro_db.configs.messages import check_divisor, shown
from cerebro_db.core.spec import Architecture
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.executors.tasks import input_task, target_task
from cerebro_db.models.architectures import load_architectures
from cerebro_db.models.registered import named_models
from cerebro_db.packing.drift import Observed
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.catalog.drift import Drift, record
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.segments.prediction import SegmentPrediction
from cerebro_db.postgres.dialects.statements.answers import Answer as Answers
from cerebro_db.postgres.dialects.statements.answers import Classes, Several, Values
from cerebro_db.postgres.dialects.statements.sources import StoredModel
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import PREDICTIONS
from cerebro_db.postgres.tables.outputs import new_outputs
from cerebro_db.postgres.tables.relations import Relation, find
from cerebro_db.requests.predicting import ByomRequest, PredictionRequest
from cerebro_db.scoring.prediction_job import PredictionJob, SpreadJob, Work
from cerebro_db.scoring.prediction_models import (
    Ensemble,
    Member,
    chosen_keys,
    models_of_table,
    shown_classes,
)
from cerebro_db.scoring.prediction_source import TAKEN, test_source
from cerebro_db.training.scores.targets import TargetFacts


class Answer(StrEnum):
    """The kinds of answers."""

    RESPONSE = "response"
    PROB = "prob"
    TOP = "top"
    ABOVE = "above"


@dataclass(frozen=True)
class PredictionType:
    """A kind of answer and its number.

    Attributes:
        number: how many classes for TOP; the probability for ABOVE; else 0.
    """

    answer: Answer
    number: float = 0.0

    def __str__(self) -> str:
        return f"{self.number:g}" if self.number else repr(self.answer.value)


def prediction_type(given: str | float) -> PredictionType:
    """Reads ``pred_type``: 'response', 'prob', a rank from 1, or a probability between 0 and 1."""
    text = str(given).strip().lower()
    if text in (Answer.RESPONSE, Answer.PROB):
        return PredictionType(Answer(text))
    number = _number(given)
    if 0 < number < 1:
        return PredictionType(Answer.ABOVE, number)
    if number >= 1 and number.is_integer():
        return PredictionType(Answer.TOP, number)
    raise InvalidArgument(
        f"pred_type: got {shown(given)}; allowed: 'response', 'prob', a whole number from 1 for that many "
        "classes, or a number between 0 and 1 for the classes of a higher probability"
    )


def _number(given: str | float) -> float:
    try:
        number = float(given)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def wanted_of(pred_type: str | float | None) -> PredictionType:
    """Answer that is wanted for each row.

    Raises:
        InvalidArgument: there is no such answer.
    """
    return prediction_type(Answer.PROB if pred_type is None else pred_type)


def predict(host: JobHost, request: PredictionRequest) -> QualifiedName:
    """Make a table of predictions, or nothing at all; returns its name.

    Args:
        host: of the call; gets notices of ids that several rows have.
        request: what to predict.

    Raises:
        InvalidArgument: several models and none of them chosen, or a pred_type that the target
            has not.
        InvalidData: a row has no id, or features that are no row of the model.
    """
    with control_session(host.pool, host.search_path) as session:
        work = _work(host, session, request)
        job = job_of(host, session)
        job.run(work)
        if job.observed is not None:
            _record(host, session, work, job.observed)
        return work.output


def _record(host: JobHost, session: Session, work: Work, observed: Observed) -> None:
    """Write down, and tell, how far the rows have moved from those that the encoding was computed from."""
    models = work.ensemble.models
    for message in observed.notices(models):
        host.notice(message)
    names = str(work.source.table.name), str(work.output)
    drift = Drift("prediction", host.job_id, models, *names, observed.rows, observed.columns)
    with transaction(session):
        record(session, drift)


def check(host: JobHost, request: PredictionRequest) -> None:
    """Refuse a request that could not be followed now; data are not looked at.

    Args:
        host, request: as above.
    """
    with control_session(host.pool, host.search_path) as session:
        _work(host, session, request)


def _work(host: JobHost, session: Session, request: PredictionRequest) -> Work:
    """Job for a request, all names looked up."""
    wanted = wanted_of(request.pred_type)
    table = named_models(session, request.model_table)
    keys = chosen_keys(session, table, request.mst_key, request.ensemble)
    ensemble = models_of_table(session, table, keys)
    values = shown_classes(session, ensemble.class_values, ensemble.class_kinds, host.styles)
    ensemble = replace(ensemble, class_values=values)
    return resolved(session, host.dialect, request, ensemble, wanted)


def job_of(host: JobHost, control: Session) -> PredictionJob | SpreadJob:
    """Prediction as this server does it: by sessions side by side, or by its segments."""
    if isinstance(sql := host.dialect.prediction, SegmentPrediction):
        return SpreadJob(host, sql, control)
    return PredictionJob(host, control)


def resolved(
    session: Session,
    dialect: PostgreSQL,
    request: PredictionRequest,
    ensemble: Ensemble,
    wanted: PredictionType,
) -> Work:
    """Job for a request, its names looked up; the models are known."""
    answer = answer_for(ensemble, wanted)
    names = (request.test_table, request.id_col, request.independent_varname)
    source = test_source(session, dialect, ensemble, names, request.on_error, TAKEN)
    outputs = new_outputs(
        session,
        request.output_table,
        "output_table",
        PREDICTIONS,
        replace=request.replace,
        inputs=[source.table.oid],
    )
    use_gpus = bool(request.use_gpus)
    return Work(ensemble, source, answer, outputs, request.num_workers, use_gpus)


def answer_for(ensemble: Ensemble, wanted: PredictionType) -> Answers:
    """Columns that are inserted for each row.

    Raises:
        InvalidArgument: all targets are numbers and have no classes.
    """
    targets = ensemble.targets.each
    if wanted.answer is not Answer.RESPONSE and all(one.kind != "class" for one in targets):
        names = ", ".join(map(repr, ensemble.names))
        raise InvalidArgument(
            f"pred_type: got {wanted}; allowed: 'response', as "
            f"{names} is a float target and has no classes"
        )
    given = zip(ensemble.names, targets, ensemble.class_values, strict=True)
    answers = tuple(_answer(*one, wanted) for one in given)
    return answers[0] if len(answers) == 1 else Several(answers)


def _answer(
    name: str,
    target: TargetFacts,
    class_values: tuple[str | None, ...],
    wanted: PredictionType,
) -> Classes | Values:
    if target.kind != "class":
        return Values(name, target.shape)
    classes = target.num_classes
    if wanted.answer is Answer.ABOVE:
        return Classes(name, class_values, classes, wanted.number)
    counts = {Answer.RESPONSE: 1, Answer.TOP: min(classes, int(wanted.number))}
    return Classes(name, class_values, counts.get(wanted.answer, classes))


ROLE = "model_arch_table"
TARGET = "dependent_var"
# How it was compiled elsewhere is not known; predicting needs to know what the outputs are only.
_LOSSES = {"float": "mse", "binary": "BinaryCrossentropy", "class": "CategoricalCrossentropy"}


def _divisor(request: ByomRequest) -> float:
    return check_divisor(1.0 if request.normalizing_const is None else request.normalizing_const)


def _common(request: ByomRequest) -> PredictionRequest:
    """What it has in common with a prediction of a model of a run.

    Raises:
        InvalidArgument: a value is wrong, whatever the tables hold.
    """
    if request.model_id is None:
        raise InvalidArgument("model_id: got NULL; allowed: an id of the architecture table")
    _divisor(request)
    return PredictionRequest(
        None,
        request.test_table,
        request.id_col,
        request.independent_varname,
        request.output_table,
        request.pred_type,
        request.use_gpus,
        num_workers=request.num_workers,
        replace=request.replace,
    )


def predict_byom(host: JobHost, request: ByomRequest) -> QualifiedName:
    """Make a table of predictions, or nothing at all; returns its name.

    Args:
        host: of the call; gets notices of ids that several rows have.
        request: what to predict.

    Raises:
        InvalidArgument: there is no such model, it has no weights, or other classes.
        InvalidData: a row has no id, or features that are no row of the model.
    """
    common = _common(request)
    wanted = wanted_of(request.pred_type)
    with control_session(host.pool, host.search_path) as session:
        table = find(session, request.model_arch_table, ROLE)
        model = _model(session, table, request)
        ensemble = _ensemble(table, model, request)
        work = resolved(session, host.dialect, common, ensemble, wanted)
        job_of(host, session).run(work)
        return work.output


def _model(session: Session, table: Relation, request: ByomRequest) -> Architecture:
    assert request.model_id is not None
    model = load_architectures(session, table, [request.model_id])[request.model_id]
    if not model.has_weights:
        raise InvalidArgument(
            f"model_id: got {request.model_id}, which has no model_weights in {table.name}",
            hint="cerebro.cerebro_load_model takes weights: float32, in the order of get_weights()",
        )
    return model


def _ensemble(table: Relation, model: Architecture, request: ByomRequest) -> Ensemble:
    rows = tuple(map(_sizes, model.facts.input_shapes))
    outputs = tuple(map(_sizes, model.facts.output_shapes))
    output_names(json.loads(model.text))  # refuses outputs without an order
    _check_count(model, len(outputs), request)
    given = _given_values(request.class_values, len(outputs))
    values = tuple(_class_values(*one) for one in zip(given, outputs, strict=True))
    kinds = [_kind(*one) for one in zip(values, outputs, strict=True)]
    first, *more = [_target(*one) for one in zip(values, outputs, strict=True)]
    logits = "(from_logits=True)" if request.from_logits else ""
    losses = [f"{_LOSSES[kind]}{logits}" if kind != "float" else "'mse'" for kind in kinds]
    targets = replace(first, more=tuple(more))
    task = {
        "mst_key": model.model_id,
        "architecture": model.text,
        "architecture_id": model.id,
        "compile_params": f"loss=[{','.join(losses)}],optimizer='SGD()'",
        "fit_params": "batch_size=1",
        "targets": target_task(targets),
        **input_task(rows),
        "jit": False,
        "steps_per_call": 1,
        "format": "weights",
        **({} if request.from_logits else {"unsure": wanted_of(request.pred_type).answer.value}),
    }
    stored = StoredModel(table.name, "model_id", "model_weights", chunk=None)
    member = Member(task, stored, model.model_id)
    names = [f"{TARGET}_{place}" for place in range(len(outputs))]
    names = names if len(names) > 1 else [TARGET]
    return Ensemble((member,), tuple(names), targets, values, rows, _divisor(request))


def _check_count(model: Architecture, outputs: int, request: ByomRequest) -> None:
    if (request.dependent_count or 1) != outputs:
        raise InvalidArgument(
            f"dependent_count: got {request.dependent_count}; allowed: {outputs}, the outputs of "
            f"model_id {model.model_id}"
        )


def _kind(values: Sequence[Any], output: tuple[int, ...]) -> str:
    if not values:
        return "float"
    return "binary" if output == (1,) else "class"


def _target(values: Sequence[Any], output: tuple[int, ...]) -> TargetFacts:
    if values:
        return TargetFacts("class", len(values), ())
    return TargetFacts("float", 0, () if output == (1,) else output)


def _given_values(given: Sequence[Any] | None, outputs: int) -> list[list[Any] | None]:
    """The class values of each output; of several outputs shorter lists end with NULLs."""
    if outputs == 1:
        return [_listed(given)]
    if given is None:
        return [None] * outputs
    if len(given) != outputs or not all(isinstance(one, list) for one in given):
        raise InvalidArgument(
            f"class_values: got {shown(list(given))}; allowed: an array of {outputs} lists, one for "
            "each output, of which shorter ones end with NULLs"
        )
    return [_listed(_without_padding(one)) for one in given]


def _without_padding(values: list[Any]) -> list[Any] | None:
    kept = list(values)
    while kept and kept[-1] is None:
        kept.pop()
    return kept or None


def _sizes(shape: Sequence[int | None]) -> tuple[int, ...]:
    """A shape of rows; a model whose sizes are open was refused when it was loaded."""
    return tuple(size or 0 for size in shape)


def _class_values(given: Sequence[Any] | None, shape: tuple[int, ...]) -> tuple[str | None, ...]:
    """The classes in the order of the outputs; empty where the outputs are values."""
    units = shape[0] if len(shape) == 1 else 0
    values = _listed(given)
    if values is None:
        return tuple(map(str, range(units))) if units > 1 else ()
    allowed = max(2, units) if units else 0
    if len(values) != allowed:
        raise InvalidArgument(
            f"class_values: got {len(values)} values; allowed: "
            + (f"{allowed}, for a model with outputs of shape {shape}" if allowed else "NULL")
        )
    known = [value for value in values if value is not None]
    if twice := sorted({value for value in known if known.count(value) > 1}):
        raise InvalidArgument(f"class_values: got {twice[0]!r} twice; allowed: each class once")
    return tuple(values)


def _listed(given: Sequence[Any] | None) -> list[str | None] | None:
    """A list of one list is that list: so the classes of each of several targets are written."""
    if given is None:
        return None
    values = list(given)
    if len(values) == 1 and isinstance(values[0], list):
        values = list(values[0])
    if not all(value is None or isinstance(value, str) for value in values):
        raise WrongObjectType(
            "class_values: got an array of several lists; allowed: one list",
            hint="ARRAY['first', 'second'] is one list",
        )
    return values
