"""Images through convolutions: few costly steps."""

from __future__ import annotations

from benchmarks.architectures import cnn
from benchmarks.workload import Workload
from benchmarks.workloads.digits import CLASSES, ROWS, SHAPE, images


def workload(scale: float) -> Workload:
    """Scaled by its rows."""
    features, labels, data = images(max(500, round(ROWS * scale)))
    return Workload(
        name="images",
        features=features,
        labels=labels,
        architectures=(cnn(SHAPE, (32, 64), 128, CLASSES),),
        loss="sparse_categorical_crossentropy",
        learning_rates=(0.0003, 0.001, 0.003),
        batch_sizes=(32, 256),
        epochs=2,
        partitions=2,
        data=data,
    )
