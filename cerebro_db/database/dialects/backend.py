"""Facts that a backend knows of itself, asked without its SQL interface.

Where there are segments each statement of that interface may fail because of a segment, and such an
error jumps over the frames of Python: the next function of the session would find a broken interpreter.
"""

from __future__ import annotations

import ctypes
import select
from typing import Any

from cerebro_db.database.dialects.capabilities import interrupts_python

_UTF8 = 6  # the number of that encoding in the server


def own_facts() -> dict[str, Any] | None:
    """Version, search_path, styles, port, database, role and socket folders; None where SQL is asked."""
    # Unlike CDLL this one keeps the interpreter's lock.
    program = ctypes.PyDLL(None)
    if not interrupts_python() or program.GetDatabaseEncoding() != _UTF8:
        return None
    for name in ("GetConfigOptionByName", "GetUserNameFromId", "get_database_name"):
        getattr(program, name).restype = ctypes.c_char_p
    program.GetUserId.restype = ctypes.c_uint32
    database = ctypes.c_uint32.in_dll(program, "MyDatabaseId")

    def setting(name: str) -> Any:
        return program.GetConfigOptionByName(name.encode(), None, False)

    found = {
        "version": setting("server_version_num"),
        "search_path": setting("search_path"),
        "date_style": setting("DateStyle"),
        "interval_style": setting("IntervalStyle"),
        "time_zone": setting("TimeZone"),
        "port": setting("port"),
        "dbname": program.get_database_name(database),
        "user": program.GetUserNameFromId(ctypes.c_uint32(program.GetUserId()), False),
        "read_only": setting("transaction_read_only"),
        "directories": ctypes.c_char_p.in_dll(program, "Unix_socket_directories").value,
    }
    return {name: (value or b"").decode() for name, value in found.items()}


def client_is_gone() -> bool:
    """Tell whether the other end of this process's connection is gone.

    Servers look for themselves only when they read or write, or where
    ``client_connection_check_interval`` is set, which PostgreSQL has since 14.
    """
    try:
        port = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "MyProcPort").value
    except ValueError:  # no server's process
        return False
    if port is None:  # nor is there a client of a background worker
        return False
    # In all versions the socket is the first field of the structure.
    poller = select.poll()
    poller.register(ctypes.c_int.from_address(port).value, select.POLLRDHUP)
    return bool(poller.poll(0))


def own_temporary_schema() -> str:
    """Name of the schema of temporary tables where there are segments: after the session."""
    program = ctypes.PyDLL(None)
    program.GetConfigOptionByName.restype = ctypes.c_char_p
    number = program.GetConfigOptionByName(b"gp_session_id", None, False)
    return f"pg_temp_{(number or b'').decode()}"
