"""PyTorch in this process: how it is imported and set up, and the GPUs that it sees."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
from typing import Any

from cerebro_db.errors import RunFailed

_COMPILER = "torch._dynamo"
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def set_for_import() -> None:
    """Set what PyTorch reads when it is imported."""
    # By it, products of matrices on GPUs have the same bits each time.
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    # Nothing is compiled by Triton, which is not found by this: its LLVM ends a process that has TensorFlow's.
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]


def import_torch() -> None:
    """Import PyTorch."""
    import torch  # noqa: F401


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keep torch from importing its compiler, which it does for operations without numbers, and does not use then.

    That takes seconds.
    """
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = ModuleType(_COMPILER)
    stand_in.disable = lambda function, *others, **named: function  # type: ignore[attr-defined]
    sys.modules[_COMPILER] = stand_in
    try:
        yield
    finally:
        sys.modules.pop(_COMPILER, None)


def set_up(threads: int, use_gpus: bool) -> dict[str, Any]:
    """Import PyTorch and set it up; its version, what it computes with, and devices."""
    import torch

    warnings.filterwarnings("ignore", module="torch")
    torch.set_num_threads(threads)
    # Whatever has no deterministic form warns, which would fill the server's log.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    if use_gpus:
        raise RunFailed(
            f"got use_gpus := true for a PyTorch model on the host {os.uname().nodename}; allowed: false",
            hint="use_gpus := false computes on processors; models of Keras compute on GPUs, too",
        )
    return {"torch": torch.__version__, "mkldnn": _has_mkldnn(), "devices": 0}


def _has_mkldnn() -> bool:
    import torch

    return bool(torch.backends.mkldnn.is_available())


def versions() -> dict[str, str]:
    """Version of PyTorch, which is not imported for it."""
    return {"torch": version("torch")}


def report_devices() -> None:
    """Write the GPUs that PyTorch sees, a line each, as JSON."""
    import torch

    lines = []
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        capability = f"compute capability: {facts.major}.{facts.minor}"
        lines.append(f"device: {number}, name: {facts.name}, {capability}")
    sys.stdout.write("\n" + json.dumps(lines) + "\n")
