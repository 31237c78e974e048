"""The floor: the same compiled loops in memory, without a database and without hops.

Each process trains whole configurations, the largest first, over the same batches in the same order
as the server, and scores them. States never leave their program, rows never leave memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crew import run_jobs
from benchmarks.meter import Cost
from benchmarks.plan import Job, Plan, partition_file
from benchmarks.server import Server

Handler = Callable[[Job], tuple[int, float]]


def run(server: Server, plan: Plan, processes: int, folder: Path) -> tuple[Cost, dict[int, float]]:
    """Train and score all configurations; returns the accuracy of each."""
    environment = {"OMP_NUM_THREADS": str(plan.threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    arguments = (str(folder), plan.buffers, plan.threads, plan.seed)
    with server.meter.measure() as cost:
        results = run_jobs(prepare, arguments, plan.jobs, processes, environment)
    return cost, dict(results)


def prepare(
    folder: str, buffers: dict[int, dict[str, list[int]]], threads: int, seed: int
) -> Handler:
    """In each process: import TensorFlow, load the rows; returns what trains a configuration."""
    from cerebro_db.training.environment import configure

    configure(threads)
    from cerebro_db.training.programs import Programs, Scorers
    from cerebro_db.training.tasks import Architectures, recipe_of

    partitions = load_partitions(folder, buffers)
    programs, scorers, known = Programs(), Scorers(), Architectures()

    def handle(job: Job) -> tuple[int, float]:
        recipe = recipe_of(json.loads(job.task), known)
        program, _ = programs.get(recipe)
        program.prepare(recipe.compile_params, recipe.fit_params)
        program.load(program.initial_state(recipe, job.initial_seed, None))
        for epoch, key in job.hops:
            hop(program, recipe, partitions[key], seed, epoch, key)
        scorer = scorers.get(recipe)
        scorer.load(program.save(), recipe.compile_params)
        return job.mst_key, _accuracy(job, scorer, partitions, known)

    return handle


def load_partitions(folder: str, buffers: dict[int, dict[str, list[int]]]) -> dict[int, Any]:
    """The partitions as workers keep them, by key."""
    from cerebro_db.training.partitions import Partition
    from cerebro_db.training.tasks import buffers_of

    return {
        key: Partition(
            buffers_of(described),
            np.load(partition_file(folder, key, "x")),
            np.load(partition_file(folder, key, "y")),
        )
        for key, described in buffers.items()
    }


def hop(program: Any, recipe: Any, partition: Any, seed: int, epoch: int, key: int) -> None:
    """Train on a partition, in the order of the server's hop."""
    for rows in pieces(recipe, partition, seed, epoch, key):
        program.train(partition.features[rows], partition.targets[rows])


def pieces(recipe: Any, partition: Any, seed: int, epoch: int, key: int) -> list[Any]:
    """The rows of each call of a program, in the order of the server's hop."""
    from cerebro_db.training.partitions import RowOrder
    from cerebro_db.training.shuffle import salt

    order = RowOrder(seed, epoch, key, salt(seed, epoch, key), shuffle=True).whole(0, partition)
    chunk = recipe.rows_per_call
    return [order[start : start + chunk] for start in range(0, len(order), chunk)]


def _accuracy(job: Job, scorer: Any, partitions: dict[int, Any], known: Any) -> float:
    from cerebro_db.training.scores.scan import combine

    partials = [
        scorer.measure(features, targets).to_json()
        for key in sorted(partitions)
        for features, targets in partitions[key].pieces()
    ]
    task = json.loads(job.task) | {"mst_key": job.mst_key, "partials": partials}
    result = json.loads(combine(json.dumps({"configurations": [task]}), known))
    return float(result[str(job.mst_key)]["metrics"][0])
