"""A run in MLflow: a parent run, a child for each configuration, the winner as a model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import MissingPackage
from cerebro_db.watching import reading, texts
from cerebro_db.watching.hyperparameters import hyperparameters
from cerebro_db.watching.reading import Measured, RunFacts, Standing
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
        MissingPackage: MLflow is not installed, or the winner is to be logged and TensorFlow is not.
    """
    mlflow = _mlflow(with_model=with_model)
    client = mlflow.MlflowClient(tracking_uri)
    source = run.connections
    facts = run.facts
    board = reading.standings(source, facts.run_id)
    measured: dict[int, list[Measured]] = {}
    for each in reading.measures(source, facts.run_id):
        measured.setdefault(each.mst_key, []).append(each)
    experiment_id = _experiment(client, experiment or EXPERIMENT)
    began = _moment(facts.started or facts.created)
    parent = client.create_run(
        experiment_id, start_time=began, run_name=facts.title,
        tags=_tags(facts) | {"cerebro.again": _cut(statement_of(source, facts))},
    ).info.run_id  # fmt: skip
    with _ended(client, parent, _ENDS.get(facts.status, "RUNNING"), _end(facts)):
        for one in board:
            child = client.create_run(
                experiment_id, start_time=began, run_name=f"configuration {one.mst_key}",
                tags={"mlflow.parentRunId": parent, "cerebro.mst_key": str(one.mst_key),
                      "cerebro.rank": str(one.rank), "cerebro.status": one.status},
            ).info.run_id  # fmt: skip
            with _ended(client, child, _ENDS.get(one.status, "RUNNING"), _end(facts)):
                metrics = _metrics(began, measured.get(one.mst_key, []))
                _write(client, child, _parameters(one), metrics)
        best = next((one for one in board if one.epoch is not None), None)
        if best is not None:
            results = {name: one for name, one in best.results().items() if math.isfinite(one)}
            last = [(f"best_{name}", value, _end(facts), 0) for name, value in results.items()]
            _write(client, parent, {**_settings_of(facts), "best_mst_key": str(best.mst_key)}, last)
        if with_model and facts.status == "finished" and best is not None:
            _log_model(mlflow, tracking_uri, parent, run.best().keras())
    return str(parent)


@contextmanager
def _ended(client: Any, run_id: str, status: str, when: int) -> Iterator[None]:
    """End a run of MLflow after it was written: as failed where it could not be."""
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the error tells what is the matter
            client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id, status, when)


def _mlflow(*, with_model: bool) -> Any:
    """The package, before anything is written with it."""
    try:
        import mlflow
    except ImportError:
        raise MissingPackage(
            "MLflow is not installed", hint="pip install 'cerebro-db[mlflow]'"
        ) from None
    if with_model and find_spec("tensorflow") is None:
        raise MissingPackage(
            "MLflow logs the winner with TensorFlow, which is not installed",
            hint="pip install 'cerebro-db[cpu]'; without the model: --no-model, or with_model=False",
        )
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
    found = hyperparameters(one)
    texts_of = {name: texts.short(value) for name, value in found.items()}
    return texts_of | {"compile_params": one.compile_params, "fit_params": one.fit_params}


def _metrics(began: int, measured: Sequence[Measured]) -> list[tuple[str, float, int, int]]:
    """Name, value, milliseconds and epoch of each finite result."""
    return [
        (name, value, began + round(1000 * one.elapsed), one.epoch)
        for one in measured
        for name, value in one.results().items()
        if math.isfinite(value)
    ]


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
