"""What the operating system knows of this process: its peak of memory, and how it ends."""

from __future__ import annotations

import ctypes
import functools
import platform
import re
import resource
from pathlib import Path
from typing import Any

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


@functools.cache
def end_at_once() -> None:
    """Have the process end without the destructors of what is loaded.

    A server process that ends has cleaned up when it calls exit(). What would follow are the
    destructors of TensorFlow's libraries, while its threads still work. Of the handlers of exit()
    the newest is the first, and libraries add theirs at any time. So in a server process ours is
    added by one of the server's own handlers, just before that call.
    """
    program = ctypes.CDLL(None)
    on_exit = getattr(program, "on_exit", None)
    if on_exit is None:  # only glibc has it, which also tells the handler the exit code
        return
    on_exit.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    end = ctypes.cast(program._exit, ctypes.c_void_p)
    on_proc_exit = getattr(program, "on_proc_exit", None)
    if on_proc_exit is None:
        on_exit(end, None)
        return
    handler = _HANDLER(lambda code, nothing: on_exit(end, None))
    _handlers.append(handler)  # the server calls it when Python knows nothing of that
    on_proc_exit.argtypes = (_HANDLER, ctypes.c_void_p)
    on_proc_exit.restype = None
    on_proc_exit(handler, None)


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
_handlers: list[Any] = []
