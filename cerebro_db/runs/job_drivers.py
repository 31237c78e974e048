"""Drivers of jobs on this host, so that one that never looks up can be ended.

Each holds a locked file, which has its process number, in the folder of the keepers: drivers work there, and only the
server's user may enter it. The name has the job's lock key, which nobody but the catalog gives. A lock ends with its
process; a file without one says nothing.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from cerebro_db.postgres.catalog.jobs import Jobs

_PATTERN = "job-*.pid"


def hold(job_id: int, lock_key: int) -> TextIO:
    """Be the driver of a job as long as the file is open; one before, which has lost the job, is ended."""
    end_by_force(job_id, lock_key)
    for path in Path().glob(_PATTERN):  # of drivers that were killed
        if _driver(path) is None:
            path.unlink(missing_ok=True)
    file = open(_path(job_id, lock_key), "w", encoding="ascii")  # noqa: SIM115 - held until the end
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.write(str(os.getpid()))
    file.flush()
    return file


def end_drivers(jobs: Jobs, job_ids: Sequence[int]) -> None:
    """Kill the drivers of jobs; what they leave is what a crash leaves."""
    for job_id in job_ids:
        end_by_force(job_id, jobs.lock_key(job_id))


def end_by_force(job_id: int, lock_key: int) -> None:
    """Kill the driver of a job, where it is one of this host."""
    path = _path(job_id, lock_key)
    driver = _driver(path)
    if driver is not None:
        with suppress(ProcessLookupError):
            os.kill(driver, signal.SIGKILL)
        path.unlink(missing_ok=True)


def _path(job_id: int, lock_key: int) -> Path:
    return Path(f"job-{job_id}-{lock_key % 2**64:016x}.pid")


def _driver(path: Path) -> int | None:
    """The process that holds a file; None for none, or for this one."""
    try:
        with open(path, encoding="ascii") as file:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            text = file.read()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) != os.getpid() else None
