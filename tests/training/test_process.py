"""The peak of memory is that of a hop."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_db.training import environment

MB = 2**20


def _used(megabytes: int) -> None:
    """Use so much memory for a moment."""
    assert np.ones(megabytes * MB, np.uint8).all()


def test_peak_of_what_comes_after_a_reset() -> None:
    _used(400)
    before = environment.peak_mb()
    environment.reset_peak()
    after = environment.peak_mb()
    assert after < before - 300
    _used(200)
    assert after + 150 < environment.peak_mb() < before - 100


def test_peak_where_the_system_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_STATUS", environment.Path("/nowhere/status"))
    monkeypatch.setattr(environment, "_RESET_PEAK", environment.Path("/nowhere/clear_refs"))
    environment.reset_peak()
    assert environment.peak_mb() > 10
