"""Mixed precision, and optimizers that hold back what they end with: by hops as in one ``model.fit``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cerebro_db.training.partitions import Partition
from tests.training.conftest import CLASSES, FEATURES, Data, hop, order_of
from tests.training.test_equality import EPOCHS, assert_same, one_hot

LOSS = "loss='categorical_crossentropy'"


@pytest.fixture(autouse=True)
def float32_afterwards() -> Iterator[None]:
    """The tests set Keras' policy for all that is made."""
    import keras

    yield
    keras.config.set_dtype_policy("float32")


def small_net(last: str | None = None) -> Any:
    """A net as a user writes it: its layers follow the policy that is set."""
    import keras

    layers = keras.layers
    rows = keras.Input((FEATURES,))
    hidden = layers.BatchNormalization()(layers.Dense(8, activation="relu", name="wide")(rows))
    hidden = layers.Dropout(0.3)(hidden)
    return keras.Model(rows, layers.Dense(CLASSES, activation="softmax", dtype=last)(hidden))


def in_one_fit(model: Any, recipe: Any, data: Data, optimizer: Any = None) -> list[np.ndarray]:
    """Weights after one ``model.fit`` over the batches of all hops."""
    import keras

    from cerebro_db.training.backends.tensorflow import models

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return len(batches)

        def __getitem__(self, index: int) -> Any:
            return batches[index]

    batches, size = [], recipe.fit_params.batch_size
    for epoch in range(1, EPOCHS + 1):
        for partition in range(len(data.features)):
            whole = Partition(data.buffers, data.features[partition], data.targets[partition])
            rows = order_of(5, epoch, partition).whole(0, whole)
            for start in range(0, len(rows), size):
                chosen = rows[start : start + size]
                pair = (data.features[partition], one_hot(data.targets[partition]))
                batches.append(tuple(part[chosen] for part in pair))
    optimizer = optimizer or models.make_optimizer(recipe.compile_params.optimizer, model)
    model.compile(optimizer=optimizer, loss=models.make_loss(recipe.compile_params.loss))
    model.fit(Batches(), epochs=1, shuffle=False, verbose=0)
    return [np.asarray(weight) for weight in model.get_weights()]


def by_hops(recipe: Any, data: Data, **options: Any) -> dict[str, np.ndarray]:
    """The state after the same by hops."""
    from cerebro_db.training.programs import Programs
    from cerebro_db.training.state import from_bytes

    state = None
    for epoch in range(1, EPOCHS + 1):
        programs = Programs()  # as after a crash: nothing but the state goes on
        for partition in range(len(data.features)):
            given = {"epoch": epoch, "partition": partition, "programs": programs, **options}
            state, _ = hop(recipe, data, state, **given)
    assert state is not None
    return from_bytes(state)


def weights_of_model(state: dict[str, np.ndarray]) -> list[np.ndarray]:
    from cerebro_db.training.state import of_model

    return [array for name, array in of_model(state).items() if name.startswith("weights/")]


def seeded(make: Callable[[], Any]) -> Any:
    """A model with the initial weights of the hops."""
    import random

    random.seed(7)
    np.random.seed(7)
    return make()


AVERAGED = [
    "Adam(lr=0.01,use_ema=True,ema_momentum=0.9)",
    "SGD(lr=0.05,momentum=0.9,use_ema=True,gradient_accumulation_steps=2,ema_overwrite_frequency=3)",
    'MultiOptimizer(OptimizerMap(SGD(), {".*/kernel": Adam(0.01, use_ema=True, ema_momentum=0.9)}))',
]
SEVERAL = 'MultiOptimizer(OptimizerMap(Adam(0.01), {".*/kernel": SGD(0.05, momentum=0.9)}))'


@pytest.mark.parametrize("optimizer", AVERAGED)
def test_averages_of_weights_are_those_of_one_fit(
    recipe: Callable[..., Any], full_net: str, data: Data, optimizer: str
) -> None:
    from cerebro_db.training.backends.tensorflow import models
    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    given = recipe(full_net, f"{LOSS},optimizer='{optimizer}'")
    state = by_hops(given, data)
    plain = models.build(given.architecture, seed=7)
    theirs = in_one_fit(plain, given, data)
    assert_same(weights_of_model(state), theirs)
    raw = [array for name, array in state.items() if name.startswith("weights/")]
    assert any((a != b).any() for a, b in zip(raw, theirs, strict=True))
    scorer = Scorer(given)
    scorer.load(state, given.compile_params)
    found = scorer.predict(data.features[0])[0]
    np.testing.assert_allclose(found, plain(data.features[0]).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("brought", "optimizer"),
    [(False, "Adam(lr=0.01)"), (True, "Adam(lr=0.01)"), (True, SEVERAL)],
)
def test_a_policy_gives_what_keras_gives_with_it(
    recipe: Callable[..., Any], data: Data, brought: bool, optimizer: str
) -> None:
    """As a parameter; and of an architecture that was made under one, its last layer in float32.

    In float16 some gradients are too large at first: the scale is halved, their steps are left out.
    """
    import keras

    from cerebro_db.training.backends.tensorflow.scoring import Scorer

    policy, last = ("mixed_float16", "float32") if brought else ("mixed_bfloat16", None)
    text, more = small_net().to_json(), f",metrics=['top_2_accuracy'],dtype_policy='{policy}'"
    keras.config.set_dtype_policy(policy)
    plain = seeded(lambda: small_net(last))
    if brought:
        text, more = plain.to_json(), ",metrics=['top_2_accuracy']"
    given = recipe(text, f"{LOSS},optimizer='{optimizer}'{more}")
    trained = in_one_fit(plain, given, data)
    keras.config.set_dtype_policy("float32")
    state = by_hops(given, data)
    assert_same(weights_of_model(state), trained)
    assert all(array.dtype == np.float32 for array in weights_of_model(state))
    scales = [float(array) for name, array in state.items() if name.endswith("/scale")]
    if brought:
        assert scales == [float(plain.optimizer.dynamic_scale.numpy())] != [2.0**15]
    scorer = Scorer(given)
    scorer.load(state, given.compile_params)
    found = scorer.predict(data.features[0])[0]
    assert found.dtype == np.float32
    # Keras' own graph: on some processors TensorFlow rounds once there where it rounds twice outside.
    theirs = plain.predict(data.features[0], batch_size=len(data.features[0]), verbose=0)
    np.testing.assert_array_equal(found, theirs.astype(np.float32))
    partial = scorer.measure(data.features[0], data.targets[0])
    assert 0 < partial.loss_sum / partial.rows < 10
