"""Wall and CPU seconds of all processes of a side: the server's, this one and those it started."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Places in /proc/<pid>/stat, counted from the state of the process.
_PARENT, _OWN, _REAPED = 1, slice(11, 13), slice(13, 15)
_TICKS = os.sysconf("SC_CLK_TCK")
# Each sample looks at all processes, and is charged itself.
_SAMPLE_SECONDS = 0.5


@dataclass
class Cost:
    """Seconds; zero until what is measured has ended.

    Attributes:
        others: CPU seconds that all other processes of the machine took meanwhile; where they are
            many, the wall seconds tell little.
    """

    wall: float = 0.0
    cpu: float = 0.0
    others: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu, self.others + other.others)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "wall": round(self.wall, 3),
            "cpu": round(self.cpu, 2),
            "others": round(self.others, 2),
        }


Trace = list[tuple[float, float]]
"""Moments, in seconds since 1970, and the CPU seconds that were used by then."""


def used_by(trace: Trace, moment: float) -> float:
    """CPU seconds that were used by a moment: those of the next sample."""
    return next((cpu for when, cpu in trace if when >= moment), trace[-1][1])


class Meter:
    """Measures what happens inside ``with meter.measure() as cost``.

    Every side is charged for the same processes; those that have nothing to do add nothing.

    Args:
        postmasters: process ids of the server; with segments it has several.
    """

    def __init__(self, *postmasters: int) -> None:
        self._postmasters = postmasters

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        """The processes that were started inside must have been waited for at the end."""
        cost, cpu, machine, wall = Cost(), self._cpu(), _machine(), time.perf_counter()
        yield cost
        cost.wall = time.perf_counter() - wall
        cost.cpu = self._cpu() - cpu
        cost.others = max(0.0, _machine() - machine - cost.cpu)

    @contextmanager
    def traced(self) -> Iterator[tuple[Cost, Trace]]:
        """The same, and what CPU time was used by when."""
        trace: Trace = []
        ended = threading.Event()
        with self.measure() as cost:
            began = self._cpu()

            def sample() -> None:
                while not ended.wait(_SAMPLE_SECONDS):
                    trace.append((time.time(), self._cpu() - began))

            sampling = threading.Thread(target=sample, daemon=True)
            sampling.start()
            try:
                yield cost, trace
            finally:
                ended.set()
                sampling.join()
        trace.append((time.time(), cost.cpu))

    def _cpu(self) -> float:
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
        return used + self._server_ticks() / _TICKS

    def _reaped(self) -> int:
        return sum(_ticks(postmaster, _REAPED) for postmaster in self._postmasters)

    def _server_ticks(self) -> int:
        """Of the processes that live, and of those that the postmasters have waited for."""
        while True:  # one that is waited for meanwhile would be counted on neither side
            reaped = self._reaped()
            ticks = reaped + sum(_ticks(postmaster, _OWN) for postmaster in self._postmasters)
            for process in filter(str.isdigit, os.listdir("/proc")):
                fields = _stat(int(process))
                if fields and int(fields[_PARENT]) in self._postmasters:
                    ticks += sum(map(int, fields[_OWN]))
                elif fields and _computes(process):
                    ticks += sum(map(int, [*fields[_OWN], *fields[_REAPED]]))
            if self._reaped() == reaped:
                return ticks


def _computes(process: str) -> bool:
    """True if a process is a keeper, or one that a keeper has started, of this environment."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    ours = os.fsencode(sys.prefix)
    return b"cerebro_db.trainers" in command and command[0].startswith(ours)


def _ticks(process: int, which: slice) -> int:
    return sum(map(int, _stat(process)[which]))


def _machine() -> float:
    """CPU seconds of everything on this machine, and those that its host took away."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / _TICKS


def _stat(process: int) -> list[str]:
    """The fields of a process from its state on; none if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
