"""Estimate of a worker's memory: grows with its load, and fits the measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cerebro_db.configs import frameworks
from cerebro_db.configs.architectures.memory import (
    Load,
    check_worker_memory,
    worker_limit_mb,
    worker_memory,
)
from cerebro_db.errors import InvalidArgument

MB = 2**20


def load(parameters: int = 1000, optimizer: str = "Adam", *, jit: bool = False) -> Load:
    return Load((parameters, optimizer), parameters, optimizer, jit, batch_size=8)


@pytest.mark.parametrize(
    ("model", "measured_mb"),
    # Peaks of workers that trained such models, in which TensorFlow itself had 562 MB.
    [(load(10_000_000, "SGD"), 874), (load(50_000_000, "Adam"), 4113)],
)
def test_it_fits_what_was_measured(model: Load, measured_mb: int) -> None:
    estimate = worker_memory([model], 0, 0).total / MB
    # Scoring is counted, too, which was not measured here: 64 MB.
    assert measured_mb <= estimate - 64 < 1.5 * measured_mb


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
    assert text == "TensorFlow 750 MB, data 5 MB, programs 20 MB, states 0 MB, activations 64 MB"


def test_a_worker_holds_the_frameworks_of_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those that a keeper imports, which are there in any case."""
    of_torch = replace(load(), framework="torch")
    monkeypatch.setattr(frameworks, "installed", lambda: ("tensorflow", "torch"))
    both, alone = (worker_memory([one], 0, 0).base // MB for one in (of_torch, load()))
    monkeypatch.setattr(frameworks, "installed", lambda: ("torch",))
    estimate = worker_memory([of_torch], 0, 0)
    assert both == alone + estimate.base // MB == 1200
    assert str(estimate).startswith("PyTorch 450 MB, ")


def test_a_batch_counts_with_all_its_tensors() -> None:
    wide = replace(load(), batch_size=32, row_bytes=16 * MB, largest_bytes=16 * MB, fixed_bytes=MB)
    assert worker_memory([wide], 0, 0).activations == 513 * MB
    # Scoring takes fewer rows at a time, and keeps fewer of their tensors.
    assert worker_memory([replace(wide, batch_size=0)], 0, 0).activations == 65 * MB
    giant = replace(wide, batch_size=0, largest_bytes=1024 * MB)
    assert worker_memory([giant], 0, 0).activations == 4097 * MB


@pytest.mark.parametrize(
    ("setting", "memory_mb", "cores", "limit"),
    [
        (500, 64_000, 8, 500),
        (0, 64_000, 8, 6400),
        (0, 64_000, 64, 2048),  # enough for TensorFlow
        (0, 1_000, 8, 800),
    ],
)
def test_the_limit_comes_from_the_machine(
    setting: int, memory_mb: int, cores: int, limit: int
) -> None:
    assert worker_limit_mb(setting, memory_mb, cores) == limit


def test_what_does_not_fit_is_reported_with_its_parts() -> None:
    estimate = worker_memory([load(10**8)], 0, 0)
    with pytest.raises(
        InvalidArgument, match=r"\d+ MB \(TensorFlow 750 MB, .*allowed: 900 MB"
    ) as no:
        check_worker_memory(estimate, 900, "configurations")
    assert "max_worker_mb" in (no.value.hint or "")
    check_worker_memory(estimate, 10_000, "configurations")
