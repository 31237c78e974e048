"""Task of a target: classes or a number, with the loss and the metric of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cerebro_db.columns.values import Column, Values
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType

CLASSES, NUMBER = "classes", "number"
LEAST_ROWS = 20
# Whole numbers of more values are a number; of more classes a net learns nothing from so few rows each.
_MOST_WHOLE, _MOST_CLASSES, _LEAST_SHARE = 20, 10_000, 5
_CAST = "cast it in a view, and name that: SELECT {0}::text AS {0} ..."


class Metric(NamedTuple):
    """A metric by which models are compared.

    Attributes:
        keras: its name in compile parameters; None for the loss.
        label: of results.
        is_maximised: whether more is better.
        task: for which it is.
    """

    keras: str | None
    label: str
    is_maximised: bool
    task: str | None = None


METRICS = {
    "accuracy": Metric("accuracy", "accuracy", True, CLASSES),
    "auc": Metric("auc", "auc", True, CLASSES),
    "loss": Metric(None, "loss", False),
    "rmse": Metric("RootMeanSquaredError", "root_mean_squared_error", False, NUMBER),
    "mae": Metric("MeanAbsoluteError", "mean_absolute_error", False, NUMBER),
    "r2": Metric("R2Score", "r2_score", True, NUMBER),
}


@dataclass(frozen=True)
class TargetFacts:
    """Facts of a target.

    Attributes:
        column: of the table.
        table: its name, for messages.
        rows: of the table.
        known: rows that have a target.
        distinct: different values.
        numeric_texts: texts that are numbers.
    """

    column: Column
    table: str
    rows: int
    known: int
    distinct: int
    numeric_texts: int = 0


@dataclass(frozen=True)
class Task:
    """Task of a model.

    Attributes:
        kind: ``classes`` or ``number``.
        classes: how many; 0 of a number.
        reason: why, for people.
        metric: by which models are compared.
        loss: of the training.
        metrics: of all results, the first one that models are compared by.
    """

    kind: str
    classes: int
    reason: str
    metric: Metric
    loss: str
    metrics: tuple[str, ...]

    @property
    def objective(self) -> str:
        """The objective of a search."""
        return f"val_{self.metric.label}"


def task_of(facts: TargetFacts, wanted: str | None, metric: str | None) -> Task:
    """The task of a target.

    Args:
        facts: of it.
        wanted: by the caller; None where type and values decide.
        metric: by the caller; None for the usual one.

    Raises:
        InvalidArgument, InvalidData, WrongObjectType: nothing can be learned of it, or not that.
    """
    _check_rows(facts)
    kind, reason = _kind_of(facts, wanted)
    name = metric or _usual_metric(kind, facts.distinct)
    chosen = METRICS[name]
    if chosen.task not in (None, kind):
        allowed = ", ".join(
            repr(one) for one, known in METRICS.items() if known.task in (None, kind)
        )
        raise InvalidArgument(
            f"metric: got {name!r}, and the target {shown(facts.column.name)} is taken for "
            f"{_words(kind)}; allowed: {allowed}"
        )
    listed = ["auc", "accuracy"] if kind == CLASSES else ["RootMeanSquaredError", "R2Score"]
    if kind == CLASSES and facts.distinct > 2:
        listed = ["accuracy"]
    metrics = list(dict.fromkeys([*([chosen.keras] if chosen.keras else []), *listed]))
    loss = "sparse_categorical_crossentropy" if kind == CLASSES else "mse"
    classes = facts.distinct if kind == CLASSES else 0
    return Task(kind, classes, reason, chosen, loss, tuple(metrics))


def _usual_metric(kind: str, classes: int) -> str:
    if kind == NUMBER:
        return "rmse"
    return "auc" if classes == 2 else "accuracy"


def _words(kind: str) -> str:
    return "a number" if kind == NUMBER else "classes"


def _check_rows(facts: TargetFacts) -> None:
    """Refuse a table of which nothing can be learned."""
    name = facts.column.name
    if facts.rows == 0:
        raise InvalidData(
            f"source_table: {facts.table} has no rows; allowed: {LEAST_ROWS} or more",
            hint="commit the rows before the call, which works in sessions of its own",
        )
    if facts.known < LEAST_ROWS:
        raise InvalidData(
            f"source_table: {facts.table} has {facts.known} rows whose {shown(name)} is not NULL; allowed: "
            f"{LEAST_ROWS} or more",
            hint="a part of them is held back for validation",
        )
    if facts.distinct == 1:
        raise InvalidData(
            f"target: {shown(name)} has the same value in all {facts.known} rows; allowed: two values or more",
            hint="a view may add rows that have another one",
        )


def _kind_of(facts: TargetFacts, wanted: str | None) -> tuple[str, str]:
    column, values = facts.column, facts.column.values
    if values is Values.TIME:
        raise WrongObjectType(
            f"target: {shown(column.name)} is of type {column.type}; allowed: numbers, booleans, text and the like",
            hint="a view may have the seconds: SELECT extract(epoch FROM ...)",
        )
    if values is None:
        raise WrongObjectType(
            f"target: {shown(column.name)} is of type {column.type}; allowed: numbers, booleans, text and the like",
            hint="cerebro.cerebro_pack takes arrays",
        )
    if values is Values.NUMBER:
        return _kind_of_number(facts, wanted)
    if wanted == NUMBER:
        raise InvalidArgument(
            f"task: got 'number', and {shown(column.name)} is of type {column.type}; allowed: 'classes'",
            hint="cast it in a view, and name that",
        )
    _check_labels(facts)
    return CLASSES, f"a column of type {column.type} with {facts.distinct} values"


def _kind_of_number(facts: TargetFacts, wanted: str | None) -> tuple[str, str]:
    column = facts.column
    if wanted == CLASSES and not column.is_whole:
        raise InvalidArgument(
            f"task: got 'classes', and {shown(column.name)} is of type {column.type}; allowed: 'number', or a "
            "column of whole numbers, text or the like",
            hint=_CAST.format(column.name),
        )
    if wanted == CLASSES:
        _check_labels(facts)
    if wanted is not None:
        return wanted, "as the call says"
    few = facts.distinct <= _MOST_WHOLE and facts.distinct * _LEAST_SHARE <= facts.known
    if column.is_whole and few:
        return CLASSES, f"whole numbers with {facts.distinct} values"
    kind = "whole numbers" if column.is_whole else f"a column of type {column.type}"
    return NUMBER, f"{kind} with {facts.distinct} values"


def _check_labels(facts: TargetFacts) -> None:
    """Refuse values that are no classes."""
    name, distinct = facts.column.name, facts.distinct
    if 0 < facts.numeric_texts < facts.known and distinct > _MOST_WHOLE:
        raise InvalidData(
            f"target: {shown(name)} has numbers in {facts.numeric_texts} of {facts.known} rows, and other text in "
            "the rest; allowed: numbers, or classes",
            hint="a view may turn the numbers into a column of numbers, with NULL for the rest",
        )
    if facts.numeric_texts == facts.known and distinct > _MOST_WHOLE:
        raise InvalidData(
            f"target: {shown(name)} is of type {facts.column.type}, and all its {distinct} values are numbers; "
            "allowed: a column of numbers, or classes",
            hint=f"cast it in a view, and name that: SELECT {name}::double precision AS {name} ...",
        )
    if distinct == facts.known or distinct > _MOST_CLASSES:
        rows = "another value in each row" if distinct == facts.known else f"{distinct} values"
        raise InvalidData(
            f"target: {shown(name)} has {rows}; allowed: up to {_MOST_CLASSES} classes, each with "
            "rows to learn from",
            hint="name the column that is to be predicted, or group its values in a view",
        )
