"""Reliability of the probabilities of models, and the best thresholds of those of two classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cerebro_db.errors import InvalidArgument
from cerebro_db.models.registered import Origin, named_models, origin_of
from cerebro_db.models.trained import ModelTable
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import RELIABILITIES, THRESHOLDS, Kind
from cerebro_db.postgres.tables.outputs import Outputs, replaced
from cerebro_db.requests.calibrating import ReliabilityRequest, ThresholdRequest
from cerebro_db.scoring.contributions import check_one_output, class_of
from cerebro_db.scoring.evaluation import ScoringJob, resolved, test_rows
from cerebro_db.scoring.prediction_models import shown_classes

_RELIABILITY = (
    "mst_key integer",
    "class_value text",
    "bin integer",
    "lower double precision",
    "upper double precision",
    "num_rows bigint",
    "confidence double precision",
    "accuracy double precision",
    "calibration_error double precision",
)
_THRESHOLD = (
    "mst_key integer",
    "class_value text",
    "threshold double precision",
    "metric text",
    "reached double precision",
    "true_positives bigint",
    "false_positives bigint",
    "false_negatives bigint",
    "true_negatives bigint",
)
_COST, _F1 = "cost", "f1"
# Numbers of a row that finding a threshold needs at once: a probability in double precision, and the truth.
_KEPT = 3


class _Output(NamedTuple):
    """The table that is made, and its columns."""

    kind: Kind
    columns: Sequence[str]


def reliability(host: JobHost, request: ReliabilityRequest) -> None:
    """Write the confidence and the accuracy of each bin into a new table.

    Args:
        host: of the call; gets notices of fewer workers.
        request: what to look at.

    Raises:
        InvalidArgument: the target has no classes, or not the one that is named.
    """

    def study(class_id: int | None) -> Mapping[str, Any]:
        chosen = {} if class_id is None else {"class": class_id}
        return {"kind": "reliability", "bins": request.bins, **chosen}

    def rows(key: int, name: str | None, sums: Any) -> list[list[Any]]:
        shown = name if request.class_value is not None else None
        return [[key, shown, *one] for one in _bins(sums)]

    _write_studied(host, request, study, rows, _Output(RELIABILITIES, _RELIABILITY))


def _bins(sums: Sequence[Sequence[float]]) -> list[list[Any]]:
    """A row for each bin that has rows."""
    bins, total = len(sums[0]), sum(sums[0])
    error = sum(abs(confidence - right) for _, confidence, right in zip(*sums, strict=True)) / total
    return [
        [
            *(place + 1, place / bins, (place + 1) / bins),
            *(round(rows), confidence / rows, right / rows, error),
        ]
        for place, (rows, confidence, right) in enumerate(zip(*sums, strict=True))
        if rows
    ]


def threshold(host: JobHost, request: ThresholdRequest) -> None:
    """Write the best threshold of each model into a new table.

    Args:
        host: of the call; gets notices of fewer workers.
        request: what to look for.

    Raises:
        InvalidArgument: the target has not two classes, or not the one that is named, or there are a metric and costs.
    """
    costs = _costs(request)
    measure = request.metric or (_F1 if costs is None else _COST)
    false_positive, false_negative = costs or (0.0, 0.0)

    def study(class_id: int | None) -> Mapping[str, Any]:
        return {
            "kind": "threshold",
            "class": 1 if class_id is None else class_id,
            "measure": measure,
            "false_positive_cost": false_positive,
            "false_negative_cost": false_negative,
        }

    def rows(key: int, name: str | None, found: Any) -> list[list[Any]]:
        counts = (f"{truth}_{said}" for truth, said in _COUNTS)
        listed = [found[one] for one in counts]
        return [[key, name, found["threshold"], measure, found["value"], *listed]]

    _write_studied(host, request, study, rows, _Output(THRESHOLDS, _THRESHOLD), classes=2)


_COUNTS = (
    ("true", "positives"), ("false", "positives"), ("false", "negatives"), ("true", "negatives"),
)  # fmt: skip


def _costs(request: ThresholdRequest) -> tuple[float, float] | None:
    """Costs of the two errors; None where there are none."""
    given = {
        "false_positive_cost": request.false_positive_cost,
        "false_negative_cost": request.false_negative_cost,
    }
    if set(given.values()) == {None}:
        return None
    if request.metric is not None:
        raise InvalidArgument(
            f"metric: got {request.metric!r} and costs; allowed: one of them, as costs are a metric of their own"
        )
    for name, value in given.items():
        if value is None or not (math.isfinite(value) and value >= 0):
            got = "NULL" if value is None else value
            raise InvalidArgument(
                f"{name}: got {got}; allowed: a number from 0, with the other cost"
            )
    if not any(given.values()):
        raise InvalidArgument(
            "false_positive_cost, false_negative_cost: got 0 and 0; allowed: one that is greater"
        )
    return float(given["false_positive_cost"] or 0), float(given["false_negative_cost"] or 0)


def check_classes(table: ModelTable, classes: int | None = None) -> None:
    """Refuse models that are not of one target of classes, or of another number of them.

    Raises:
        InvalidArgument: they are not.
    """
    check_one_output(table)
    (target,), (name,) = table.targets.each, table.dependent_varnames
    if target.kind != "class":
        raise InvalidArgument(
            f"model_table: {table.relation.name} predicts {name!r}, a float target; allowed: classes"
        )
    if classes is not None and target.num_classes != classes:
        raise InvalidArgument(
            f"model_table: {table.relation.name} predicts {name!r} with {target.num_classes} classes; "
            f"allowed: {classes}"
        )


def _write_studied(
    host: JobHost,
    request: ReliabilityRequest | ThresholdRequest,
    study: Callable[[int | None], Mapping[str, Any]],
    rows: Callable[[int, str | None, Any], list[list[Any]]],
    output: _Output,
    classes: int | None = None,
) -> None:
    """Study models and write what comes of it.

    Args:
        host: of the call.
        request: which models and rows.
        study: of a class.
        rows: of the output: of a model, a class and what was found.
        output: what it is.
        classes: that a model must have; None for any number.
    """
    with control_session(host.pool, host.search_path) as control:
        table = named_models(control, request.model_table)
        check_classes(table, classes)
        kinds, styles = table.class_kinds, host.styles
        (values,) = shown_classes(control, table.class_values, kinds, styles)
        class_id = class_of(request.class_value, values, table)
        found, models, outputs = resolved(control, table, request, output.kind)
        keeps = 0 if classes is None else _KEPT
        with test_rows(host, control, table, request, found) as test:
            job = ScoringJob(host, table, test, models, {}, study(class_id), keeps=keeps)
            results = job.run(control, bool(request.use_gpus))
        origin, name = origin_of(table), values[1 if class_id is None else class_id]
        listed = [
            row
            for key, result in results.items()
            for row in rows(origin.key(key), name, result["study"])
        ]
        with transaction(control), replaced(control, outputs):
            _write(control, outputs, output, listed, origin)


def _write(
    session: Session,
    outputs: Outputs,
    made: _Output,
    rows: Sequence[Sequence[Any]],
    origin: Origin,
) -> None:
    output, columns = outputs.table(), ", ".join((*made.columns, *origin.columns))
    session.run(f"CREATE TABLE {output.sql} ({columns}); {made.kind.comment(output)}")
    for row in rows:
        values = [*row, *origin.values]
        session.run(f"INSERT INTO {output.sql} VALUES ({', '.join(['%s'] * len(values))})", values)
