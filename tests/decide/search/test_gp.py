"""The method gp, which needs PyTorch: Optuna's Gaussian processes compute with it."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from decide.search.courses import Course, by_rate, spec

from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.methods import METHODS
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import MissingPackage

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed: pip install 'cerebro-db[gp]'",
)


def search(seed: int = 0, **more: Any) -> SearchSpec:
    return spec("gp", num_configs=14, num_iterations=2, num_startup=6, seed=seed, **more)


@needs_torch
def test_speed_does_not_show() -> None:
    first = Course(search(concurrency=3)).run()
    assert len(first.state.tracks) == 14
    for order in (1, 2):
        assert Course(search(concurrency=3), order=order).run().decided == first.decided
    again = Course(search(concurrency=3), limit=9).run()
    assert again.resume().decided == first.decided


@needs_torch
def test_it_finds_what_chance_does_not() -> None:
    def best(method: str, seed: int) -> float:
        params = {"num_startup": 6} if method == "gp" else {}
        asked = spec(method, num_configs=14, num_iterations=2, seed=seed, concurrency=1, **params)
        tracks = Course(asked).run().state.tracks.values()
        return min(by_rate(track, 2)["loss"] for track in tracks)

    assert sum(best("gp", seed) < best("random", seed) for seed in range(5)) >= 4


def test_without_it_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="needs the package torch") as caught:
        METHODS["gp"].check_space(search(), Explorer(search().space))
    assert "pip install 'cerebro-db[gp]'" in (caught.value.hint or "")
