"""The steps themselves: seconds of a warm compiled loop over the rows of one hop."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.crew import run_jobs
from benchmarks.floor import load_partitions, pieces
from benchmarks.plan import Job, Plan

_REPEATS = 30


def measure(plan: Plan, folder: Path) -> dict[int, float]:
    """For each mst_key the median seconds of the steps of one hop, on the first partition."""
    arguments = (str(folder), plan.buffers, plan.threads, plan.seed)
    environment = {"OMP_NUM_THREADS": str(plan.threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return dict(run_jobs(prepare, arguments, plan.jobs, 1, environment))


def prepare(
    folder: str, buffers: dict[int, dict[str, list[int]]], threads: int, seed: int
) -> Callable[[Job], tuple[int, float]]:
    """In the process: import TensorFlow; returns what times a configuration."""
    from cerebro_db.training.environment import configure

    configure(threads)
    from cerebro_db.training.programs import Programs
    from cerebro_db.training.tasks import Architectures, recipe_of

    partitions = load_partitions(folder, buffers)
    programs, known = Programs(), Architectures()

    def handle(job: Job) -> tuple[int, float]:
        recipe = recipe_of(json.loads(job.task), known)
        program, _ = programs.get(recipe)
        program.prepare(recipe.compile_params, recipe.fit_params)
        program.load(program.initial_state(recipe, job.initial_seed, None))
        key = min(partitions)
        calls = [
            (partitions[key].features[rows], partitions[key].targets[rows])
            for rows in pieces(recipe, partitions[key], seed, 1, key)
        ]
        seconds = []
        for _ in range(_REPEATS):
            started = time.perf_counter()
            for features, targets in calls:
                program.train(features, targets)
            seconds.append(time.perf_counter() - started)
        return job.mst_key, statistics.median(seconds)

    return handle
