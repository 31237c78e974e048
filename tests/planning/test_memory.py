"""What a worker may need: grows with what it is given, and fits what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_db.planning.memory import Load, worker_memory

MB = 2**20


def load(parameters: int = 1000, optimizer: str = "Adam", *, jit: bool = False) -> Load:
    return Load((parameters, optimizer), parameters, optimizer, jit)


@pytest.mark.parametrize(
    ("model", "measured_mb"),
    # Peaks of workers that trained such models, in which TensorFlow itself had 562 MB.
    [(load(10_000_000, "SGD"), 874), (load(50_000_000, "Adam"), 4113)],
)
def test_it_fits_what_was_measured(model: Load, measured_mb: int) -> None:
    estimate = worker_memory([model], 0, 0).total / MB
    assert measured_mb <= estimate < 1.5 * measured_mb


def test_the_largest_model_counts_and_every_program() -> None:
    one = worker_memory([load(10_000_000)], 0, 0)
    two = worker_memory([load(10_000_000), load(5_000_000)], 0, 0)
    assert two.states == one.states
    assert two.programs == 2 * one.programs
    shared = worker_memory([load(10_000_000), load(10_000_000)], 0, 0)
    assert shared == one
    assert worker_memory([load(jit=True)], 0, 0).programs > one.programs
    averaged = replace(load(10_000_000), averages=True)
    assert worker_memory([averaged], 0, 0).states > one.states


def test_the_cache_holds_no_more_than_there_is() -> None:
    assert worker_memory([load()], 5 * MB, 100 * MB).cache == 5 * MB
    assert worker_memory([load()], 500 * MB, 100 * MB).cache == 100 * MB


def test_it_tells_what_it_is_made_of() -> None:
    text = str(worker_memory([load()], 5 * MB, 100 * MB))
    assert text == "TensorFlow 750 MB, data 5 MB, programs 20 MB, states 0 MB"
