"""Prediction with a model that was trained elsewhere: weights and JSON of an architecture table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.configs.messages import check_range, shown
from cerebro_db.configs.model_outputs import output_names
from cerebro_db.configs.predictions import Answer
from cerebro_db.configs.scaling import check_divisor
from cerebro_db.core.spec import Architecture
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.executors.tasks import input_task, target_task
from cerebro_db.models.architectures import load_architectures
from cerebro_db.models.fit_checks import check_order
from cerebro_db.postgres.control import Notify, control_session, no_notice
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql_prediction import StoredModel
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.relations import CallerPath, Relation, find
from cerebro_db.postgres.sessions import Session, SessionPool
from cerebro_db.postgres.slots import MAX_WORKERS
from cerebro_db.scoring.prediction import PredictionRequest, job_of, resolved
from cerebro_db.scoring.prediction_models import Asked, Member
from cerebro_db.training.targets import TargetFacts

ROLE = "model_arch_table"
TARGET = "dependent_var"
# How it was compiled elsewhere is not known; predicting needs to know what the outputs are only.
_LOSSES = {"float": "mse", "binary": "binary_crossentropy", "class": "categorical_crossentropy"}


@dataclass(frozen=True)
class ByomRequest:
    """The arguments of ``cerebro_predict_byom``, as given; search_path is for the names."""

    model_arch_table: str | None
    model_id: int | None
    test_table: str | None
    id_col: str | None
    independent_varname: str | None
    output_table: str | None
    pred_type: str | float | None = Answer.PROB
    use_gpus: bool | None = False
    class_values: Sequence[Any] | None = None
    normalizing_const: float | None = 1.0
    dependent_count: int | None = 1
    num_workers: int | None = None
    replace: bool | None = False
    search_path: CallerPath | None = None

    @property
    def divisor(self) -> float:
        """The normalizing constant."""
        return 1.0 if self.normalizing_const is None else self.normalizing_const

    @property
    def prediction(self) -> PredictionRequest:
        """Request that it has in common with a prediction of a model of a run."""
        return PredictionRequest(
            None,
            self.test_table,
            self.id_col,
            self.independent_varname,
            self.output_table,
            self.pred_type,
            self.use_gpus,
            num_workers=self.num_workers,
            replace=self.replace,
        )

    def check(self) -> None:
        """Refuse what no table could make right."""
        check_range("num_workers", self.num_workers, 1, MAX_WORKERS)
        if self.model_id is None:
            raise InvalidArgument("model_id: got NULL; allowed: an id of the architecture table")
        check_divisor(self.divisor)


def predict_byom(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: ByomRequest,
    notify: Notify = no_notice,
) -> QualifiedName:
    """Make a table of predictions, or nothing at all; returns its name.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to predict.
        notify: is told of ids that several rows have.

    Raises:
        InvalidArgument: there is no such model, it has no weights, or other classes.
        InvalidData: a row has no id, or features that are no row of the model.
    """
    request.check()
    wanted = request.prediction.wanted
    with control_session(pool, request.search_path) as session:
        table = find(session, request.model_arch_table, ROLE)
        model = _model(session, table, request)
        asked = _asked(table, model, request)
        work = resolved(session, dialect, request.prediction, asked, wanted)
        job_of(pool, dialect, session, notify).run(work)
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


def _asked(table: Relation, model: Architecture, request: ByomRequest) -> Asked:
    check_order(model)
    rows = tuple(map(_sizes, model.facts.input_shapes))
    outputs = tuple(map(_sizes, model.facts.output_shapes))
    output_names(json.loads(model.text))  # refuses outputs without an order
    _check_count(model, len(outputs), request)
    given = _given_values(request.class_values, len(outputs))
    values = tuple(_class_values(*one) for one in zip(given, outputs, strict=True))
    kinds = [_kind(*one) for one in zip(values, outputs, strict=True)]
    first, *more = [_target(*one) for one in zip(values, outputs, strict=True)]
    losses = [f"'{_LOSSES[kind]}'" for kind in kinds]
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
    }
    stored = StoredModel(table.name, "model_id", "model_weights", chunk=None)
    member = Member(task, stored, model.model_id)
    names = [f"{TARGET}_{place}" for place in range(len(outputs))]
    names = names if len(names) > 1 else [TARGET]
    return Asked((member,), tuple(names), targets, values, rows, request.divisor)


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
