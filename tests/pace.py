"""Limits of time in tests are those of a quiet machine like the one they were written on, stretched for others."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from cerebro_db.relay.machine import cores

# Of a quiet machine: so many seconds of processor time for the work below.
_REFERENCE = 0.15
_ROUNDS = 200_000


def stretched(seconds: float) -> float:
    """So many seconds of a quiet machine, here and now.

    The load is looked at anew in each call: whoever waits in a loop asks again.
    """
    return seconds * max(1.0, slowness() * max(1.0, load()))


def load() -> float:
    """Processes that want a core, for each core, in the last minute."""
    return os.getloadavg()[0] / cores()


@functools.cache
def slowness() -> float:
    """Processor time of a piece of work against that of the machine for which limits were written; once a session."""
    began = time.process_time()
    digest = b""
    for _ in range(_ROUNDS):
        digest = hashlib.sha256(digest).digest()
    return (time.process_time() - began) / _REFERENCE


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true value of ``found``, asked again and again.

    Args:
        found: what is asked.
        seconds: of a quiet machine, after which it is a failure.
    """
    began = time.monotonic()
    while not (value := found()):
        assert time.monotonic() - began < stretched(seconds), f"not within {seconds} s"
        time.sleep(0.02)
    return value


def joined(thread: threading.Thread, seconds: float = 60) -> None:
    """Wait for the end of a thread.

    Args:
        thread: has begun.
        seconds: of a quiet machine, after which it is a failure.
    """
    until(lambda: thread.join(0.02) or not thread.is_alive(), seconds)
