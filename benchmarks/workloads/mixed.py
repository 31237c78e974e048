"""Small and large nets in one grid, on more partitions than workers: hard to keep all busy."""

from __future__ import annotations

from benchmarks.architectures import cnn, mlp
from benchmarks.workload import Workload
from benchmarks.workloads.digits import CLASSES, ROWS, SHAPE, images


def workload(scale: float) -> Workload:
    """Scaled by its rows."""
    features, labels, data = images(max(500, round(ROWS * scale)))
    return Workload(
        name="mixed",
        features=features,
        labels=labels,
        architectures=(
            mlp(SHAPE, 64, classes=CLASSES),
            mlp(SHAPE, 256, 128, classes=CLASSES),
            mlp(SHAPE, 512, 512, classes=CLASSES),
            mlp(SHAPE, 1024, 512, classes=CLASSES),
            cnn(SHAPE, (8,), 32, CLASSES),
            cnn(SHAPE, (16, 32), 64, CLASSES),
        ),
        loss="sparse_categorical_crossentropy",
        learning_rates=(0.0003, 0.001),
        batch_sizes=(32,),
        epochs=3,
        partitions=4,
        data=data,
        in_steps=True,
    )
