"""Work on bytes that somebody handed in, in a child process that may crash or grow without harm."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
from collections.abc import Callable
from pathlib import Path

from cerebro_db.errors import CerebroError, InvalidArgument

_POLL_SECONDS = 0.05
_DONE, _REFUSED = b"+", b"-"
_SET_DEATH_SIGNAL = 1
_STATM = Path("/proc/self/statm")


def in_child(
    work: Callable[[], bytes], memory: int, seconds: int, tick: Callable[[], None], what: str
) -> bytes:
    """Result of ``work`` in a fork of this process.

    Args:
        work: uses nothing that threads of this process may hold, such as TensorFlow.
        memory: bytes that it may take beside those that this process has.
        seconds: of processor time that it may take.
        tick: called while waiting; an exception of it ends the child.
        what: names the work in messages.

    Raises:
        InvalidArgument: what ``work`` refused, or that the child did not come to an end.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(work, writer, memory, seconds)
    os.close(writer)
    try:
        answer = _read(reader, tick)
    finally:
        os.close(reader)
        ended = _end(pid)
    if answer[:1] == _DONE:
        return answer[1:]
    if answer[:1] == _REFUSED:
        raise InvalidArgument(f"{what}: {answer[1:].decode(errors='replace')}")
    raise InvalidArgument(f"{what}: reading it ended with {ended}", hint="it may be damaged")


def _child(work: Callable[[], bytes], writer: int, memory: int, seconds: int) -> None:
    """All that the child does; it never returns, and leaves no trace in what it shares."""
    try:
        # A server that starts anew waits for whoever has the memory of the old one.
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        _limit(memory, seconds)
        answer = _DONE + work()
    except CerebroError as error:
        answer = _REFUSED + error.message.encode(errors="replace")
    except MemoryError:
        answer = _REFUSED + b"it takes too much memory"
    except BaseException as error:
        answer = _REFUSED + f"{type(error).__name__}: {str(error)[:500]}".encode(errors="replace")
    try:
        view = memoryview(answer)
        while view:
            view = view[os.write(writer, view) :]
    finally:
        os._exit(0)


def _limit(memory: int, seconds: int) -> None:
    pages = int(_STATM.read_text().split()[0])
    size = pages * resource.getpagesize() + memory
    for what, most in (
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _read(reader: int, tick: Callable[[], None]) -> bytes:
    """All that the child writes, until it ends."""
    parts: list[bytes] = []
    while True:
        tick()
        if not select.select([reader], [], [], _POLL_SECONDS)[0]:
            continue
        part = os.read(reader, 2**20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _end(pid: int) -> str:
    """End the child, if it has not; how it ended."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
    except (ChildProcessError, ProcessLookupError):  # someone else has waited for it
        return "an error"
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"
