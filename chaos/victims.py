"""Who is killed, and how: always with SIGKILL, which nobody can prepare for."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from contextlib import suppress

from chaos.server import Server
from chaos.view import View

WORKER, DRIVER, CLIENT, POSTMASTER = "worker", "driver", "client", "postmaster"
# With the driver in a client process, as "cerebro fit" has it.
OUTSIDE_WORKER, OUTSIDE_DRIVER = "outside-worker", "outside-driver"
# Where partitions lie on segments: the process of a worker there that trains, that which writes.
SEGMENT_READER, SEGMENT_WRITER = "segment-reader", "segment-writer"
OF_SEGMENTS = (SEGMENT_READER, SEGMENT_WRITER)
VICTIMS = (WORKER, DRIVER, CLIENT, POSTMASTER, OUTSIDE_WORKER, OUTSIDE_DRIVER)
# The coordinator, by pg_ctl.
RESTART = "restart"
VICTIMS_WITH_SEGMENTS = (*OF_SEGMENTS, WORKER, DRIVER, CLIENT, POSTMASTER, RESTART)
# These have sessions of their own for what they do.
IN_A_SESSION = (WORKER, OUTSIDE_WORKER, OUTSIDE_DRIVER, *OF_SEGMENTS)
# Where these are killed, all sessions of the server end.
CRASHES = (WORKER, DRIVER, POSTMASTER, RESTART, OUTSIDE_WORKER)
# The driver lives where these are killed, and has to go on by itself.
SURVIVED = (OUTSIDE_WORKER, *OF_SEGMENTS)


def is_outside(victim: str) -> bool:
    """Whether the run is driven by a client process."""
    return victim in (OUTSIDE_WORKER, OUTSIDE_DRIVER)


def kill(
    server: Server,
    victim: str,
    client: subprocess.Popen[str],
    backend: int | None,
    view: View,
    generator: random.Random,
) -> str | None:
    """Kill; returns who it was, None where there is no such process (any more).

    Args:
        server: on which the run is.
        victim: what kind of process.
        client: the process that began, or resumed, the run.
        backend: process id of the session that serves that, where it only calls a function.
        view: what is seen of the run.
        generator: chooses one of several.
    """
    if victim == POSTMASTER:
        server.kill_postmaster()
        return victim
    if victim == RESTART:
        server.restart()
        return victim
    if victim in (CLIENT, OUTSIDE_DRIVER):
        pid = client.pid if client.poll() is None else None
    elif victim in OF_SEGMENTS:
        sessions = view.workers or view.others
        pid = server.kill_on_segment(sessions, victim == SEGMENT_READER, generator)
        return None if pid is None else f"{victim} {pid}"
    elif victim == DRIVER:
        pid = backend if client.poll() is None else None
    else:
        workers = view.workers or view.others
        pid = generator.choice(workers) if workers else None
    return f"{victim} {pid}" if pid is not None and _killed(pid) else None


def _killed(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
