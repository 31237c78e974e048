"""Facts of the operating system about this process: its processor, and its peak of memory."""

from __future__ import annotations

import platform
import re
import resource
from pathlib import Path

_RESET_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
_CPUINFO = Path("/proc/cpuinfo")
_PEAK = re.compile(rb"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_MODEL = re.compile(rb"^model name\s*:\s*(.+)$", re.MULTILINE)


def reset_peak() -> None:
    """Let the peak of memory start again from what is in use now, where the system can do that."""
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
