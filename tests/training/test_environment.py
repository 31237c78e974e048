"""How TensorFlow is set up: first of all, or not at all."""

from __future__ import annotations

import subprocess
import sys


def test_a_tensorflow_that_someone_else_imported_is_refused() -> None:
    program = (
        "import os, sys, types\n"
        "os.environ.pop('TF_ENABLE_ONEDNN_OPTS', None)\n"
        "from cerebro_db.training.environment import configure\n"
        "assert 'tensorflow' not in sys.modules\n"
        "sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "configure(threads=1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "RunFailed: TensorFlow was imported in this process before it was set up" in done.stderr
