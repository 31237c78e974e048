"""Wall and CPU seconds of all processes of a side: the server's, this one and those it started."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

# Places in /proc/<pid>/stat, counted from the state of the process.
_PARENT, _OWN, _REAPED = 1, slice(11, 13), slice(13, 15)
TICKS = os.sysconf("SC_CLK_TCK")
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
        """The measurement as plain values."""
        return {
            "wall": round(self.wall, 3),
            "cpu": round(self.cpu, 2),
            "others": round(self.others, 2),
        }


class _Process(NamedTuple):
    """A process: its parent, and ticks of the clock that it has used."""

    parent: int
    ticks: float


Used = dict[int, _Process]
"""Processes by their numbers."""

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
        charges_client: whether what this process and those that it has started use counts, too.
    """

    def __init__(self, *postmasters: int, charges_client: bool = True) -> None:
        self._postmasters, self._charges_client = postmasters, charges_client

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        """The processes that were started inside must have been waited for at the end."""
        cost, cpu, machine, wall = Cost(), self._used(), _machine(), time.perf_counter()
        yield cost
        cost.wall = time.perf_counter() - wall
        cost.cpu = self._since(cpu)
        cost.others = max(0.0, _machine() - machine - cost.cpu)

    @contextmanager
    def traced(self) -> Iterator[tuple[Cost, Trace]]:
        """Measure, with a trace of the CPU time."""
        trace: Trace = []
        ended = threading.Event()
        with self.measure() as cost:
            began = self._used()

            def sample() -> None:
                while not ended.wait(_SAMPLE_SECONDS):
                    trace.append((time.time(), self._since(began)))

            sampling = threading.Thread(target=sample, daemon=True)
            sampling.start()
            try:
                yield cost, trace
            finally:
                ended.set()
                sampling.join()
        trace.append((time.time(), cost.cpu))

    def _since(self, before: Used) -> float:
        """CPU seconds since a moment.

        Of a process that has ended meanwhile, whoever has waited for it is charged; where nobody is there who has
        (a keeper that has ended with all that it had started), what it used is known no more, and nothing is counted.
        """
        now = self._used()
        known = {pid for pid, one in before.items() if pid in now or one.parent in now}
        return (
            sum(one.ticks for one in now.values()) - sum(before[pid].ticks for pid in known)
        ) / TICKS

    def _used(self) -> Used:
        """Processes that live, with those that they have waited for: the server's, keepers' and this one."""
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        used = sum(usage.ru_utime + usage.ru_stime for usage in own)
        while True:
            listed = [int(name) for name in os.listdir("/proc") if name.isdigit()]
            computing = {process for process in listed if _computes(process)}
            waiting = computing.union(self._postmasters)
            # One that is waited for meanwhile would be counted on neither side, or on both.
            waited = _waited_for(waiting)
            found: Used = {}
            if self._charges_client:
                found[os.getpid()] = _Process(os.getppid(), used * TICKS)
            for process in listed:
                if fields := _stat(process):
                    parent = int(fields[_PARENT])
                    # One that is about to end has no command any more, and still all that it has used.
                    if process in waiting or parent in computing:
                        found[process] = _Process(
                            parent, _sum(fields[_OWN]) + _sum(fields[_REAPED])
                        )
                    elif parent in self._postmasters:
                        found[process] = _Process(parent, _sum(fields[_OWN]))
            if _waited_for(waiting) == waited:
                return found


def _waited_for(processes: Iterable[int]) -> dict[int, int]:
    """Ticks of the processes that each of these has waited for."""
    return {process: _ticks(process, _REAPED) for process in processes}


def _computes(process: int) -> bool:
    """True if a process is a keeper, or one that a keeper has started, of this environment."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    ours = os.fsencode(sys.prefix)
    return b"cerebro_db.trainers" in command and command[0].startswith(ours)


def own_ticks(process: int) -> int:
    """Ticks of the clock that a process has used by itself; none where it has ended."""
    return _ticks(process, _OWN)


def _ticks(process: int, which: slice) -> int:
    return _sum(_stat(process)[which])


def _sum(fields: Iterable[str]) -> int:
    return sum(map(int, fields))


def _machine() -> float:
    """CPU seconds of everything on this machine, and those that its host took away."""
    fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / TICKS


def _stat(process: int) -> list[str]:
    """The fields of a process from its state on; none if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
