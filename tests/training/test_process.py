"""The peak of memory is that of a hop."""

from __future__ import annotations

from pathlib import Path

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


def test_processors_of_one_name_are_told_apart_by_their_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names of virtual processors say nothing of the vector instructions by which kernels are chosen."""
    core = (
        "processor\t: {}\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Some CPU\n"
        "cache size\t: 512 KB\npower management:\nflags\t\t: fpu smep avx2 {} fma\n\n"
    )
    found = []
    for more in ("avx512f", "sse4_2"):
        file = tmp_path / more
        file.write_text(core.format(0, more) + core.format(1, more))
        monkeypatch.setattr(environment, "_CPUINFO", file)
        found.append(environment.processor())
    facts = "Some CPU (cpu family 6, model 143, cache size 512 KB, "
    assert found == [f"{facts}avx2, avx512f, fma)", f"{facts}avx2, fma)"]
    monkeypatch.setattr(environment, "_CPUINFO", tmp_path / "nowhere")
    assert environment.processor()
