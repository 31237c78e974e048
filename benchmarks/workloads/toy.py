"""Iris, with the two nets of MADlib's documented example: nothing but overhead."""

from __future__ import annotations

import numpy as np

from benchmarks.architectures import mlp
from benchmarks.workload import Workload

_TRAINING_ROWS = 120


def workload(scale: float) -> Workload:
    """Scaled by its epochs: the rows are few as they are."""
    from sklearn.datasets import load_iris

    features, labels = load_iris(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(features))[:_TRAINING_ROWS]
    return Workload(
        name="toy",
        features=features[chosen].astype(np.float32),
        labels=labels[chosen].astype(np.int32),
        architectures=(mlp((4,), 10, 10, classes=3), mlp((4,), 10, 10, 10, classes=3)),
        loss="categorical_crossentropy",
        learning_rates=(0.001, 0.01, 0.1),
        batch_sizes=(4, 8),
        epochs=max(2, round(10 * scale)),
        partitions=2,
        data="iris, 120 of its 150 rows",
        again=True,
    )
