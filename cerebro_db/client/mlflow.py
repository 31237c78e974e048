"""A run in MLflow: a parent run, a child for each configuration, the winner as a model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import MissingPackage
from cerebro_db.watching import reading, texts
from cerebro_db.watching.hyperparameters import hyperparameters
from cerebro_db.watching.reading import TRAINING, Measured, RunFacts, Standing
from cerebro_db.watching.statements import statement_of

if TYPE_CHECKING:
    from cerebro_db.client.run import Run

EXPERIMENT = "cerebro"
# What MLflow takes at once, and of one text.
_MOST_METRICS, _MOST_TEXT = 1000, 5000
_ENDS = {
    "finished": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "stopped": "FINISHED",
    "interrupted": "FAILED", "paused": "KILLED",
}  # fmt: skip


def write_run(run: Run, tracking_uri: str | None, experiment: str | None, with_model: bool) -> str:
    """Write a run into MLflow; returns the id of the parent run there.

    Args:
        run: that has ended, or goes on: then as it is now.
        tracking_uri: None for that of MLflow's own settings.
        experiment: its name; made where there is none.
        with_model: whether the winner is logged as a model with a signature.

    Raises:
        MissingPackage: MLflow is not installed.
    """
    mlflow = _mlflow()
    client = mlflow.MlflowClient(tracking_uri)
    source = run.connections
    facts = run.facts
    board = reading.standings(source, facts.run_id)
    measured: dict[int, list[Measured]] = {}
    for each in reading.measures(source, facts.run_id):
        measured.setdefault(each.mst_key, []).append(each)
    experiment_id = _experiment(client, experiment or EXPERIMENT)
    parent = client.create_run(
        experiment_id, start_time=_moment(facts.started or facts.created), run_name=facts.title,
        tags=_tags(facts) | {"cerebro.again": _cut(statement_of(source, facts))},
    ).info.run_id  # fmt: skip
    for one in board:
        child = client.create_run(
            experiment_id, start_time=_moment(facts.started or facts.created),
            run_name=f"configuration {one.mst_key}",
            tags={"mlflow.parentRunId": parent, "cerebro.mst_key": str(one.mst_key),
                  "cerebro.rank": str(one.rank), "cerebro.status": one.status},
        ).info.run_id  # fmt: skip
        _write(client, child, _parameters(one), _metrics(facts, measured.get(one.mst_key, [])))
        client.set_terminated(child, _ENDS.get(one.status, "RUNNING"), _end(facts))
    best = next((one for one in board if one.epoch is not None), None)
    if best is not None:
        results = {name: value for name, value in best.results().items() if math.isfinite(value)}
        last = [(f"best_{name}", value, _end(facts), 0) for name, value in results.items()]
        _write(client, parent, {**_settings_of(facts), "best_mst_key": str(best.mst_key)}, last)
    if with_model and facts.status == "finished" and best is not None:
        _log_model(mlflow, tracking_uri, parent, run.best().keras())
    client.set_terminated(parent, _ENDS.get(facts.status, "RUNNING"), _end(facts))
    return str(parent)


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise MissingPackage(
            "MLflow is not installed", hint="pip install 'cerebro-db[mlflow]'"
        ) from None
    return mlflow


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)


def _write(
    client: Any,
    run_id: str,
    parameters: Mapping[str, str],
    metrics: Sequence[tuple[str, float, int, int]],
) -> None:
    from mlflow.entities import Metric, Param

    client.log_batch(run_id, params=[Param(name, _cut(one)) for name, one in parameters.items()])
    for start in range(0, len(metrics), _MOST_METRICS):
        part = metrics[start : start + _MOST_METRICS]
        client.log_batch(run_id, metrics=[Metric(*one) for one in part])


def _parameters(one: Standing) -> dict[str, str]:
    found = hyperparameters(one.compile_params, one.fit_params, one.model_id)
    texts_of = {name: texts.short(value) for name, value in found.items()}
    return texts_of | {"compile_params": one.compile_params, "fit_params": one.fit_params}


def _metrics(facts: RunFacts, measured: Sequence[Measured]) -> list[tuple[str, float, int, int]]:
    """Name, value, milliseconds and epoch of each result."""
    return list(_each_metric(facts, measured))


def _each_metric(
    facts: RunFacts, measured: Sequence[Measured]
) -> Iterator[tuple[str, float, int, int]]:
    began = _moment(facts.started or facts.created)
    for one in measured:
        prefix = "" if one.dataset == TRAINING else "val_"
        for name, value in one.values().items():
            if math.isfinite(value):
                yield prefix + name, value, began + round(1000 * one.elapsed), one.epoch


def _settings_of(facts: RunFacts) -> dict[str, str]:
    names = (
        "source_table", "validation_table", "model_output_table", "model_selection_table",
        "num_iterations", "seed", "num_partitions", "schedule", "durability",
    )  # fmt: skip
    found = {name: getattr(facts, name) for name in names}
    return {name: str(value) for name, value in found.items() if value is not None}


def _tags(facts: RunFacts) -> dict[str, str]:
    found = {
        "cerebro.run_id": facts.run_id,
        "cerebro.status": facts.status,
        "cerebro.owner": facts.owner,
        "cerebro.version": facts.cerebro_version,
        "cerebro.manifest": json.dumps(dict(facts.manifest), sort_keys=True),
        "mlflow.note.content": facts.description,
    }
    return {name: _cut(str(value)) for name, value in found.items() if value is not None}


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _moment(when: datetime) -> int:
    return round(1000 * when.timestamp())


def _end(facts: RunFacts) -> int:
    return _moment(facts.finished or facts.started or facts.created)


def _log_model(mlflow: Any, tracking_uri: str | None, run_id: str, model: Any) -> None:
    """The winner as a model of MLflow, with the shapes of its inputs and outputs as signature."""
    import mlflow.tensorflow as flavour

    before = mlflow.get_tracking_uri()
    try:
        if tracking_uri is not None:
            mlflow.set_tracking_uri(tracking_uri)
        with mlflow.start_run(run_id=run_id):
            flavour.log_model(model, name="model", signature=_signature(model))
    finally:
        mlflow.set_tracking_uri(before)


def _signature(model: Any) -> Any:
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    def schema(tensors: Sequence[Any]) -> Any:
        is_one = len(tensors) == 1
        return Schema(
            [
                TensorSpec(np.dtype(np.float32), (-1, *one.shape[1:]), None if is_one else one.name)
                for one in tensors
            ]
        )

    return ModelSignature(inputs=schema(model.inputs), outputs=schema(model.outputs))
