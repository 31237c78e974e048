"""Start of a keeper: python -I -m cerebro_db.trainers KIND FOLDER NAME.

The program ends as soon as the keeper has begun; errors before that are its exit code.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
from contextlib import suppress
from typing import BinaryIO

_LOG_BYTES = 2**20
_BE_SUBREAPER = 36


def main(kind: str, folder: str, name: str) -> None:
    """Be the keeper of that name, unless there is one."""
    os.chdir(folder)
    lock = open(f"{name}.lock", "ab")  # noqa: SIM115 - held until the end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _shorten(f"{name}.log")
    _leave(lock)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Only now: who has started this program waits until it has left.
    from cerebro_db.trainers.keeper import keep

    keep(kind, name, lock)


def _shorten(log: str) -> None:
    with suppress(OSError):
        if os.path.getsize(log) > _LOG_BYTES:
            os.truncate(log, 0)


def _leave(lock: BinaryIO) -> None:
    """Go on as the child of a process that only waits for its children.

    Orphans of the keeper come to that one, not to the first process of a container. That may be the
    server, which would take the violent end of any child for a crash of its own.
    """
    if os.fork():
        os._exit(0)
    ctypes.CDLL(None).prctl(_BE_SUBREAPER, 1, 0, 0, 0)
    if not os.fork():
        return
    lock.close()
    os.closerange(0, 3)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
