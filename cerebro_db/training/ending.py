"""How a process ends that has TensorFlow. Drivers know of it too, and begin sooner without more."""

from __future__ import annotations

import ctypes
import functools
from typing import Any


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
