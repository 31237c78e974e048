"""The peak of memory is that of a hop, and a process ends without destructors."""

from __future__ import annotations

import subprocess
import sys

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


@pytest.mark.parametrize("code", [0, 1, 2])
def test_end(code: int) -> None:
    program = (
        "import ctypes, sys\n"
        "from cerebro_db.training.ending import end_at_once\n"
        "libc = ctypes.CDLL(None)\n"
        "kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)\n"
        "late = kind(lambda status, nothing: print('destructor', flush=True))\n"
        "libc.on_exit(late, None)\n"
        "if sys.argv[1] == 'once': end_at_once()\n"
        f"libc.exit({code})"
    )
    ends = {
        how: subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True)
        for how in ("once", "usual")
    }
    assert (ends["once"].returncode, ends["once"].stdout) == (code, "")
    assert (ends["usual"].returncode, ends["usual"].stdout) == (code, "destructor\n")
