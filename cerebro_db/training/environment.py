"""The process that computes: its threads, its device, its memory; set up once for the framework of its backend."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cerebro_db.errors import InvalidArgument
from cerebro_db.training import backends, devices

_RESET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_CPUINFO = Path("/proc/cpuinfo")
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_FIELD = re.compile(r"^([^\t:\n]+?)\s*:[ \t]*(.*)$", re.MULTILINE)
# Of /proc/cpuinfo. A virtual processor may have a name without a model, and fewer instructions than others of that name.
_DETAILS = ("cpu family", "model", "CPU implementer", "CPU part", "cache size")
_VECTORS = ("fma", "avx", "amx", "asimd", "sve", "sme_", "bf16")


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
    """The processor: its name, model, cache and vector instructions, by which libraries choose their kernels."""
    try:
        text = _CPUINFO.read_text(errors="replace")
    except OSError:
        return platform.machine()
    found: dict[str, str] = dict(_FIELD.findall(text.split("\n\n", 1)[0]))
    details = [f"{name} {found[name]}" for name in _DETAILS if found.get(name)]
    instructions = found.get("flags", found.get("Features", "")).split()
    vectors = sorted(name for name in instructions if name.startswith(_VECTORS))
    return f"{found.get('model name', platform.machine())} ({', '.join([*details, *vectors])})"


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_configured: dict[str, Any] = {}


def preload() -> None:
    """Import the frameworks for processes that are forked from this one; each configures its own.

    Nothing is computed here, no device is looked for, and no threads of BLAS are started.
    """
    for name in _THREADS:
        os.environ[name] = "1"
    for name in backends.NAMES:
        backends.backend(name).set_environment()
        backends.backend(name).preload()


def versions() -> dict[str, str]:
    """Versions of NumPy and of the libraries that compute."""
    found = {"numpy": str(np.__version__)}
    for name in backends.NAMES:
        found |= backends.backend(name).versions()
    return found


def configure(
    threads: int,
    use_gpus: bool = False,
    place: int | None = None,
    framework: str = backends.TENSORFLOW,
) -> dict[str, Any]:
    """Import a framework with ``threads`` threads for its kernels and for BLAS.

    Args:
        threads: how many.
        use_gpus: whether to compute on GPUs.
        place: of this process among those that share the GPUs of the host: it takes one of them.
            None for all that there are.
        framework: name of its backend.

    Returns:
        What belongs in a run's manifest: versions, threads, oneDNN, device.

    Raises:
        InvalidArgument: this process computes with other settings already.
        RunFailed: a GPU was asked for and there is none, or someone else has imported the framework.
    """
    wanted = {"threads": threads, "use_gpus": use_gpus}
    if _configured:
        if {name: _configured[name] for name in wanted} != wanted:
            raise InvalidArgument(
                f"got {wanted} in a worker that runs with {_configured}; "
                "allowed: one setting in the life of a worker"
            )
        return dict(_configured)
    used = backends.backend(framework)
    used.refuse_imported()
    set_environment(threads, use_gpus, place, framework)
    facts = used.set_up(threads, use_gpus) | {
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "processor": processor(),
    }
    _configured.update(wanted | facts)
    return dict(_configured)


def configured() -> dict[str, Any]:
    """Facts of this process that ``configure`` has returned."""
    return dict(_configured)


def lasting() -> list[Any] | None:
    """Threads and use of GPUs, which hold for the life of this process; None before they are set."""
    return [_configured["threads"], _configured["use_gpus"]] if _configured else None


def configured_threads() -> int | None:
    """The threads that this process computes with; None before it was set up."""
    found: int | None = _configured.get("threads")
    return found


def configure_once(threads: int) -> None:
    """Set this process up unless that was done already."""
    if not _configured:
        configure(threads)


def set_environment(
    threads: int, use_gpus: bool, place: int | None = None, framework: str = backends.TENSORFLOW
) -> None:
    """Set what a framework and BLAS read when they are imported."""
    for name in _THREADS:
        os.environ[name] = str(threads)
    backends.backend(framework).set_environment()
    if not use_gpus:
        os.environ[devices.VISIBLE] = "-1"
    elif place is not None:
        devices.choose(place)
