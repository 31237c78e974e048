"""Sample weights, stored beside the targets, train as Keras' sample_weight; scores ignore them."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_db.errors import InvalidData
from cerebro_db.training import buffers
from cerebro_db.training.partitions import Partition
from cerebro_db.training.scores.targets import TargetFacts, plain
from tests.training.conftest import CLASSES, Data, hop, net, order_of, weights_of

CASES = {
    "classes": (TargetFacts("class", CLASSES, (), True), CLASSES, "categorical_crossentropy", ""),
    "class weights too": (
        TargetFacts("class", CLASSES, (), True),
        CLASSES,
        "categorical_crossentropy",
        ",class_weight={0: 2.0, 2: 0.5}",
    ),
    "vectors": (TargetFacts("float", 0, (2,), True), 2, "mse", ""),
    "numbers": (TargetFacts("float", 0, (), True), 1, "mae", ""),
}


def weighted(data, facts):
    """The data with records for targets."""
    generator = np.random.default_rng(3)
    records = np.zeros(data.targets.shape, facts.record)
    if facts.kind == "class":
        records["target"] = data.targets
    else:
        records["target"] = generator.normal(size=records["target"].shape)
    records["weight"] = generator.uniform(0, 3, records.shape)
    data.targets = records
    return data


def by_keras(recipe, data, **fit):
    """Weights after ``model.fit`` over the same batches."""
    from cerebro_db.training.backends.tensorflow import models

    params = recipe.compile_params
    model = models.build(recipe.architecture, seed=7, dropout=params.dropout)
    model.compile(models.make_optimizer(params.optimizer), loss=models.make_loss(params.loss))
    stored = data.targets[0]
    order = order_of(5, 1, 0).whole(0, Partition(data.buffers, data.features[0], stored))
    targets = stored["target"][order]
    model.fit(
        data.features[0][order],
        np.eye(CLASSES, dtype=np.float32)[targets] if recipe.targets.kind == "class" else targets,
        sample_weight=stored["weight"][order]
        * fit.get("of_class", np.ones(CLASSES))[targets if recipe.targets.kind == "class" else 0],
        batch_size=recipe.fit_params.batch_size,
        shuffle=False,
        verbose=0,
    )
    return [np.asarray(weight) for weight in model.get_weights()]


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
@pytest.mark.parametrize("case", CASES)
def test_hops_with_weights_equal_plain_keras(recipe, case, cache_bytes):
    facts, units, loss, more = CASES[case]
    given = recipe(
        net(units=units, activation="softmax" if facts.kind == "class" else "linear"),
        f"loss='{loss}',optimizer='SGD(lr=0.05)'",
        f"batch_size=8{more}",
        facts,
    )
    data = weighted(Data(partitions=1), facts)
    of_class = np.array([2.0, 1.0, 0.5]) if more else np.ones(CLASSES)
    state, _ = hop(given, data, None, cache_bytes=cache_bytes)
    for ours, theirs in zip(
        weights_of(state), by_keras(given, data, of_class=of_class), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_scores_are_of_the_targets_alone(recipe):
    from cerebro_db.training.backends.tensorflow.scoring import Scorer
    from cerebro_db.training.programs import Programs

    facts = CASES["classes"][0]
    given = recipe(net(), targets=facts)
    data = weighted(Data(partitions=1), facts)
    program, _ = Programs().get(given)
    scorer = Scorer(given)
    scorer.load(program.initial_state(given, 7, None), given.compile_params)
    stored = data.targets[0]
    partial = scorer.measure(data.features[0], plain(stored))
    assert partial.rows == len(stored)
    assert np.array_equal(plain(stored["target"]), stored["target"])


def test_bytes_of_targets_with_weights():
    targets = np.array([[1, 2], [3, 4], [5, 6]], "<f4")
    weights = np.array([0.5, 0, 7], "<f4")
    data = buffers.with_weights(targets.tobytes(), weights.tobytes(), 3)
    got = buffers.decode(data, [3, 2], TargetFacts("float", 0, (2,), True).record)
    assert np.array_equal(got["target"], targets)
    assert np.array_equal(got["weight"], weights)
    for bad in (targets[:2], np.array([1, -1, 1], "<f4")[:, np.newaxis]):
        with pytest.raises(InvalidData, match="weight"):
            buffers.with_weights(targets.tobytes(), bad[:, 0].tobytes(), 3)
    with pytest.raises(InvalidData, match="takes 36"):
        buffers.decode(data[:-1], [3, 2], TargetFacts("float", 0, (2,), True).record)
