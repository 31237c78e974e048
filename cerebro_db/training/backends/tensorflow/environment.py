"""TensorFlow in this process: how it is imported and set up, and the GPUs that it sees."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cerebro_db.errors import RunFailed

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# Keras and TensorFlow import these where they find them, but need them for nothing that they do then.
_OPTIONAL = ("sklearn", "scipy", "matplotlib", "jax", "IPython", "huggingface_hub", "cv2")


def set_for_import() -> None:
    """Set what TensorFlow and Keras read when they are imported."""
    # Off by default on some processors; 1.5 to 2 times faster convolutions where it is on.
    os.environ[_ONEDNN] = "1"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["KERAS_BACKEND"] = "tensorflow"


def refuse_imported() -> None:
    """Refuse a TensorFlow that was imported without these settings: it has chosen its kernels by then.

    Raises:
        RunFailed: it was; other kernels give other bits.
    """
    if "tensorflow" in sys.modules and os.environ.get(_ONEDNN) != "1":
        raise RunFailed("TensorFlow was imported in this process before it was set up")


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


def import_tensorflow() -> None:
    """Import TensorFlow and Keras."""
    with _quick_imports():
        import keras  # noqa: F401
        import tensorflow  # noqa: F401


def set_up(threads: int, use_gpus: bool) -> dict[str, Any]:
    """Import TensorFlow and set it up; versions, oneDNN and devices."""
    import_tensorflow()
    import keras
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
        "onednn": True,
        "devices": len(gpus),
    }


def versions() -> dict[str, str]:
    """Versions of TensorFlow and Keras."""
    set_for_import()
    import_tensorflow()
    import keras
    import tensorflow as tf

    return {module.__name__: str(module.__version__) for module in (tf, keras)}


def report_devices() -> None:
    """Write the GPUs that TensorFlow sees, a line each, as JSON."""
    import tensorflow as tf

    lines = []
    for number, device in enumerate(tf.config.list_physical_devices("GPU")):
        details = tf.config.experimental.get_device_details(device)
        parts = [f"device: {number}", f"name: {details.get('device_name', device.name)}"]
        if "compute_capability" in details:
            parts.append("compute capability: " + ".".join(map(str, details["compute_capability"])))
        lines.append(", ".join(parts))
    sys.stdout.write("\n" + json.dumps(lines) + "\n")
