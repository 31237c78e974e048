"""Interrupts where the server raises them in Python by itself: put off until somebody asks.

A timeout is two signals there, and each becomes a KeyboardInterrupt, in whatever Python is at: the
second one in the middle of what has to be done after the first. So a function that drives others
takes the server's hook away while it runs, and looks whether it shall stop where it can.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cerebro_db.database.dialects.capabilities import ends_process, interrupts_python


class _Deferral:
    """Of this process.

    Attributes:
        hook: of the server, while it is taken away.
        told: whether somebody has heard of the interrupt already.
    """

    hook: int | None = None
    told = False


def put_off() -> None:
    """From now on only ``raise_pending`` tells of interrupts, until ``restored`` is left."""
    if interrupts_python() and _Deferral.hook is None:
        hook = _hook()
        _Deferral.hook, _Deferral.told = hook.value, False
        hook.value = None


@contextmanager
def restored() -> Iterator[None]:
    """What is put off inside comes as before afterwards."""
    before = _Deferral.hook
    try:
        yield
    finally:
        if before is None and _Deferral.hook is not None:
            _hook().value, _Deferral.hook = _Deferral.hook, None


@contextmanager
def held() -> Iterator[None]:
    """Where interrupts are put off: nor does the server act on one by itself inside.

    It does so where it sends a message, and what Python gets to know of that is any error.
    """
    if _Deferral.hook is None:
        yield
        return
    count = _holdoff()
    before = count.value
    count.value = before + 1
    try:
        yield
    finally:
        count.value = before  # which an error of the server has set to zero


def raise_pending() -> None:
    """Where interrupts are put off: raise one that is there, once.

    Raises:
        KeyboardInterrupt: the statement, or the process, shall end.
    """
    if _Deferral.hook is None or _Deferral.told:
        return
    if _is_cancelled() or ends_process():
        _Deferral.told = True
        raise KeyboardInterrupt


def _hook() -> Any:
    return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "cancel_pending_hook")


def _holdoff() -> Any:
    return ctypes.c_int32.in_dll(ctypes.CDLL(None), "InterruptHoldoffCount")


def _is_cancelled() -> bool:
    return bool(ctypes.c_bool.in_dll(ctypes.CDLL(None), "QueryCancelPending").value)
