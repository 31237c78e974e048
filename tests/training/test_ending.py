"""A process that has TensorFlow ends without destructors."""

from __future__ import annotations

import subprocess
import sys

import pytest


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
