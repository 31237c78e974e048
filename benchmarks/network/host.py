"""A host: the patterns by which strategies exchange, each with all other hosts."""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.network.links import HOSTS, Links
from cerebro_db.training.peers.peers import CODINGS

_STATE_ARRAYS = 3  # weights, and two slots of Adam
_RATE = np.float32(0.5)  # of learning; such that sums stay exact


class Host:
    """A host of the network, with what it computes on and exchanges.

    Args:
        links: to the others.
    """

    def __init__(self, links: Links) -> None:
        self._links, self._place = links, links.place
        self._others = [place for place in range(HOSTS) if place != self._place]
        self._rooms: dict[str, np.ndarray] = {}

    def measured(self, pattern: str, size: int, count: int, compute: float, bits: int) -> Any:
        """Do a pattern so many times, together with all other hosts.

        Args:
            pattern: a name of ``_PATTERNS``.
            size: numbers of the net; bytes where ``task``, ``stream`` or ``ping`` move them.
            compute: seconds of one gradient.
            bits: of a number that is exchanged.

        Returns:
            Seconds, bytes sent and received, and those that the interface has counted.
        """
        self._prepare(pattern, size)
        links, before = self._links, _counters()
        links.meet()
        links.sent, links.received = [0] * HOSTS, [0] * HOSTS
        started = time.perf_counter()
        _PATTERNS[pattern](self, count, compute, bits)
        seconds = time.perf_counter() - started
        moved = [sum(links.sent), sum(links.received)]
        links.meet()  # now all has come
        return {
            "seconds": seconds,
            "bytes": moved,
            "counted": [now - then for now, then in zip(_counters(), before, strict=True)],
            "checked": self._check(pattern, count),
        }

    def _prepare(self, pattern: str, size: int) -> None:
        """Numbers of this host, such that every sum is known; and memory for what comes."""
        if pattern in _BYTES:
            self._own = self._room("data", size, np.uint8)
            return
        size *= _STATE_ARRAYS if pattern in ("hopping", "averaging") else 1
        self._own = self._room("own", size, np.float32)
        self._own[:] = self._place + 1
        self._weights = self._room("weights", size, np.float32)
        self._weights[:] = 0

    def _room(self, name: str, size: int, kind: Any) -> np.ndarray:
        """A buffer that is allocated once."""
        found = self._rooms.get(name)
        if found is None or found.nbytes < size * np.dtype(kind).itemsize:
            found = self._rooms[name] = np.zeros(size * np.dtype(kind).itemsize, np.uint8)
        return found[: size * np.dtype(kind).itemsize].view(kind)

    def _check(self, pattern: str, count: int) -> bool:
        """True if the numbers are right at the end."""
        mean = (HOSTS + 1) / 2
        if pattern in ("allreduce", "pipe", "averaging"):
            return bool(np.allclose(self._own, mean, rtol=0.02))
        if pattern == "synchronous":
            return bool(np.allclose(self._weights, -_RATE * mean * count))
        if pattern == "asynchronous" and not self._place:
            return bool(np.allclose(self._weights, -_RATE * mean * HOSTS * count))
        if pattern == "hopping":
            return bool(np.all(self._own == (self._place - count) % HOSTS + 1))
        return True

    # -- patterns ------------------------------------------------------------------------
    def _allreduce(self, bits: int) -> None:
        """Make the own numbers the mean of those of all hosts: quarters are summed from host to host, and handed round."""
        parts = np.array_split(self._own, HOSTS)
        place = self._place
        for turn in range(HOSTS - 1):
            part = parts[(place - turn - 1) % HOSTS]
            told = _coded(parts[(place - turn) % HOSTS], bits)
            part += _read(self._passed_on(told, part.size, bits, turn), bits)
        own = parts[(place + 1) % HOSTS]
        own /= HOSTS
        told = _coded(own, bits)
        own[:] = _read(told, bits)  # the same bits on every host
        for turn in range(HOSTS - 1):
            part = parts[(place - turn) % HOSTS]
            told = self._passed_on(told, part.size, bits, turn)
            part[:] = _read(told, bits)

    def _passed_on(self, told: np.ndarray, size: int, bits: int, turn: int) -> np.ndarray:
        """Send to the next host, and receive from the one before."""
        came = self._room(f"came {turn % 2}", size * bits // 8 + (8 if bits == 8 else 0), np.uint8)
        place = self._place
        self._links.move({(place + 1) % HOSTS: told}, {(place - 1) % HOSTS: came})
        return came

    def allreduce(self, count: int, compute: float, bits: int) -> None:
        """After each step."""
        for _ in range(count):
            time.sleep(compute)
            self._allreduce(bits)

    def pipe(self, count: int, compute: float, bits: int) -> None:
        """Exchange each gradient during the computation of the next one."""
        with ThreadPoolExecutor(1) as pool:
            for _ in range(count):
                exchange = pool.submit(self._allreduce, bits)
                time.sleep(compute)
                exchange.result()

    def synchronous(self, count: int, compute: float, bits: int) -> None:
        """A parameter server for all hosts at once, on host 0."""
        for _ in range(count):
            time.sleep(compute)
            if self._place:
                self._links.move({0: self._own}, {})
                self._links.move({}, {0: self._weights})
            else:
                self._weights -= _RATE * self._mean()
                self._links.move(dict.fromkeys(self._others, self._weights), {})

    def averaging(self, count: int, compute: float, bits: int) -> None:
        """The mean of all states, made on host 0."""
        for _ in range(count):
            if self._place:
                self._links.move({0: self._own}, {})
                self._links.move({}, {0: self._own})
            else:
                self._own[:] = self._mean()
                self._links.move(dict.fromkeys(self._others, self._own), {})

    def _mean(self) -> np.ndarray:
        size = self._own.size
        slots = {place: self._room(f"slot {place}", size, np.float32) for place in self._others}
        self._links.move({}, slots)
        total = self._room("total", size, np.float32)
        total[:] = self._own
        for slot in slots.values():
            total += slot
        total /= HOSTS
        return total

    def asynchronous(self, count: int, compute: float, bits: int) -> None:
        """A parameter server that serves each host by itself, on host 0, which works too."""
        if self._place:
            for _ in range(count):
                time.sleep(compute)
                self._links.move({0: self._own}, {})
                self._links.move({}, {0: self._weights})
            return
        lock = threading.Lock()
        with ThreadPoolExecutor(HOSTS - 1) as pool:
            serving = [pool.submit(self._serve, place, count, lock) for place in self._others]
            for _ in range(count):
                time.sleep(compute)
                with lock:
                    self._weights -= _RATE * self._own
            for one in serving:
                one.result()

    def _serve(self, place: int, count: int, lock: threading.Lock) -> None:
        slot = self._room(f"slot {place}", self._own.size, np.float32)
        for _ in range(count):
            self._links.move({}, {place: slot})
            with lock:
                slot *= _RATE
                self._weights -= slot
                slot[:] = self._weights
            self._links.move({place: slot}, {})

    def hopping(self, count: int, compute: float, bits: int) -> None:
        """A state goes to the next host, while another one comes."""
        came = self._room("came", self._own.size, np.float32)
        for _ in range(count):
            place = self._place
            self._links.move({(place + 1) % HOSTS: self._own}, {(place - 1) % HOSTS: came})
            self._own, came = came, self._own

    def task(self, count: int, compute: float, bits: int) -> None:
        """Read the partitions of the three other hosts, one after another."""
        came = self._room("partition", self._own.size, np.uint8)
        for _ in range(count):
            for way in range(1, HOSTS):
                place = self._place
                self._links.move({(place - way) % HOSTS: self._own}, {(place + way) % HOSTS: came})

    # -- the network itself --------------------------------------------------------------
    def ping(self, count: int, compute: float, bits: int) -> None:
        """From host 0 to host 1, and back."""
        for _ in range(count):
            if self._place == 0:
                self._links.move({1: self._own}, {})
                self._links.move({}, {1: self._own})
            elif self._place == 1:
                self._links.move({}, {0: self._own})
                self._links.move({0: self._own}, {})

    def stream(self, count: int, compute: float, bits: int) -> None:
        """From host 0 to host 1."""
        came = self._room("partition", self._own.size, np.uint8)
        for _ in range(count):
            if self._place == 0:
                self._links.move({1: self._own}, {})
            elif self._place == 1:
                self._links.move({}, {0: came})

    def ring(self, count: int, compute: float, bits: int) -> None:
        """From each host to the next, all at once."""
        came = self._room("partition", self._own.size, np.uint8)
        for _ in range(count):
            place = self._place
            self._links.move({(place + 1) % HOSTS: self._own}, {(place - 1) % HOSTS: came})


_STEPWISE = ("allreduce", "pipe", "synchronous", "asynchronous")
_BYTES = ("task", "ping", "stream", "ring")
_PATTERNS: dict[str, Callable[[Host, int, float, int], None]] = {
    name: getattr(Host, name) for name in (*_STEPWISE, *_BYTES, "hopping", "averaging")
}


def _coded(part: np.ndarray, bits: int) -> np.ndarray:
    """Bytes of numbers, with their scale where that is needed."""
    coded, scale = CODINGS[bits].coded(part)
    told = coded.view(np.uint8)
    if bits > 8:
        return told
    return np.concatenate([told, np.frombuffer(struct.pack("d", scale), np.uint8)])


def _read(told: np.ndarray, bits: int) -> np.ndarray:
    coding = CODINGS[bits]
    if bits > 8:
        return coding.read(told.view(coding.dtype), 1.0)
    (scale,) = struct.unpack("d", told[-8:].tobytes())
    return coding.read(told[:-8].view(coding.dtype), scale)


def _counters() -> tuple[int, int]:
    """Bytes that the interface of this host has sent and received; of its own namespace, unlike what /sys shows."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == "eth0":
            fields = values.split()
            return int(fields[8]), int(fields[0])
    raise OSError("there is no eth0")


def serve() -> None:
    """Life of a host: a line for each thing to do, and a line with what was found."""
    _tell({})
    first = sys.stdin.readline()
    if not first:
        return
    Path("/proc/self/timerslack_ns").write_text("1000")
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    given = json.loads(first)
    host = Host(Links(**given))
    _tell({})
    for line in sys.stdin:
        _tell(host.measured(**json.loads(line)))


def _tell(value: Any) -> None:
    print(json.dumps(value), flush=True)
