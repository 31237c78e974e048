"""Plan for the peers: the same configurations, order and compiled loops as in the server."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cerebro_db.configs.architectures.architecture import check_architecture
from cerebro_db.core.spec import Configuration
from cerebro_db.decide.plan import plan_epoch
from cerebro_db.executors.tasks import TaskWriter
from cerebro_db.postgres.dialects.choice import IDENTITY, dialect_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.requests.fitting import FitRequest
from cerebro_db.runs.setup import RunSetup, set_up
from cerebro_db.training.buffers import decode


@dataclass(frozen=True)
class Job:
    """A configuration of the plan.

    Attributes:
        task: JSON of its recipe, as workers in the server get it.
        hops: its epochs and partitions, in order.
        cost: estimated seconds of a hop; the largest is trained first.
    """

    mst_key: int
    task: str
    architecture: str
    learning_rate: float
    batch_size: int
    initial_seed: int
    cost: float
    jit: bool
    hops: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """All configurations, the largest first, and how the packed table lies in a folder.

    Attributes:
        buffers: ids and rows of the buffers of each partition.
        threads: of each process.
        seed: of the run.
    """

    jobs: tuple[Job, ...]
    buffers: dict[int, dict[str, list[int]]]
    threads: int
    seed: int


def make_plan(dsn: str, request: FitRequest, folder: Path) -> Plan:
    """Read a request as the server would; the packed rows are left as files in a folder."""
    session = Session(dsn, "cerebro benchmark")
    try:
        name = session.run(f"SELECT {IDENTITY}")[0][0]
        dialect = dialect_of(session.server_version, name)
        _, setup = set_up(request, session, dialect.training)
        _save_partitions(session, setup.packed, folder)
    finally:
        session.close()
    buffers = {
        partition.partition_key: {
            "ids": [buffer_id for buffer_id, _ in partition.buffers],
            "rows": [rows for _, rows in partition.buffers],
        }
        for partition in setup.packed.partitions
    }
    jobs = sorted(_jobs(setup), key=lambda job: (-job.cost, job.mst_key))
    return Plan(tuple(jobs), buffers, setup.spec.threads, request.seed or 0)


def cores() -> int:
    """Number of processors, as the server counts them."""
    return len(os.sched_getaffinity(0))


def partition_file(folder: str | Path, partition_key: int, name: str) -> Path:
    """File of an array of a partition."""
    return Path(folder) / f"partition-{partition_key}-{name}.npy"


def _jobs(setup: RunSetup) -> list[Job]:
    writer = TaskWriter(setup.tables, setup.targets, setup.spec.seed, run_id=0)
    costs = {c.mst_key: c.hop_seconds for c in setup.configurations}
    keys = [partition.partition_key for partition in setup.packed.partitions]
    seed, epochs = setup.spec.seed, setup.spec.epochs
    hops = [v for epoch in range(1, epochs + 1) for v in plan_epoch(costs, keys, seed, epoch)]
    hops.sort()
    return [
        _job(
            configuration,
            writer.score(configuration),
            tuple((v.epoch, v.partition_key) for v in hops if v.mst_key == configuration.mst_key),
        )
        for configuration in setup.configurations
    ]


def _job(configuration: Configuration, task: str, hops: tuple[tuple[int, int], ...]) -> Job:
    text = configuration.architecture.text
    return Job(
        mst_key=configuration.mst_key,
        task=task,
        architecture=json.dumps(check_architecture(text)),
        learning_rate=configuration.compile_params.optimizer.all_arguments()["learning_rate"],
        batch_size=configuration.fit_params.batch_size,
        initial_seed=configuration.initial_seed,
        cost=configuration.hop_seconds,
        jit=configuration.jit,
        hops=hops,
    )


def _save_partitions(session: Session, packed: PackedTable, folder: Path) -> None:
    for partition in packed.partitions:
        rows = session.run(
            f"SELECT x, x_shape, y, y_shape FROM {packed.relation.name.sql} "
            "WHERE partition_key = %s ORDER BY buffer_id",
            (partition.partition_key,),
        )
        features = np.concatenate([decode(x, shape, np.float32) for x, shape, _, _ in rows])
        labels = np.concatenate([decode(y, shape, np.int32) for _, _, y, shape in rows])
        np.save(partition_file(folder, partition.partition_key, "x"), features)
        np.save(partition_file(folder, partition.partition_key, "y"), labels)
