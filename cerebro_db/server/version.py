"""The version of the package that runs in this backend, and the machine that it runs on."""

from __future__ import annotations

import os
from pathlib import Path

import cerebro_db


def installed() -> str:
    """Returns the package's version, for example ``0.1.0``."""
    return cerebro_db.__version__


def cores() -> int:
    """The processor cores that this server may use."""
    return len(os.sched_getaffinity(0))


def memory_mb() -> int:
    """Megabytes of the machine, or of the control group that this process is in."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return min([pages * size, *_group_limits()]) // 2**20


def _group_limits() -> list[int]:
    """Limits in bytes of this process's control group and of those around it."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers in ("", "memory"):  # version 2, or 1
            root, name = _GROUPS[controllers]
            own = Path(root + path)
            for folder in (own, *own.parents):
                text = _read(folder / name)
                if text.isdigit():
                    found.append(int(text))
    return found


_GROUPS = {
    "": ("/sys/fs/cgroup", "memory.max"),
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
