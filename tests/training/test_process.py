"""The peak of memory is that of a hop."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_db.training import process

MB = 2**20


def _used(megabytes: int) -> None:
    """Use so much memory for a moment."""
    assert np.ones(megabytes * MB, np.uint8).all()


def test_peak_of_what_comes_after_a_reset() -> None:
    _used(400)
    before = process.peak_mb()
    process.reset_peak()
    after = process.peak_mb()
    assert after < before - 300
    _used(200)
    assert after + 150 < process.peak_mb() < before - 100


def test_peak_where_the_system_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STATUS", process.Path("/nowhere/status"))
    monkeypatch.setattr(process, "_RESET_PEAK", process.Path("/nowhere/clear_refs"))
    process.reset_peak()
    assert process.peak_mb() > 10
