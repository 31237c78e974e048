"""No network for a process that computes: a filter of its system calls, which nothing in it can lift.

A namespace without a network would do the same, but needs user namespaces, which many containers and
distributions refuse, and must be entered before it is known whether the process uses a GPU.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from typing import NamedTuple

from cerebro_db.errors import TrainerBound

_NO_NEW_PRIVILEGES = 38
_SET_FILTER = 1
# For all threads; and no slower for speculation, which is nothing that sockets depend on.
_FLAGS = 1 | 4
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets of what the kernel shows to a filter
_IO_URING = 425  # on all architectures; it opens sockets of its own
_OTHER_CALLS = 0x40000000  # numbers of x86-64 with 32-bit pointers begin here


class _Machine(NamedTuple):
    """Numbers of an architecture.

    Attributes:
        audit: by which the kernel knows it.
        seccomp, socket: of these system calls.
    """

    audit: int
    seccomp: int
    socket: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 317, 41),
    "aarch64": _Machine(0xC00000B7, 277, 198),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


_refused: bool = False


def is_refused() -> bool:
    """True if this process has no network any more."""
    return _refused


def require() -> None:
    """Make sure of a network.

    Raises:
        TrainerBound: this process has none any more.
    """
    if _refused:
        raise TrainerBound("trainer_network")


def refuse() -> bool:
    """Let this process open no sockets from now on but Unix sockets; whether the system can do that."""
    global _refused
    machine = _MACHINES.get(platform.machine())
    if _refused or machine is None:
        return _refused
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(machine)
    text = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(text))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    number = ctypes.c_long(machine.seccomp)
    _refused = not libc.syscall(number, _SET_FILTER, _FLAGS, ctypes.byref(program))
    return _refused


def _filter(machine: _Machine) -> bytes:
    """Instructions of the filter: each has places to go on with, counted from the next one."""
    return b"".join(
        struct.pack("=HBBI", *one)
        for one in (
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 0, 7, machine.audit),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 5, 0, _OTHER_CALLS),
            (_EQUAL, 4, 0, _IO_URING),
            (_EQUAL, 0, 2, machine.socket),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUAL, 0, 1, socket.AF_UNIX),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERROR | errno.EACCES),
        )
    )
