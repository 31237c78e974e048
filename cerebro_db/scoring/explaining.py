"""Importance of columns for a trained model: how much worse it becomes when a column says nothing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.functions.callbacks import is_minimised
from cerebro_db.configs.functions.metrics import MetricSpec
from cerebro_db.configs.grids.outputs import metric_names
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import is_custom
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.registered import Origin, named_models, origin_of
from cerebro_db.models.trained import ModelTable, TrainedModel
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import IMPORTANCES
from cerebro_db.postgres.tables.outputs import Outputs, replaced
from cerebro_db.requests.explaining import ExplainRequest
from cerebro_db.scoring.evaluation import ScoringJob, resolved, test_rows
from cerebro_db.scoring.prediction_models import LOSS
from cerebro_db.scoring.user_columns import UserColumn, user_columns

# Passes over the rows, each with one column permuted once.
MOST_PASSES = 20_000
_COLUMNS = (
    "column_name text",
    "importance double precision",
    "deviation double precision",
    "rank integer",
    "measure text",
    "baseline double precision",
    "mst_key integer",
)


class Measure(NamedTuple):
    """Measure that is compared with and without a column.

    Attributes:
        name: ``loss``, or the label of a metric.
        place: among the values of a pass.
        sign: 1 where a worse model has a greater value, else -1.
    """

    name: str
    place: int
    sign: int


class Importance(NamedTuple):
    """The importance of a column: the mean over the repeats and its deviation, None of one repeat."""

    name: str
    mean: float
    deviation: float | None


def explain(host: JobHost, request: ExplainRequest) -> None:
    """Write the importance of each column of a model into a new table.

    Args:
        host: of the call; gets notices of fewer workers.
        request: what to explain.

    Raises:
        InvalidArgument: there are several models and none is named, or no such metric.
    """
    with control_session(host.pool, host.search_path) as control:
        table = named_models(control, request.model_table)
        key = chosen_key(table, request.mst_key)
        found, models, outputs = resolved(control, table, request, IMPORTANCES, (key,))
        measure = _measure(models[0], request.metric)
        columns = user_columns(table)
        study = _study(request, columns, measure)
        with test_rows(host, control, table, request, found) as test:
            job = ScoringJob(host, table, test, models, {}, study)
            result = job.run(control, bool(request.use_gpus))[key]
        baseline = _value(measure, [result["loss"], *result["metrics"]])
        rows = _ranked(columns, result["study"], measure, baseline)
        with transaction(control), replaced(control, outputs):
            _write(control, outputs, rows, (measure.name, baseline, key), origin_of(table))


def chosen_key(table: ModelTable, mst_key: int | None) -> int:
    """The key of the model that is named, or of the only one."""
    if mst_key is None:
        return table.only_key()
    table.check_key(mst_key)
    return mst_key


def _study(
    request: ExplainRequest, columns: Sequence[UserColumn], measure: Measure
) -> Mapping[str, Any]:
    if len(columns) * request.repeats > MOST_PASSES:
        raise InvalidArgument(
            f"repeats: got {request.repeats} for {len(columns)} columns; allowed: up to "
            f"{MOST_PASSES // len(columns)}, as each column is permuted so many times"
        )
    return {
        "kind": "importance",
        "columns": [one.task() for one in columns],
        "repeats": request.repeats,
        "seed": request.seed,
        "metrics": measure.place > 0,
    }


def _measure(model: TrainedModel, name: str | None) -> Measure:
    """The loss or the metric that is measured; by default the first metric."""
    specs = [metric for output in model.outputs for metric in output.metrics]
    labels = metric_names(model.outputs)
    if name is None:
        known = [place for place, one in enumerate(specs) if not is_custom(one.name)]
        name = labels[known[0]] if known else LOSS
    if name == LOSS:
        return Measure(LOSS, 0, 1)
    if name not in labels:
        raise InvalidArgument(
            f"metric: got {shown(name)}; allowed: {', '.join(map(repr, [LOSS, *labels]))}, which the model "
            "was compiled with",
            hint=nearest(name, [LOSS, *labels]),
        )
    place = labels.index(name)
    return Measure(name, place + 1, _sign(specs[place], name) if place < len(specs) else 1)


def _sign(spec: MetricSpec, name: str) -> int:
    if is_custom(spec.name):
        raise InvalidArgument(
            f"metric: got {name!r}, a registered function of which nobody knows whether more is better; allowed: "
            "'loss' and the metrics of Keras"
        )
    return 1 if is_minimised(spec.name) else -1


def _value(measure: Measure, values: Sequence[float]) -> float:
    return float(values[measure.place])


def _ranked(
    columns: Sequence[UserColumn], passes: Sequence[Any], measure: Measure, baseline: float
) -> list[Importance]:
    """The columns, the most important one first."""
    found = []
    for column, repeats in zip(columns, passes, strict=True):
        worse = [measure.sign * (_value(measure, values) - baseline) for values in repeats]
        deviation = statistics.stdev(worse) if len(worse) > 1 else None
        found.append(Importance(column.name, statistics.fmean(worse), deviation))
    return sorted(found, key=lambda one: (one.mean != one.mean, -one.mean))


def _write(
    session: Session,
    outputs: Outputs,
    rows: Sequence[Importance],
    common: tuple[str, float, int],
    origin: Origin,
) -> None:
    measure, baseline, key = common
    output = outputs.table()
    columns = ", ".join((*_COLUMNS, *origin.columns))
    session.run(f"CREATE TABLE {output.sql} ({columns}); {IMPORTANCES.comment(output)}")
    session.run(
        f"INSERT INTO {output.sql} SELECT u.name, u.mean, u.deviation, u.rank, %s, %s, %s"
        f"{', %s' * len(origin.values)} FROM unnest(%s::text[], %s::double precision[], "
        "%s::double precision[], %s::integer[]) AS u(name, mean, deviation, rank)",
        [
            *(measure, baseline, origin.key(key), *origin.values),
            *map(list, zip(*rows, strict=True)),
            list(range(1, len(rows) + 1)),
        ],
    )
