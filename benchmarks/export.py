"""The peer that exports: rows read out of the server once, then Keras' fit in two processes.

Written as a careful user would: binary COPY parsed by NumPy, processes that persist, a thread and a
core each, the largest configurations first; Keras and TensorFlow as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exchange
from benchmarks.crew import run_jobs
from benchmarks.meter import Cost
from benchmarks.plan import Job
from benchmarks.server import Server
from benchmarks.workload import Workload

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


@dataclass(frozen=True)
class Exported:
    """Figures of an export: reading, training, and the accuracy of each configuration."""

    read: Cost
    train: Cost
    accuracies: dict[int, float]


def run(
    server: Server,
    table: str,
    workload: Workload,
    jobs: Sequence[Job],
    processes: int,
    folder: Path,
    onednn: bool = False,
) -> Exported:
    """Read, then train; with ``onednn`` TensorFlow's kernels of that name are switched on."""
    with server.session() as cursor, server.meter.measure() as read:
        features, labels = exchange.read(cursor, table, workload.features.shape[1:])
        np.save(folder / "x.npy", features)
        np.save(folder / "y.npy", labels)
    environment = _ENVIRONMENT | ({"TF_ENABLE_ONEDNN_OPTS": "1"} if onednn else {})
    with server.meter.measure() as train:
        arguments = (str(folder), workload.loss, workload.epochs)
        results = run_jobs(prepare, arguments, jobs, processes, environment)
    return Exported(read, train, dict(results))


def prepare(folder: str, loss: str, epochs: int) -> Callable[[Job], tuple[int, float]]:
    """In each process: import TensorFlow, load the rows; returns what trains a configuration."""
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    features, labels = np.load(f"{folder}/x.npy"), np.load(f"{folder}/y.npy")
    if loss == "categorical_crossentropy":
        labels = keras.utils.to_categorical(labels)
    return lambda job: (job.mst_key, _fit(keras, job, features, labels, loss, epochs))


def _fit(keras: Any, job: Job, features: Any, labels: Any, loss: str, epochs: int) -> float:
    keras.utils.set_random_seed(job.initial_seed)
    model = keras.models.model_from_json(job.architecture)
    optimizer = keras.optimizers.Adam(learning_rate=job.learning_rate)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    history = model.fit(
        features, labels, batch_size=job.batch_size, epochs=epochs, shuffle=True, verbose=0
    )
    return float(history.history["accuracy"][-1])
