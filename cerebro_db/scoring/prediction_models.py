"""Models that answer a prediction: one model of a model table, or the best ones together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.columns.encoded import Recorded
from cerebro_db.configs.functions.callbacks import is_minimised
from cerebro_db.configs.grids.outputs import OutputSpec, first_metric
from cerebro_db.configs.names import is_custom
from cerebro_db.errors import InvalidArgument
from cerebro_db.executors.tasks import input_task
from cerebro_db.models.registered import name_of
from cerebro_db.models.trained import ModelTable, load_models, recipe
from cerebro_db.postgres.dialects.statements.sources import StoredModel
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.times import Styles, as_shown
from cerebro_db.training.scores.targets import TargetFacts

LOSS = "loss"


def common_goal(models: Iterable[Sequence[OutputSpec]]) -> str:
    """``max`` or ``min`` of the first metric where all models have the same; else ``loss``.

    A value of one metric says nothing about that of another.
    """
    found = {_compared(outputs) for outputs in models}
    metric, _ = found.pop() if len(found) == 1 else (LOSS, None)
    # Of a registered function nobody knows which way it is better.
    if metric == LOSS or is_custom(metric):
        return LOSS
    return "min" if is_minimised(metric) else "max"


def badness(goal: str, metric: float | None, loss: float | None) -> tuple[bool, float, float]:
    """By this models are sorted, the best first; ``cerebro.leaderboard`` has the same in SQL."""
    last = math.inf
    loss = last if loss is None or math.isnan(loss) else loss
    value = loss if goal == LOSS else metric
    if value is None or math.isnan(value):
        return True, last, loss
    return False, -value if goal == "max" else value, loss


def _compared(outputs: Sequence[OutputSpec]) -> tuple[str, Any]:
    """The class of the first metric, and all else that decides what it measures."""
    metric = first_metric(outputs)
    if metric is None:
        return LOSS, None
    place = next(place for place, output in enumerate(outputs) if output.metrics)
    arguments = {k: v for k, v in metric.all_arguments().items() if k != "name"}
    return metric.name, (place, repr(sorted(arguments.items())))


ClassValues = tuple[tuple[str | None, ...], ...]


def shown_classes(
    session: Session, values: ClassValues, kinds: Sequence[str | None], styles: Styles | None
) -> ClassValues:
    """The class values of each target, those of dates and times as the caller knows them.

    Args:
        session: in no transaction.
        values: as they are kept.
        kinds: SQL names of the types of dates and times among them.
        styles: of the caller's session; None for what is kept.
    """
    if styles is None or not any(kinds):
        return values
    with transaction(session):
        return tuple(
            one if kind is None else as_shown(session, one, kind, styles)
            for one, kind in zip(values, kinds, strict=True)
        )


@dataclass(frozen=True)
class Member:
    """One model.

    Attributes:
        task: what a worker must know of it.
        stored: where its state is.
        key: of it there.
    """

    task: dict[str, Any]
    stored: StoredModel
    key: int


@dataclass(frozen=True)
class Ensemble:
    """Models whose mean is the prediction, and what they have in common.

    Attributes:
        names: of the targets.
        class_values: of each target, in the order of the ids, as text; empty for float targets.
        shapes: of one row of each input.
        divisor: the features are divided by it.
        encoding: how columns or images become features; None where rows have an array.
        class_kinds: as of a table of models.
        models: name by which they are found.
    """

    members: tuple[Member, ...]
    names: tuple[str, ...]
    targets: TargetFacts
    class_values: tuple[tuple[str | None, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    divisor: float
    encoding: Recorded | None = field(default=None, kw_only=True)
    class_kinds: tuple[str | None, ...] = field(default=(), kw_only=True)
    models: str = field(default="", kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the only input, or of the first one."""
        return self.shapes[0]

    def first_task(self, ranks: Sequence[int], columns: Sequence[str], whole: Sequence[int]) -> str:
        """Task of a worker that comes with the first model.

        Args:
            ranks: of each output, how many classes are wanted.
            columns: of each input, the name that messages have; none of a packed table.
            whole: places of the inputs that hold whole numbers only, in whatever type.
        """
        more = {
            "shape": list(self.shape),
            "divisor": self.divisor,
            "ranks": list(ranks),
            "columns": dict(enumerate(columns)),
            "whole": list(whole),
        }
        return json.dumps(self.members[0].task | input_task(self.shapes) | more)


def models_of_table(session: Session, table: ModelTable, keys: Sequence[int]) -> Ensemble:
    """Some models of a model table."""
    models = {model.mst_key: model for model in load_models(session, table, keys)}
    stored = StoredModel(table.states)
    members = (
        Member(recipe(models[key], table) | {"format": "state"}, stored, key) for key in keys
    )
    return Ensemble(
        members=tuple(members),
        names=table.dependent_varnames,
        targets=table.targets,
        class_values=table.class_values,
        shapes=table.input_shapes,
        divisor=table.normalizing_const,
        encoding=table.encoding,
        class_kinds=table.class_kinds,
        models=name_of(table),
    )


def chosen_keys(
    session: Session, table: ModelTable, mst_key: int | None, ensemble: int | None
) -> list[int]:
    """Keys of the models that are wanted: the one that is named, the only one, or the best ones.

    Raises:
        InvalidArgument: there are fewer models, or both are given.
    """
    if ensemble is None:
        if mst_key is not None:
            table.check_key(mst_key)
        return [table.only_key() if mst_key is None else mst_key]
    if mst_key is not None:
        raise InvalidArgument(
            f"mst_key: got {mst_key} with ensemble := {ensemble}; allowed: one of them, as an "
            "ensemble is of the best models"
        )
    if not 1 <= ensemble <= len(table.mst_keys):
        raise InvalidArgument(
            f"ensemble: got {ensemble}; allowed: 1 to {len(table.mst_keys)}, "
            f"the models of {table.relation.name}"
        )
    return best_keys(session, table)[:ensemble]


def best_keys(session: Session, table: ModelTable) -> list[int]:
    """The models of a table, the best first: by the same rule as in the leaderboard."""
    if len(table.mst_keys) == 1:
        return list(table.mst_keys)
    rows = session.run(
        "SELECT i.mst_key::integer, COALESCE("
        "i.validation_metrics_final, i.training_metrics_final)::double precision, COALESCE("
        "i.validation_loss_final, i.training_loss_final)::double precision "
        f"FROM {table.info.name.sql} i WHERE i.mst_key = ANY (%s::integer[])",
        (list(table.mst_keys),),
    )
    goal = _goal(session, table)
    found = {key: badness(goal, metric, loss) for key, metric, loss in rows}
    return sorted(found, key=lambda key: (found[key], key))


def _goal(session: Session, table: ModelTable) -> str:
    """Of the run that made a table, with configurations that failed, of which there is no model."""
    if table.is_for_loss:
        return LOSS
    sql = f"SELECT pg_catalog.count(DISTINCT (i.metrics_type)[1]) FROM {table.info.name.sql} i"
    if session.run(sql)[0][0] > 1:
        return LOSS
    return common_goal(model.outputs for model in load_models(session, table, table.mst_keys))
