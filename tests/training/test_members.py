"""Members of a net: the loss of each is trained, and their mean is what predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.nets import DataShape
from cerebro_db.configs.architectures.tabular import TabularNet
from cerebro_db.errors import InvalidArchitecture, InvalidArgument
from cerebro_db.training.partitions import Partition
from tests.training.conftest import CLASSES, FEATURES, Data, order_of
from tests.training.test_equality import EPOCHS, assert_same, one_hot
from tests.training.test_precision import by_hops, weights_of_model

MEMBERS = 4
ONE_HOT = "loss='CategoricalCrossentropy(label_smoothing=0.1)'"
PER_MEMBER = "optimizer='Adam(lr=0.01)',loss_per_member=True"


@pytest.fixture(scope="module")
def tabm() -> str:
    """A net of four members."""
    net = TabularNet("tabm", 8, 2, 0.2, 8, "relu", MEMBERS)
    shape = DataShape("rows", ((FEATURES,),), (CLASSES,), (True,))
    return net.json_for(shape, [[]])


def repeated(targets: np.ndarray) -> np.ndarray:
    return np.repeat(one_hot(targets)[:, None], MEMBERS, axis=1)


def repeated_ids(targets: np.ndarray) -> np.ndarray:
    return np.repeat(targets[:, None], MEMBERS, axis=1)


def plain_members(
    recipe: Any, data: Data, encoded: Callable[[np.ndarray], np.ndarray], weights: Any = None
) -> list[np.ndarray]:
    """Weights after ``train_on_batch`` of a Keras model whose outputs are the members."""
    import keras

    from cerebro_db.training.backends.tensorflow import models

    whole = models.build(recipe.architecture, seed=7)
    members = keras.Model(whole.inputs[0], whole.layers[-1].input)
    optimizer = models.make_optimizer(recipe.compile_params.optimizer, whole)
    members.compile(optimizer=optimizer, loss=models.make_loss(recipe.compile_params.loss))
    size = recipe.fit_params.batch_size
    for epoch in range(1, EPOCHS + 1):
        for place in range(len(data.features)):
            partition = Partition(data.buffers, data.features[place], data.targets[place])
            rows = order_of(5, epoch, place).whole(0, partition)
            for start in range(0, len(rows), size):
                chosen = rows[start : start + size]
                targets = data.targets[place][chosen]
                weight = None if weights is None else weights[targets][:, None]
                members.train_on_batch(
                    data.features[place][chosen], encoded(targets), sample_weight=weight
                )
    return [np.asarray(weight) for weight in whole.get_weights()]


@pytest.mark.parametrize(
    ("loss", "encoded"),
    [(ONE_HOT, repeated), ("loss='sparse_categorical_crossentropy'", repeated_ids)],
)
def test_each_member_is_compared_with_the_target(
    recipe: Callable[..., Any], tabm: str, data: Data, loss: str, encoded: Any
) -> None:
    given = recipe(tabm, f"{loss},{PER_MEMBER}")
    assert_same(weights_of_model(by_hops(given, data)), plain_members(given, data, encoded))


def test_weights_of_classes_weigh_all_members_of_a_row(
    recipe: Callable[..., Any], tabm: str, data: Data
) -> None:
    weights = np.array([1.0, 3.0, 0.5], np.float32)
    given = recipe(
        tabm, f"{ONE_HOT},{PER_MEMBER}", "batch_size=8,class_weight={0: 1.0, 1: 3.0, 2: 0.5}"
    )
    ours = weights_of_model(by_hops(given, data))
    for a, b in zip(ours, plain_members(given, data, repeated, weights), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_mean_of_the_members_predicts(
    recipe: Callable[..., Any], tabm: str, data: Data
) -> None:
    import keras

    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    given = recipe(tabm, f"{ONE_HOT},{PER_MEMBER}")
    scorer = Scorer(given)
    scorer.load(by_hops(given, data), given.compile_params)
    whole = models.build(given.architecture, seed=7)
    whole.set_weights([np.asarray(weight) for weight in scorer.model.get_weights()])
    members = keras.Model(whole.inputs[0], whole.layers[-1].input)(data.features[0]).numpy()
    assert members.shape[1:] == (MEMBERS, CLASSES)
    np.testing.assert_allclose(members.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(
        scorer.predict(data.features[0])[0], members.mean(1), rtol=1e-5, atol=1e-6
    )


def test_without_it_the_mean_is_trained(recipe: Callable[..., Any], tabm: str, data: Data) -> None:
    both = [recipe(tabm, f"{ONE_HOT},{text}") for text in (PER_MEMBER, "optimizer='Adam(lr=0.01)'")]
    ours, theirs = [weights_of_model(by_hops(one, data)) for one in both]
    assert any((a != b).any() for a, b in zip(ours, theirs, strict=True))


def test_a_net_without_members_is_refused(recipe: Callable[..., Any], full_net: str) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    given = recipe(full_net, f"{ONE_HOT},{PER_MEMBER}")
    with pytest.raises(InvalidArchitecture, match=r"loss_per_member, but the output .* by Dense"):
        Scorer(given).check_training(given)


@pytest.mark.parametrize("loss", ["dice", "circle", 'CategoricalCrossentropy(reduction="sum")'])
def test_losses_that_are_no_mean_over_rows_are_refused(
    recipe: Callable[..., Any], tabm: str, loss: str
) -> None:
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    given = recipe(tabm, f"loss='{loss}',{PER_MEMBER}")
    with pytest.raises(InvalidArgument, match="losses that are means over rows"):
        Scorer(given).check_training(given)
