"""What a server can do, asked of itself: no decision is made by a product's name or version."""

from __future__ import annotations

import ctypes
import functools

# Of a server whose tables are spread over segments.
HAS_SEGMENTS = "(pg_catalog.to_regclass('pg_catalog.gp_distribution_policy') IS NOT NULL)"


@functools.cache
def interrupts_python() -> bool:
    """Whether the server of this process raises KeyboardInterrupt here when it is to stop.

    A backend with that hook must not be asked through its SQL interface, which a process of a
    segment may not use, and where an error of a segment would jump over the frames of Python.
    """
    return hasattr(ctypes.CDLL(None), "cancel_pending_hook")
