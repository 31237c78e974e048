"""The machine of a measurement, and how many of its processors are used."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cerebro_db

_PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "numpy")


def pin(workers: int) -> None:
    """Keep this process, and all that it starts, to as many processors as there are workers."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) > workers:
        os.sched_setaffinity(0, usable[:workers])


def describe(server_version: str) -> dict[str, Any]:
    """Facts for the report."""
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "cores_used": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "versions": {
            "cerebro-db": cerebro_db.__version__,
            "postgresql": server_version,
            "python": platform.python_version(),
            **_packages(),
        },
    }


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except ImportError:  # the other build of TensorFlow
            continue
    return found


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
