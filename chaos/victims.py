"""Victims of SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from chaos.server import Server
from chaos.view import View

WORKER, DRIVER, CLIENT, POSTMASTER = "worker", "driver", "client", "postmaster"
# With the driver in a client process, as "cerebro fit" has it.
OUTSIDE_WORKER, OUTSIDE_DRIVER = "outside-worker", "outside-driver"
# Where partitions lie on segments: the process of a worker there that trains, that which writes.
SEGMENT_READER, SEGMENT_WRITER = "segment-reader", "segment-writer"
OF_SEGMENTS = (SEGMENT_READER, SEGMENT_WRITER)
# Processes beside the server: that of the driver, those that compute, and those that start them.
DRIVER_PROCESS, TRAINER, KEEPER = "driver-process", "trainer", "keeper"
BESIDE_THE_SERVER = (DRIVER_PROCESS, TRAINER, KEEPER)
VICTIMS = (
    *BESIDE_THE_SERVER, WORKER, DRIVER, CLIENT, POSTMASTER, OUTSIDE_WORKER, OUTSIDE_DRIVER
)  # fmt: skip
# The coordinator, by pg_ctl.
RESTART = "restart"
VICTIMS_WITH_SEGMENTS = (*OF_SEGMENTS, WORKER, DRIVER, CLIENT, POSTMASTER, RESTART)
# These have sessions of their own for what they do.
IN_A_SESSION = (WORKER, OUTSIDE_WORKER, OUTSIDE_DRIVER, *OF_SEGMENTS)
# Where these are killed, all sessions of the server end.
CRASHES = (WORKER, DRIVER, POSTMASTER, RESTART, OUTSIDE_WORKER)
# The driver lives where these are killed, and has to go on by itself.
SURVIVED = (OUTSIDE_WORKER, *OF_SEGMENTS, *BESIDE_THE_SERVER)


def is_outside(victim: str) -> bool:
    """True if the run is driven by a client process."""
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
    elif victim in BESIDE_THE_SERVER:
        pid = _beside(victim, backend, view, generator)
    elif victim == DRIVER:
        pid = backend if client.poll() is None else None
    else:
        workers = view.workers or view.others
        pid = generator.choice(workers) if workers else None
    return f"{victim} {pid}" if pid is not None and _killed(pid) else None


def _beside(victim: str, backend: int | None, view: View, generator: random.Random) -> int | None:
    """A process beside the server: those that work for a process of the server have its number in their name."""
    if victim == KEEPER:
        found = [pid for pid, name in ours() if name.startswith("python")]
    else:
        kind = "driver" if victim == DRIVER_PROCESS else "trainer"
        for_whom = [backend] if victim == DRIVER_PROCESS else view.workers
        wanted = {f"{kind} {pid}" for pid in for_whom}
        found = [pid for pid, name in ours() if name in wanted]
    return generator.choice(found) if found else None


def ours() -> Iterator[tuple[int, str]]:
    """Number and name of the keepers and of what they have started.

    Not of the processes above keepers, to which orphans come: they are started by nobody of ours. Nor of those of
    another checkout, whose interpreter is another one.
    """
    parents = {}
    interpreters = os.fsencode(Path(sys.executable).parent)
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            program, *arguments = (path / "cmdline").read_bytes().split(b"\0")
            if b"cerebro_db.trainers" in arguments and os.path.dirname(program) == interpreters:
                parents[int(path.name)] = int(
                    (path / "stat").read_text().rpartition(")")[2].split()[1]
                )
    for pid, parent in parents.items():
        if parent in parents:
            with suppress(OSError):
                yield pid, Path(f"/proc/{pid}/comm").read_text().strip()


def _killed(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
