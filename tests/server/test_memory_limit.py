"""The kernel bounds what a process allocates, and TensorFlow tells of it as an error."""

from __future__ import annotations

import subprocess
import sys

LIMITED = r"""
import sys, types
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import CerebroError
from cerebro_db.server import computing
from cerebro_db.server.memory import limit_memory
from cerebro_db.training.environment import configure

plpy = types.SimpleNamespace(listen=lambda: None, Error=InterruptedError)
assert limit_memory(Settings(max_worker_mb=1100)) == 1100

def work(elements):
    def do(tick):
        configure(threads=1)
        import tensorflow as tf
        return float(tf.reduce_sum(tf.ones([elements])))
    return do

for elements in (2**20, 2**30):
    try:
        sys.stdout.write(f"{computing.compute(plpy, work(elements)):.0f}\n")
    except CerebroError as error:
        sys.stdout.write(f"{error.sqlstate} {error.message}\n")
"""


def test_a_tensor_beyond_the_limit_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True
    )
    first, refused = done.stdout.splitlines()
    assert first == str(2**20)
    assert (
        refused
        == "54000 got no memory for a tensor of shape [1073741824]; allowed: 1100 MB a worker"
    )
