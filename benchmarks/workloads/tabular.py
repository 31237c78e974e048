"""Rows of numbers whose classes a fixed random net decides: many cheap steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.architectures import mlp
from benchmarks.workload import Workload

_ROWS, _FEATURES, _HIDDEN, _CLASSES = 200_000, 64, 32, 10


def workload(scale: float) -> Workload:
    """Scaled by its rows."""
    features, labels = _rows(max(1000, round(_ROWS * scale)))
    return Workload(
        name="tabular",
        features=features,
        labels=labels,
        architectures=(mlp((_FEATURES,), 128, 128, classes=_CLASSES),),
        loss="sparse_categorical_crossentropy",
        learning_rates=(0.0003, 0.001, 0.003),
        batch_sizes=(32, 256),
        epochs=10,
        partitions=2,
        streams=True,
        data="64 normal features, 10 classes from a fixed random net",
    )


def _rows(count: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    generator = np.random.default_rng(64)
    first = generator.normal(size=(_FEATURES, _HIDDEN)) / np.sqrt(_FEATURES)
    second = generator.normal(size=(_HIDDEN, _CLASSES))
    features = generator.normal(size=(count, _FEATURES)).astype(np.float32)
    labels = np.argmax(np.tanh(2 * features @ first) @ second, axis=1)
    return features, labels.astype(np.int32)
