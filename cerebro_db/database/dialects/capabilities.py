"""What a server can do, asked of itself: no decision is made by a product's name or version."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

# Of a server whose tables are spread over segments; the same server may run alone, without any. It is
# asked in sessions with any search_path.
HAS_SEGMENTS = (
    "(pg_catalog.to_regclass('pg_catalog.gp_distribution_policy') IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_settings s "
    "WHERE s.name OPERATOR(pg_catalog.=) 'gp_role' AND s.setting OPERATOR(pg_catalog.=) 'utility'))"
)


# A source of one row without columns that are read: an aggregation over it and a table runs in the
# session's own process. Over a table alone, of which each segment has a copy, it may run on one.
HERE = "(SELECT FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) AS here"


@functools.cache
def interrupts_python() -> bool:
    """Whether the server of this process raises KeyboardInterrupt here when it is to stop.

    A backend with that hook must not be asked through its SQL interface, which a process of a
    segment may not use, and where an error of a segment would jump over the frames of Python.
    """
    return hasattr(ctypes.CDLL(None), "cancel_pending_hook")


def ends_process() -> bool:
    """Whether the server has told this process to end, not only its statement.

    Where it raises KeyboardInterrupt it does so for both.
    """
    program = ctypes.CDLL(None)
    if not interrupts_python() or not hasattr(program, "ProcDiePending"):
        return False
    return bool(ctypes.c_bool.in_dll(program, "ProcDiePending").value)


class _Identity(ctypes.Structure):
    """How a server with segments knows itself."""

    _fields_ = (("dbid", ctypes.c_int32), ("segment", ctypes.c_int32))


@functools.cache
def segment_of_process() -> int | None:
    """The number of the segment that this process serves; None in any other process."""
    try:
        identity = _Identity.in_dll(ctypes.CDLL(None), "GpIdentity")
    except ValueError:
        return None
    return int(identity.segment) if identity.segment >= 0 else None


def statement_began() -> int:
    """When the client's statement began; another number for each of them."""
    tells = ctypes.PyDLL(None).GetCurrentStatementStartTimestamp
    tells.restype = ctypes.c_int64
    return int(tells())


def reads_error_attributes(plpy: Any) -> bool:
    """Whether the server takes SQLSTATE, hint and detail from the attributes of any ``plpy.Error``.

    Older ones take them only from the tuple that their SPI leaves in its own errors.
    """
    return hasattr(plpy, "commit")


def packed_sqlstate(sqlstate: str) -> int:
    """An SQLSTATE as the server keeps it: six bits a character."""
    return sum(((ord(character) - 48) & 0x3F) << 6 * n for n, character in enumerate(sqlstate))


def unpacked_sqlstate(number: int) -> str:
    """The SQLSTATE that a number of the server stands for."""
    return "".join(chr((number >> 6 * n & 0x3F) + 48) for n in range(5))
