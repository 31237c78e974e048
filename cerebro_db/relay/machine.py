"""Processors, memory, processes and disks of the machine that the server runs on."""

import os
import resource
from typing import Any, Dict, List, Tuple

_MEMORY = {
    "": ("/sys/fs/cgroup", "memory.max"),  # version 2
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}
_PROCESSES = {
    "": ("/sys/fs/cgroup", "pids.max"),
    "pids": ("/sys/fs/cgroup/pids", "pids.max"),
}


def cores() -> int:
    """The processor cores that this server may use."""
    return len(os.sched_getaffinity(0))


def memory_mb() -> int:
    """Megabytes of the machine, or of the control group that this process is in."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return int(min([pages * size] + _group_limits(_MEMORY))) // 2**20


def processes() -> Tuple[int, Any]:
    """Processes and threads of this user, and how many there may be; None for any number."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        folder = "/proc/" + name
        try:
            if os.stat(folder).st_uid == os.geteuid():
                count += len(os.listdir(folder + "/task"))
        except OSError:  # it has ended
            continue
    limits = _group_limits(_PROCESSES)
    own = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if own != resource.RLIM_INFINITY:
        limits.append(own)
    return count, min(limits) if limits else None


def free_bytes(folder: str) -> int:
    """Room on the disk of a folder for this user; none where there are no more files to be had."""
    found = os.statvfs(folder)
    if found.f_files and not found.f_favail:
        return 0
    return found.f_bavail * found.f_frsize


def _group_limits(files: Dict[str, Tuple[str, str]]) -> List[int]:
    """Limits of this process's control group and of those around it."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in files:
            root, name = files[controllers]
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
