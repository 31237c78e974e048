"""Processors, memory, processes and disks of the machine that the server runs on."""

import ctypes
import os
import resource
from typing import Any, Iterator, List, Tuple

# Where files of the system are looked for.
_ROOT = "/"
_GROUPS = "sys/fs/cgroup"
# Parameters of the GNU C library's allocator (mallopt(3)), and bytes for them: the largest threshold
# that it takes, and more than a few buffers of a packed table.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_THRESHOLD, _MOST_KEPT = 32 * 2**20, 128 * 2**20


def cores() -> int:
    """Processor cores that this process may use: by its affinity, and by the quotas of its control groups.

    A quota of one and a half is two: one core alone would leave time unused.
    """
    return max(1, min([len(os.sched_getaffinity(0))] + list(_quotas())))


def keep_freed_memory() -> None:
    """Have the allocator keep freed memory for later use.

    Buffers of a packed table are megabytes each. By default each of them is mapped anew, and its pages are
    cleared anew, which takes as long as copying it. Other C libraries than GNU's are left as they are.
    """
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        adjust(_TRIM_THRESHOLD, _MOST_KEPT)


def give_back_freed_memory() -> None:
    """Give the system the memory that this process has freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def memory_mb() -> int:
    """Megabytes of the machine, or of the control group that this process is in."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return (
        int(min([pages * size] + _limits("memory", "memory.max", "memory.limit_in_bytes"))) // 2**20
    )


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
    limits = _limits("pids", "pids.max")
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


def _quotas() -> Iterator[int]:
    """Cores of each control group that has a quota of processor time, rounded up."""
    for folder in _groups("cpu"):
        both = _read(folder, "cpu.max").split() or [  # version 2
            _read(folder, "cpu.cfs_quota_us"),
            _read(folder, "cpu.cfs_period_us"),
        ]
        if len(both) == 2 and all(map(str.isdigit, both)) and int(both[1]):
            yield -(-int(both[0]) // int(both[1]))


def _limits(controller: str, *names: str) -> List[int]:
    """Numbers in the files of these names, as versions 1 and 2 of control groups call them."""
    texts = [_read(folder, name) for folder in _groups(controller) for name in names]
    return [int(text) for text in texts if text.isdigit()]


def _groups(controller: str) -> Iterator[str]:
    """Folders of this process's control group and of those around it, of either version."""
    for line in _read("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [_GROUPS]
        elif controller in controllers.split(","):
            roots = [os.path.join(_GROUPS, name) for name in sorted({controllers, controller})]
        else:
            continue
        folder = path.strip("/")
        while True:
            for root in roots:
                yield os.path.join(root, folder)
            if not folder:
                break
            folder = os.path.dirname(folder)


def _read(*path: str) -> str:
    try:
        with open(os.path.join(_ROOT, *path), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
