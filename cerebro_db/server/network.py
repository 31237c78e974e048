"""Seccomp filter for processes that compute: no network, or TCP only.

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
_AND = 0x54
_NUMBER, _ARCHITECTURE = 0, 4  # offsets of what the kernel shows to a filter
_FAMILY, _KIND, _PROTOCOL = 16, 24, 32  # of the arguments of that call
_KINDS = 0xF  # of what is sent with them
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


# All networks, TCP, none.
_ANY, _TCP, _NONE = 2, 1, 0
_left: int = _ANY


def is_refused() -> bool:
    """True if this process has no network any more, or TCP only."""
    return _left < _ANY


def require(*, only_tcp: bool = False) -> None:
    """Make sure of a network.

    Raises:
        TrainerBound: this process has none any more.
    """
    if _left < (_TCP if only_tcp else _ANY):
        raise TrainerBound("peer_network" if only_tcp else "trainer_network")


def refuse(*, but_tcp: bool = False) -> bool:
    """Let this process open no sockets from now on but Unix sockets; whether the system can do that.

    Args:
        but_tcp: whether it may open those of TCP as well.
    """
    global _left
    machine, left = _MACHINES.get(platform.machine()), _TCP if but_tcp else _NONE
    if _left <= left or machine is None:
        return is_refused()
    libc = ctypes.CDLL(None, use_errno=True)
    code = _filter(machine, but_tcp=but_tcp)
    text = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(text))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    number = ctypes.c_long(machine.seccomp)
    if not libc.syscall(number, _SET_FILTER, _FLAGS, ctypes.byref(program)):
        _left = left
    return is_refused()


def _filter(machine: _Machine, *, but_tcp: bool) -> bytes:
    """Instructions of the filter: each has places to go on with, counted from the next one."""
    tcp = (
        (_EQUAL, 1, 0, socket.AF_INET),
        (_EQUAL, 0, 6, socket.AF_INET6),
        (_LOAD, 0, 0, _KIND),
        (_AND, 0, 0, _KINDS),
        (_EQUAL, 0, 3, socket.SOCK_STREAM),
        (_LOAD, 0, 0, _PROTOCOL),
        (_EQUAL, 2, 0, 0),
        (_EQUAL, 1, 0, socket.IPPROTO_TCP),
    )
    more = tcp if but_tcp else ()
    skip = len(more)
    return b"".join(
        struct.pack("=HBBI", *one)
        for one in (
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 0, 6 + skip, machine.audit),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 4 + skip, 0, _OTHER_CALLS),
            (_EQUAL, 3 + skip, 0, _IO_URING),
            (_EQUAL, 0, 3 + skip, machine.socket),
            (_LOAD, 0, 0, _FAMILY),
            (_EQUAL, 1 + skip, 0, socket.AF_UNIX),
            *more,
            (_RETURN, 0, 0, _ERROR | errno.EACCES),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
