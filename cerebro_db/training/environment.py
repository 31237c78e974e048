"""TensorFlow in this process: imported late, with a fixed number of threads."""

from __future__ import annotations

import gc
import logging
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cerebro_db.errors import InvalidArgument, RunFailed
from cerebro_db.training import devices

_RESET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_CPUINFO = Path("/proc/cpuinfo")
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_MODEL = re.compile(rb"^model name\s*:\s*(.+)$", re.MULTILINE)


def reset_peak() -> None:
    """Reset the peak of memory to what is in use now, where the system can do that."""
    try:
        with _RESET_PEAK.open("wb", buffering=0) as file:
            file.write(b"5")
    except OSError:
        return


def peak_mb() -> int:
    """Most megabytes in use since the last reset; where there is no /proc, since the start."""
    try:
        found = _PEAK.search(_STATUS.read_bytes())
    except OSError:
        found = None
    kilobytes = found[1] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(kilobytes) // 1024


def processor() -> str:
    """The kind of processor, whose instructions decide which kernels compute."""
    try:
        found = _MODEL.search(_CPUINFO.read_bytes())
    except OSError:
        found = None
    return found[1].decode() if found else platform.machine()


_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# Keras and TensorFlow import these where they find them, but need them for nothing that they do then.
_OPTIONAL = ("sklearn", "scipy", "matplotlib", "jax", "IPython", "huggingface_hub", "cv2")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_configured: dict[str, Any] = {}


def preload() -> None:
    """Import TensorFlow for processes that are forked from this one; each configures its own.

    Nothing is computed here, no device is looked for, and no threads of BLAS are started.
    """
    for name in _THREADS:
        os.environ[name] = "1"
    _set_for_import()
    _import_tensorflow()


def versions() -> dict[str, str]:
    """Versions of NumPy, TensorFlow and Keras."""
    _set_for_import()
    _import_tensorflow()
    import keras
    import numpy as np
    import tensorflow as tf

    return {module.__name__: str(module.__version__) for module in (np, tf, keras)}


def configure(threads: int, use_gpus: bool = False, place: int | None = None) -> dict[str, Any]:
    """Import TensorFlow with ``threads`` threads for its kernels and for BLAS.

    Args:
        threads: how many.
        use_gpus: whether to compute on GPUs.
        place: of this process among those that share the GPUs of the host: it takes one of them.
            None for all that there are.

    Returns:
        What belongs in a run's manifest: versions, threads, oneDNN, device.

    Raises:
        InvalidArgument: this process runs TensorFlow with other settings already.
        RunFailed: a GPU was asked for and there is none, or someone else has imported TensorFlow.
    """
    wanted = {"threads": threads, "use_gpus": use_gpus}
    if _configured:
        if {name: _configured[name] for name in wanted} != wanted:
            raise InvalidArgument(
                f"got {wanted} in a worker that runs with {_configured}; "
                "allowed: one setting in the life of a worker"
            )
        return dict(_configured)
    if "tensorflow" in sys.modules and os.environ.get(_ONEDNN) != "1":
        # It has chosen its kernels by then, and others give other bits.
        raise RunFailed("TensorFlow was imported in this process before it was set up")
    set_environment(threads, use_gpus, place)
    facts = _set_up(threads, use_gpus)
    _configured.update(wanted | facts)
    return dict(_configured)


def configured() -> dict[str, Any]:
    """Facts of this process that ``configure`` has returned."""
    return dict(_configured)


def lasting() -> list[Any] | None:
    """Threads and use of GPUs, which hold for the life of this process; None before they are set."""
    return [_configured["threads"], _configured["use_gpus"]] if _configured else None


def configured_threads() -> int | None:
    """The threads that this process computes with; None before TensorFlow was imported."""
    found: int | None = _configured.get("threads")
    return found


def configure_once(threads: int) -> None:
    """Configure TensorFlow unless this process has done so already."""
    if not _configured:
        configure(threads)


def set_environment(threads: int, use_gpus: bool, place: int | None = None) -> None:
    """Set what TensorFlow and BLAS read when they are imported."""
    for name in _THREADS:
        os.environ[name] = str(threads)
    _set_for_import()
    if not use_gpus:
        os.environ[devices.VISIBLE] = "-1"
    elif place is not None:
        devices.choose(place)


def _set_for_import() -> None:
    # Off by default on some processors; 1.5 to 2 times faster convolutions where it is on.
    os.environ[_ONEDNN] = "1"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["KERAS_BACKEND"] = "tensorflow"


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Save a third of the seconds that it takes to import Keras.

    None of what is imported is garbage. And what is optional is not found here, but for others who
    want it later.
    """
    hidden = [name for name in _OPTIONAL if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if collects:
            gc.enable()
        for name in hidden:
            sys.modules.pop(name, None)


def _import_tensorflow() -> None:
    with _quick_imports():
        import keras  # noqa: F401
        import tensorflow  # noqa: F401


def _set_up(threads: int, use_gpus: bool) -> dict[str, Any]:
    _import_tensorflow()
    import keras
    import numpy as np
    import tensorflow as tf

    # Programs are made one by one on purpose; its warnings about that would fill the server's log.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gpus = tf.config.list_physical_devices("GPU") if use_gpus else []
    if use_gpus and not gpus:
        raise RunFailed(
            f"got use_gpus := true; TensorFlow sees no GPU on the server's host {os.uname().nodename}",
            hint="use_gpus := false computes on processors",
        )
    for device in gpus:  # otherwise the first process takes all memory of it
        tf.config.experimental.set_memory_growth(device, True)
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "onednn": True,
        "devices": len(gpus),
        "processor": processor(),
    }
