"""How TensorFlow is set up: first of all, or not at all."""

from __future__ import annotations

import subprocess
import sys


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_tensorflow_that_someone_else_imported_is_refused() -> None:
    program = (
        "import os, sys, types\n"
        "os.environ.pop('TF_ENABLE_ONEDNN_OPTS', None)\n"
        "from cerebro_db.training.environment import configure\n"
        "assert 'tensorflow' not in sys.modules\n"
        "sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "configure(threads=1)\n"
    )
    done = run(program)
    assert "RunFailed: TensorFlow was imported in this process before it was set up" in done.stderr


def test_what_is_optional_is_not_imported_with_keras_but_can_be_later() -> None:
    program = (
        "import gc, sys\n"
        "from cerebro_db.training.environment import configure\n"
        "configure(threads=1)\n"
        "assert 'keras' in sys.modules\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 10_000\n"
        "assert not {name.partition('.')[0] for name in sys.modules} & {'sklearn', 'scipy'}\n"
        "import scipy.sparse, sklearn\n"
        "print(scipy.__name__, sklearn.__name__)\n"
    )
    done = run(program)
    assert done.stdout == "scipy sklearn\n", done.stderr
