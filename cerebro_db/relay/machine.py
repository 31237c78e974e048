"""Processors and memory of the machine that the server runs on."""

import os
from typing import List

_GROUPS = {
    "": ("/sys/fs/cgroup", "memory.max"),  # version 2
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def cores() -> int:
    """The processor cores that this server may use."""
    return len(os.sched_getaffinity(0))


def memory_mb() -> int:
    """Megabytes of the machine, or of the control group that this process is in."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return int(min([pages * size] + _group_limits())) // 2**20


def _group_limits() -> List[int]:
    """Limits in bytes of this process's control group and of those around it."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in _GROUPS:
            root, name = _GROUPS[controllers]
            folder = path.strip("/")
            while True:
                text = _read(os.path.join(root, folder, name))
                if text.isdigit():
                    found.append(int(text))
                if not folder:
                    break
                folder = os.path.dirname(folder)
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
