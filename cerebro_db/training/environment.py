"""The process that computes: its threads, its device, its memory; each framework is set up once, when it is needed."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cerebro_db.configs import frameworks
from cerebro_db.errors import InvalidArgument
from cerebro_db.training import backends, devices

_RESET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_CPUINFO = Path("/proc/cpuinfo")
_DATA = re.compile(rb"^VmData:\s+(\d+) kB$", re.MULTILINE)
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


def allocated() -> int:
    """Bytes that this process has allocated, as the limit of data counts them; 0 where there is no /proc."""
    try:
        found = _DATA.search(_STATUS.read_bytes())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


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
_set_up: dict[str, dict[str, Any]] = {}


def preload() -> None:
    """Import frameworks for processes that are forked from this one; each configures its own.

    Nothing is computed here, no device is looked for, and no threads of BLAS are started. A framework that is not
    imported here is imported by the trainers that need it.
    """
    for name in _THREADS:
        os.environ[name] = "1"
    for name in frameworks.installed():
        backends.backend(name).set_environment()
    for name in frameworks.installed():
        if frameworks.frameworks()[name].is_preloaded:
            backends.backend(name).preload()


def _numpy_version() -> str:
    """Version of NumPy, which is imported when it is needed: drivers begin without it."""
    import numpy as np

    return str(np.__version__)


def versions() -> dict[str, str]:
    """Versions of NumPy and of the libraries that compute."""
    found = {"numpy": _numpy_version()}
    for name in frameworks.installed():
        found |= backends.backend(name).versions()
    return found


def configure(
    threads: int,
    use_gpus: bool = False,
    place: int | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Import frameworks with ``threads`` threads for their kernels and for BLAS.

    Args:
        threads: how many.
        use_gpus: whether to compute on GPUs.
        place: of this process among those that share the GPUs of the host: it takes one of them.
            None for all that there are.
        names: of the frameworks; None for the default one. Others are imported when they are needed.

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
    else:
        for name in frameworks.installed():
            backends.backend(name).refuse_imported()
        set_environment(threads, use_gpus, place)
        _configured.update(wanted)
    found: dict[str, Any] = {}
    for name in (frameworks.default(),) if names is None else names:
        found |= _facts_of(name)
    _configured.update(
        numpy=_numpy_version(),
        python=".".join(map(str, sys.version_info[:3])),
        processor=processor(),
    )
    return found | _configured


def _facts_of(name: str) -> dict[str, Any]:
    """Facts of a framework, which is imported and set up by its first use in this process."""
    if name not in _set_up:
        frameworks.require_installed(name)
        _set_up[name] = backends.backend(name).set_up(
            _configured["threads"], _configured["use_gpus"]
        )
    return _set_up[name]


def computing(name: str | None = None) -> backends.Backend:
    """The backend of a framework, set up where this process is; the default one without a name.

    Raises:
        MissingLibrary: it is not installed.
    """
    name = frameworks.default() if name is None else name
    if _configured:
        _facts_of(name)
    return backends.backend(name)


def configured(names: Sequence[str] | None = None) -> dict[str, Any]:
    """Facts of this process, and of some frameworks; without names of all that it has set up."""
    found: dict[str, Any] = {}
    for name, facts in _set_up.items():
        if names is None or name in names:
            found |= facts
    return found | _configured


def lasting() -> list[Any] | None:
    """Threads and use of GPUs, which hold for the life of this process; None before they are set."""
    return [_configured["threads"], _configured["use_gpus"]] if _configured else None


def configured_threads() -> int | None:
    """The threads that this process computes with; None before it was set up."""
    found: int | None = _configured.get("threads")
    return found


def configure_once(threads: int) -> None:
    """Set this process up unless that was done already; frameworks are imported when they are needed."""
    if not _configured:
        configure(threads, names=())


def set_environment(threads: int, use_gpus: bool, place: int | None = None) -> None:
    """Set what frameworks and BLAS read when they are imported."""
    for name in _THREADS:
        os.environ[name] = str(threads)
    for name in frameworks.installed():
        backends.backend(name).set_environment()
    if not use_gpus:
        os.environ[devices.VISIBLE] = "-1"
    elif place is not None:
        devices.choose(place)
