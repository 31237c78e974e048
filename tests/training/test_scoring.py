"""Scores equal those of Keras, add up over partitions, and treat configurations apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.training.partitions import PartitionCache
from cerebro_db.training.scores.targets import TargetFacts
from tests.training.conftest import CLASSES, Data, hop, net

METRICS = (
    "metrics=['accuracy','AUC','TopKCategoricalAccuracy(k=2)','F1Score',"
    "'Precision(thresholds=[0.2,0.5])','AUC(thresholds=[0.1,0.4],name=\"few\")']"
)


def scan_of(
    recipes: dict[int, Any], states: dict[int, bytes], data: Data, cache_bytes: int
) -> list[dict[str, Any]]:
    """Partial sums of each partition, as workers return them."""
    from cerebro_db.training.programs import Scorers
    from cerebro_db.training.scores.scan import Scan
    from cerebro_db.training.tasks import Architectures, ScanTask

    scorers, cache, found = Scorers(), PartitionCache(cache_bytes), []
    facts = next(iter(recipes.values())).targets
    for partition in range(len(data.features)):
        task = ScanTask(data.buffers, (1, "validation", partition), facts)
        scan = Scan(task, scorers, cache, lambda: None)
        for mst_key, recipe in recipes.items():
            scan.add(task_text(recipe, mst_key), states[mst_key], Architectures())
        for buffer_id, piece in enumerate(data.pieces(partition)):
            scan.feed(buffer_id, *piece)
        found.append(json.loads(scan.finish(list)))
    return found


def task_text(recipe: Any, mst_key: int, **more: Any) -> str:
    """A recipe as the JSON of a task."""
    return json.dumps(
        {
            "mst_key": mst_key,
            "architecture": json.dumps(recipe.architecture),
            "architecture_id": recipe.architecture_id,
            "compile_params": recipe.compile_text,
            "fit_params": "batch_size=8",
            "targets": {
                "kind": recipe.targets.kind,
                "num_classes": recipe.targets.num_classes,
                "shape": list(recipe.targets.shape),
            },
            "jit": False,
            "steps_per_call": 3,
            **more,
        }
    )


class Texted:
    """A recipe that remembers its compile parameters as text."""

    def __init__(self, recipe: Any, text: str) -> None:
        self._recipe, self.compile_text = recipe, text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recipe, name)


def combined(recipe: Any, scans: list[dict[str, Any]], mst_key: int) -> dict[str, Any]:
    from cerebro_db.training.scores.scan import combine
    from cerebro_db.training.tasks import Architectures

    partials = [scan["partials"][str(mst_key)] for scan in scans]
    task = json.loads(task_text(recipe, mst_key, partials=partials))
    result: dict[str, Any] = json.loads(
        combine(json.dumps({"configurations": [task]}), Architectures())
    )
    found: dict[str, Any] = result[str(mst_key)]
    return found


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_loss_and_metrics_equal_evaluate_of_keras(
    recipe: Callable[..., Any], full_net: str, data: Data, cache_bytes: int
) -> None:
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.program import Program
    from cerebro_db.training.state import from_bytes

    text = f"loss='categorical_crossentropy',optimizer='Adam',{METRICS},l2=0.01"
    given = Texted(recipe(full_net, text), text)
    state, _ = hop(given._recipe, data, None)
    ours = combined(given, scan_of({3: given}, {3: state}, data, cache_bytes), 3)

    program = Program(given._recipe)
    program.prepare(given.compile_params, given.fit_params)
    program.load(from_bytes(state))
    from cerebro_db.training.backends.tensorflow.scoring import metrics_of

    metrics = [m.metric for m in metrics_of(given.outputs, given.targets, (CLASSES,))]
    program.model.compile(loss=models.make_loss(given.compile_params.loss), metrics=metrics)
    rows = data.features.reshape(-1, data.features.shape[-1])
    labels = np.eye(CLASSES, dtype=np.float32)[data.targets.reshape(-1)]
    theirs = program.model.evaluate(rows, labels, verbose=0, return_dict=True)
    assert ours["loss"] == pytest.approx(theirs.pop("loss"), rel=1e-5)
    assert ours["names"][0] == "accuracy"
    values = [float(np.mean(theirs[metric.name])) for metric in metrics]
    assert ours["metrics"] == pytest.approx(values, rel=1e-4)


def test_streaming_and_memory_give_the_same_numbers(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    text = f"loss='categorical_crossentropy',optimizer='Adam',{METRICS}"
    given = Texted(recipe(full_net, text), text)
    state, _ = hop(given._recipe, data, None)
    streamed = scan_of({1: given}, {1: state}, data, 0)
    assert streamed == scan_of({1: given}, {1: state}, data, 2**20)


def test_a_broken_state_is_reported_and_others_are_scored(
    recipe: Callable[..., Any], full_net: str, data: Data
) -> None:
    text = "loss='categorical_crossentropy',optimizer='Adam',metrics=['accuracy']"
    given = Texted(recipe(full_net, text), text)
    state, _ = hop(given._recipe, data, None)
    scans = scan_of({1: given, 2: given}, {1: state, 2: b"nonsense"}, data, 0)
    assert "no state" in scans[0]["errors"]["2"]
    assert combined(given, scans, 1)["loss"] > 0


def test_regression_metrics(recipe: Callable[..., Any], data: Data) -> None:
    data.targets = np.random.default_rng(1).normal(size=data.targets.shape).astype(np.float32)
    text = "loss='mse',optimizer='Adam',metrics=['mae','R2Score']"
    facts = TargetFacts("float", 0, ())
    given = Texted(recipe(net(units=1, activation="linear"), text, targets=facts), text)
    state, _ = hop(given._recipe, data, None)
    result = combined(given, scan_of({1: given}, {1: state}, data, 0), 1)
    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.state import from_bytes

    scorer = Scorer(given._recipe)
    scorer.load(from_bytes(state), given.compile_params)
    rows = data.features.reshape(-1, data.features.shape[-1])
    errors = scorer.predict(rows)[0][:, 0] - data.targets.reshape(-1)
    assert result["loss"] == pytest.approx(float(np.mean(errors**2)), rel=1e-5)
    assert result["metrics"][0] == pytest.approx(float(np.mean(np.abs(errors))), rel=1e-5)
    r2 = 1 - np.sum(errors**2) / np.sum((data.targets - data.targets.mean()) ** 2)
    assert result["metrics"][1] == pytest.approx(float(r2), abs=1e-4)
