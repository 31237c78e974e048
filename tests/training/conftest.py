"""Fixtures of the tests that train without a database: TensorFlow with one thread, a tiny net."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.configs.frameworks import check_architecture, framework_of
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.training.folds import Fold
from cerebro_db.training.partitions import Buffers, RowOrder
from cerebro_db.training.scores.targets import TargetFacts
from cerebro_db.training.shuffle import salt

FEATURES, CLASSES = 6, 3
SOFTMAX = "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"


@pytest.fixture(scope="session", autouse=True)
def tensorflow_for_all(tensorflow: None) -> None:
    """Every test here trains in this process."""


def net(
    *layers: Any, units: int = CLASSES, activation: str = "softmax", features: int = FEATURES
) -> str:
    """The JSON of a small sequential model with these layers in its middle."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((features,)),
            keras.layers.Dense(8, activation="relu"),
            *layers,
            keras.layers.Dense(units, activation=activation),
        ]
    )
    return str(model.to_json())


@pytest.fixture
def full_net() -> str:
    """A net with batch normalisation and dropout."""
    import keras

    return net(keras.layers.BatchNormalization(), keras.layers.Dropout(0.3))


@pytest.fixture
def recipe() -> Callable[..., Any]:
    """Makes recipes from an architecture's JSON and parameter texts."""
    from cerebro_db.training.recipe import Recipe

    def make(
        architecture: str,
        compile_params: str = SOFTMAX,
        fit_params: str = "batch_size=8",
        targets: TargetFacts | None = None,
        *,
        jit: bool = False,
        steps_per_call: int = 3,
    ) -> Recipe:
        config = check_architecture(architecture)
        return Recipe(
            config,
            fingerprint(config),
            framework_of(config).compile_params(compile_params),
            parse_fit_params(fit_params),
            targets or TargetFacts("class", CLASSES, ()),
            jit,
            steps_per_call,
        )

    return make


class Data:
    """Partitions of random rows, in buffers."""

    def __init__(self, rows: Sequence[int] = (20, 17), partitions: int = 2, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        count = sum(rows)
        self.buffers = Buffers(tuple(range(len(rows))), tuple(rows))
        self.features = generator.normal(size=(partitions, count, FEATURES)).astype(np.float32)
        self.targets = generator.integers(0, CLASSES, (partitions, count)).astype(np.int32)

    def pieces(self, partition: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Features and targets of each buffer."""
        ends = np.cumsum(self.buffers.rows)
        starts = [end - rows for end, rows in zip(ends, self.buffers.rows, strict=True)]
        return [
            (self.features[partition, a:b], self.targets[partition, a:b])
            for a, b in zip(starts, ends, strict=True)
        ]


@pytest.fixture
def data() -> Data:
    """Two partitions of 37 rows in two buffers."""
    return Data()


def order_of(seed: int, epoch: int, partition: int, *, shuffle: bool = True) -> RowOrder:
    """The order of a hop."""
    return RowOrder(seed, epoch, partition, salt(seed, epoch, partition), shuffle)


def hop(
    recipe: Any,
    data: Data,
    state: bytes | None,
    *,
    epoch: int = 1,
    partition: int = 0,
    programs: Any = None,
    cache_bytes: int = 2**20,
    tick: Callable[[], None] = lambda: None,
    fold: Fold | None = None,
) -> tuple[bytes, Any]:
    """One hop over a partition, its buffers fed in the order of the hop."""
    from cerebro_db.training.hop import Hop, HopTask
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Programs

    order = replace(order_of(5, epoch, partition, shuffle=recipe.fit_params.shuffle), fold=fold)
    task = HopTask(recipe, order, data.buffers, (1, "training", partition), 7, state is None)
    hop = Hop(task, state, None, programs or Programs(), PartitionCache(cache_bytes), tick)
    pieces = data.pieces(partition)
    for subepoch in range(recipe.fit_params.epochs):
        for buffer_id in order.buffers(subepoch, data.buffers.ids):
            hop.feed(subepoch, buffer_id, *pieces[buffer_id])
    state, (report,) = hop.finish()
    return state, report


def weights_of(state: bytes) -> list[np.ndarray]:
    """The weights in a state."""
    from cerebro_db.training.state import from_bytes

    return [array for name, array in from_bytes(state).items() if name.startswith("weights/")]
