"""Measure on an emulated network of four hosts what each strategy exchanges, and how long that takes.

    python -m benchmarks.network [--json FILE] [--megabits 1000,10000] [--delay-ms 0.2] [--steps 100]
                                 [--large-floats 4000000] [--step-ms images=20,tabular=0.5] [--rounds 3]

Each host is a process in a network namespace of its own; a switch, in one more, joins them with virtual links,
both ends of which have the rate (``tc``, tbf; full duplex, with queues so long that nothing is dropped). That takes
root; where it can't be made, the reason is told in place of figures. Nothing has a name in the system: the
namespaces end with the processes in them, which end when what has started them ends, however that happens.

The delay, one way, is kept by the hosts: what has come is used when its last byte, by the kernel's clock of arrivals,
is as old as that. netem is not used for it, as many kernels come without. So the delay is that of messages;
TCP's own acknowledgements are faster. Hosts also keep the rate of small messages, which tbf lets go at once. They
run before all other work of the machine (SCHED_RR), and share its processors: what the network reaches is
measured, and shown beside its nominal figures.

Hosts talk through plain sockets: the patterns are a few lines each, every byte is counted, and the kernel tells when
it came. A library for all-reduce would be gloo, which comes with PyTorch only, and ZeroMQ hides when a message came.
What is exchanged are arrays as large as those of real nets. Sums are made, and checked; parameters after each
all-reduce are coded as Cerebro-DB's peers code them. Computing a gradient is a time that a host waits, for four
hosts share the processors of one machine.

In an epoch of four models on four partitions each host computes as many gradients (``steps``) in every pattern:

- hopping: a model's weights and two slots of Adam go to the next host after each partition, all four models at once;
- averaging: once an epoch and model these are sent to one host, averaged there, and sent back;
- task: each host trains one model, and reads the three partitions that it doesn't have, each before it trains on it;
- allreduce: gradients are summed in a ring after each step, which is one of all four hosts;
- pipe: the same, during the computation of the next gradient, with 32, 16 or 8 bits a number;
- parameter_server: gradients go to one of the hosts, weights come back; synchronous: all at once; asynchronous: each
  host waits for its own only.

One step, hop or reading is measured, as the longest time of the four hosts, and an epoch is made of these times.
Bytes are those of arrays, sent and received, without headers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cerebro_db.training.peers import _CODINGS

HOSTS = 4
_PORT, _ADDRESS = 7700, "10.77.0.{}"
_PATIENCE_SECONDS = 60
_SO_TIMESTAMPNS = 35  # of Linux; Python has no name for it
_TIME, _CLOCK = struct.Struct("ll"), struct.Struct("d")
_STATE_ARRAYS = 3  # weights, and two slots of Adam
_RATE = np.float32(0.5)  # of learning; such that sums stay exact


class Net(NamedTuple):
    """A net whose exchange is measured.

    Attributes:
        floats: its parameters.
        partition: bytes of one of the four partitions that it is trained on.
    """

    floats: int
    partition: int


# Of benchmarks.workloads: 10,000 images of 28 x 28, and 200,000 rows of 64 numbers, with labels.
NETS = {
    "tabular": Net(26_122, 200_000 * 260 // 4),
    "images": Net(225_034, 10_000 * 3140 // 4),
    "large": Net(4_000_000, 10_000 * 12_292 // 4),
}


class NotPossible(Exception):
    """No network can be emulated here; tells why."""


# -- a host ------------------------------------------------------------------------------------
class Links:
    """The connections of one host with all others.

    Args:
        place: of this host, from 0.
        delay: seconds, one way.
        rate: bytes a second.

    Attributes:
        sent, received: bytes by place of the other host.
    """

    def __init__(self, place: int, delay: float, rate: float) -> None:
        self.place, self._delay, self._rate = place, delay, rate
        self.sent, self.received = [0] * HOSTS, [0] * HOSTS
        self._sockets: dict[int, socket.socket] = {}
        with socket.create_server((_ADDRESS.format(place + 1), _PORT)) as door:
            for other in range(place):
                self._sockets[other] = _connected(other)
                self._sockets[other].sendall(bytes([place]))
            while len(self._sockets) < HOSTS - 1:
                came, _ = door.accept()
                self._sockets[came.recv(1)[0]] = came
        for one in self._sockets.values():
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            with suppress(OSError):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            one.setblocking(False)

    def move(self, sends: Mapping[int, np.ndarray], receives: Mapping[int, np.ndarray]) -> None:
        """Send arrays to hosts, and fill those that come from hosts, all at once."""
        flows = [
            _Flow(self._sockets[place], sends.get(place), receives.get(place))
            for place in sends.keys() | receives.keys()
        ]
        _let_flow(flows)
        for place, array in sends.items():
            self.sent[place] += array.nbytes
        for place, array in receives.items():
            self.received[place] += array.nbytes
        if receives:
            come = max(flow.came_at(self._rate) for flow in flows)
            time.sleep(max(come + self._delay - time.time(), 0))

    def meet(self) -> None:
        """Wait until all hosts are here."""
        word, others = np.zeros(1, np.uint8), range(1, HOSTS)
        if self.place:
            self.move({0: word}, {})
            self.move({}, {0: word})
        else:
            self.move({}, {place: np.empty(1, np.uint8) for place in others})
            self.move(dict.fromkeys(others, word), {})


class _Flow:
    """An array that goes to another host, one that comes from it, or both; each begins with the time it was sent."""

    def __init__(self, one: socket.socket, own: np.ndarray | None, other: np.ndarray | None):
        self.socket, self._size, self._last = one, 0, 0.0
        self._head = bytearray(_CLOCK.size)
        self._left: list[memoryview] = []
        self._room: list[memoryview] = []
        if own is not None:
            head = memoryview(_CLOCK.pack(time.time()))
            self._left = [head, own.data.cast("B")]
        if other is not None:
            self._size = other.nbytes
            self._room = [memoryview(self._head), other.data.cast("B")]

    @property
    def waits_for(self) -> int:
        """Events; 0 at the end."""
        return (select.POLLOUT if self._left else 0) | (select.POLLIN if self._room else 0)

    def go(self, events: int) -> None:
        """Send and receive what is possible."""
        if self._left and events & ~select.POLLIN:
            self._left = _rest(self._left, self.socket.sendmsg(self._left))
        if self._room and events & ~select.POLLOUT:
            count, told, _, _ = self.socket.recvmsg_into(self._room, _TIME.size + 32)
            if not count:
                raise ConnectionError("another host has ended")
            self._room = _rest(self._room, count)
            seconds, nanoseconds = _TIME.unpack(told[0][2])
            self._last = seconds + nanoseconds / 1e9

    def came_at(self, rate: float) -> float:
        """Time at which all has come; as if none of it had gone at once. 0 where nothing comes."""
        if not self._size:
            return 0.0
        (sent,) = _CLOCK.unpack(self._head)
        return max(self._last, float(sent) + self._size / rate)


def _let_flow(flows: Sequence[_Flow]) -> None:
    waiting, poll = {flow.socket.fileno(): flow for flow in flows}, select.poll()
    for handle, flow in waiting.items():
        poll.register(handle, flow.waits_for)
    while waiting:
        found = poll.poll(1000 * _PATIENCE_SECONDS)
        if not found:
            raise TimeoutError("nothing came from the other hosts")
        for handle, events in found:
            waiting[handle].go(events)
            if waiting[handle].waits_for:
                poll.modify(handle, waiting[handle].waits_for)
            else:
                poll.unregister(handle)
                del waiting[handle]


def _rest(views: Sequence[memoryview], count: int) -> list[memoryview]:
    """Without so many bytes."""
    left = list(views)
    while left and count >= len(left[0]):
        count -= len(left.pop(0))
    if count:
        left[0] = left[0][count:]
    return left


def _connected(place: int) -> socket.socket:
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((_ADDRESS.format(place + 1), _PORT), timeout=5)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


class Host:
    """One of the hosts, with what it computes on and exchanges.

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
        """Memory that is there already when it is needed again."""
        found = self._rooms.get(name)
        if found is None or found.nbytes < size * np.dtype(kind).itemsize:
            found = self._rooms[name] = np.zeros(size * np.dtype(kind).itemsize, np.uint8)
        return found[: size * np.dtype(kind).itemsize].view(kind)

    def _check(self, pattern: str, count: int) -> bool:
        """Whether the numbers are what they must be at the end."""
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
        """Each during the computation of the next gradient."""
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
    coded, scale = _CODINGS[bits].coded(part)
    told = coded.view(np.uint8)
    if bits > 8:
        return told
    return np.concatenate([told, np.frombuffer(struct.pack("d", scale), np.uint8)])


def _read(told: np.ndarray, bits: int) -> np.ndarray:
    coding = _CODINGS[bits]
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


# -- the network -------------------------------------------------------------------------------
class Network:
    """Four hosts that do the same thing at the same time.

    Args:
        hosts: their processes.
    """

    def __init__(self, hosts: Sequence[subprocess.Popen[str]]) -> None:
        self._hosts = hosts

    def measure(
        self, pattern: str, size: int, count: int = 1, compute: float = 0.0, bits: int = 32
    ) -> list[dict[str, Any]]:
        """What each host has found; see ``Host.measured``."""
        asked = dict(pattern=pattern, size=size, count=count, compute=compute, bits=bits)
        found = _asked(self._hosts, [asked] * HOSTS)
        if not all(one["checked"] for one in found):
            raise RuntimeError(f"{pattern}: sums are wrong")
        return found


def _asked(hosts: Sequence[subprocess.Popen[str]], told: Sequence[Any]) -> list[Any]:
    """Answers of all hosts to a line each."""
    for host, one in zip(hosts, told, strict=True):
        assert host.stdin
        host.stdin.write(json.dumps(one) + "\n")
        host.stdin.flush()
    return [_answer(host) for host in hosts]


def _answer(host: subprocess.Popen[str]) -> Any:
    assert host.stdout
    line = host.stdout.readline()
    if not line:
        raise RuntimeError("a host has ended: its last words are above")
    return json.loads(line)


@contextmanager
def network(megabits: int, delay_ms: float) -> Iterator[Network]:
    """An emulated network, which is gone afterwards.

    Args:
        megabits: a second, of each link and direction.
        delay_ms: one way.

    Raises:
        NotPossible: it can't be made here.
    """
    tools = _tools()
    with ExitStack() as stack:
        switch = stack.enter_context(_started([tools["unshare"], "--net", "cat"]))
        _asked([switch], [{}])
        program = [tools["unshare"], "--net", sys.executable, "-m", "benchmarks.network", "--host"]
        hosts = [stack.enter_context(_started(program)) for _ in range(HOSTS)]
        for host in hosts:
            _answer(host)
        _join(tools, switch.pid, [host.pid for host in hosts], megabits)
        facts = {"delay": delay_ms / 1000, "rate": megabits * 1e6 / 8}
        _asked(hosts, [{"place": place, **facts} for place in range(HOSTS)])
        yield Network(hosts)


def _tools() -> dict[str, str]:
    if os.geteuid() != 0:
        raise NotPossible("network namespaces take root")
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    found = {name: shutil.which(name, path=path) for name in ("ip", "tc", "unshare", "nsenter")}
    if missing := [name for name, place in found.items() if place is None]:
        raise NotPossible(f"there is no {', '.join(missing)}: apt-get install iproute2 util-linux")
    tools = {name: place for name, place in found.items() if place}
    done = subprocess.run([tools["unshare"], "--net", "true"], capture_output=True, text=True)
    if done.returncode:
        raise NotPossible(f"network namespaces are not allowed here: {done.stderr.strip()}")
    return tools


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when its input does; Ctrl-C is not for it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parent.parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _join(tools: Mapping[str, str], switch: int, hosts: Sequence[int], megabits: int) -> None:
    """Links between hosts and switch, with their rate."""
    ports = [f"port{place}" for place in range(HOSTS)]
    lines = ["link add name bridge type bridge", "link set bridge up"]
    for port, process in zip(ports, hosts, strict=True):
        lines += [
            f"link add {port} type veth peer name eth0 netns {process}",
            f"link set {port} master bridge up",
        ]
    _batch(tools, "ip", switch, lines)
    # So many bytes may go at once, as the kernel is late at times: those of 0.2 ms. A packet has fewer.
    burst, packet = max(megabits * 25, 8000), min(max(megabits * 16, 4000), 65536)
    shape = f"root tbf rate {megabits}mbit burst {burst} limit {64 * 2**20}"
    _batch(tools, "tc", switch, [f"qdisc add dev {port} {shape}" for port in ports])
    for place, process in enumerate(hosts):
        lines = [
            "link set lo up",
            f"address add {_ADDRESS.format(place + 1)}/24 dev eth0",
            f"link set eth0 gso_max_size {packet} up",
        ]
        _batch(tools, "ip", process, lines)
        _batch(tools, "tc", process, [f"qdisc add dev eth0 {shape}"])


def _batch(tools: Mapping[str, str], tool: str, process: int, lines: Sequence[str]) -> None:
    command = [tools["nsenter"], "--target", str(process), "--net", tools[tool], "-batch", "-"]
    told = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=told, capture_output=True, text=True)
    if done.returncode:
        raise NotPossible(f"{tool} can't make the network: {' '.join(done.stderr.split())}")


# -- figures -----------------------------------------------------------------------------------
class Pattern(NamedTuple):
    """Something that hosts do in an epoch of four models.

    Attributes:
        name: of a method of ``Host``.
        each: what is measured.
        times: that in an epoch, where it is not each step that each host makes; then nothing is computed meanwhile.
        bits: of a number.
    """

    name: str
    each: str
    times: int | None = None
    bits: int = 32


PATTERNS = {
    "hopping": Pattern("hopping", "hop", HOSTS),
    "averaging": Pattern("averaging", "average", HOSTS),
    "task": Pattern("task", "reading of 3 partitions", 1),
    "allreduce": Pattern("allreduce", "step"),
    "pipe, 32 bits": Pattern("pipe", "step", bits=32),
    "pipe, 16 bits": Pattern("pipe", "step", bits=16),
    "pipe, 8 bits": Pattern("pipe", "step", bits=8),
    "parameter_server, synchronous": Pattern("synchronous", "step"),
    "parameter_server, asynchronous": Pattern("asynchronous", "step"),
}
_ROUND_SECONDS, _MOST_TIMES = 0.25, 50
_PINGS, _PROBE_SECONDS = 50, 0.2
_ENOUGH = 0.8  # of the nominal rate, when all four links are in use


def measure(
    nets: Mapping[str, Net] = NETS,
    megabits: Sequence[int] = (1000, 10000),
    delay_ms: float = 0.2,
    steps: int = 100,
    step_ms: Mapping[str, float] | None = None,
    rounds: int = 3,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Figures of all patterns, as plain values.

    Each net computes a gradient as long as an all-reduce of it takes on that network, then half as long, then as
    long as is given.

    Args:
        nets: by name.
        megabits: a second, of each network.
        delay_ms: one way.
        steps: of each host in an epoch of four models.
        step_ms: of a gradient, by the name of its net, as measured elsewhere.
        rounds: of each pattern, of which the median counts.
        log: gets a line about each thing that begins.

    Returns:
        ``networks``, a list; or ``why_not``, a line, where networks can't be emulated.
    """
    found: list[dict[str, Any]] = []
    results = {"hosts": HOSTS, "delay_ms": delay_ms, "steps": steps, "rounds": rounds}
    try:
        for rate in megabits:
            log(f"{rate} Mbit/s")
            with network(rate, delay_ms) as emulated:
                meter = _Meter(emulated, rounds)
                reached = _reached(meter, rate)
                each = {}
                for name, net in nets.items():
                    log(f"{rate} Mbit/s, {name}")
                    each[name] = _of_net(meter, net, steps, (step_ms or {}).get(name))
                found.append({"megabits": rate, "reached": reached, "nets": each})
    except NotPossible as error:
        return {"why_not": f"no network is emulated here: {error}"}
    return {**results, "networks": found}


class _Meter(NamedTuple):
    network: Network
    rounds: int

    def each(self, pattern: Pattern, size: int, compute: float = 0.0) -> dict[str, float]:
        """Seconds and bytes of one step, or whatever the pattern consists of."""

        def done(count: int) -> list[dict[str, Any]]:
            return self.network.measure(pattern.name, size, count, compute, pattern.bits)

        once = _longest(done(1))
        count = max(1, min(_MOST_TIMES, math.ceil(_ROUND_SECONDS / max(once, 1e-9))))
        rounds = [done(count) for _ in range(self.rounds)]
        moved = [sum(host["bytes"]) / count for host in rounds[-1]]
        counted = [sum(host["counted"]) / count for host in rounds[-1]]
        return {
            "seconds": statistics.median(_longest(one) for one in rounds) / count,
            "bytes": statistics.mean(moved),
            "bytes_of_busiest": max(moved),
            "bytes_of_interface": statistics.mean(counted),
        }


def _longest(hosts: Sequence[Mapping[str, Any]]) -> float:
    return max(float(host["seconds"]) for host in hosts)


def _reached(meter: _Meter, megabits: int) -> dict[str, Any]:
    """What the network is really like."""
    size = int(megabits * 1e6 / 8 * _PROBE_SECONDS)
    pings = [
        meter.network.measure("ping", 8, _PINGS)[0]["seconds"] / _PINGS for _ in range(meter.rounds)
    ]

    def rate(pattern: str) -> float:
        one = meter.each(Pattern(pattern, pattern), size)
        return 8 * size / one["seconds"] / 1e6

    each_of_four = rate("ring")
    return {
        "round_trip_ms": 1000 * statistics.median(pings),
        "megabits_of_one_link": rate("stream"),
        "megabits_of_each_of_four": each_of_four,
        "short_of_processors": each_of_four < _ENOUGH * megabits,
        "load": os.getloadavg()[0],
        "processors": len(os.sched_getaffinity(0)),
    }


def _of_net(meter: _Meter, net: Net, steps: int, step_ms: float | None) -> dict[str, Any]:
    alone = {
        name: meter.each(pattern, net.partition if name == "task" else net.floats)
        for name, pattern in PATTERNS.items()
        if pattern.times or name == "allreduce"
    }
    exchange = alone["allreduce"]["seconds"]
    computing = {"as an all-reduce": exchange, "half an all-reduce": exchange / 2}
    if step_ms is not None:
        computing["measured"] = step_ms / 1000
    return {
        "floats": net.floats,
        "partition_bytes": net.partition,
        "allreduce_ms": 1000 * exchange,
        "computing": {
            name: _epochs(meter, net, alone, steps, compute) for name, compute in computing.items()
        },
    }


def _epochs(
    meter: _Meter, net: Net, alone: Mapping[str, dict[str, float]], steps: int, compute: float
) -> dict[str, Any]:
    """An epoch of four models by each pattern, if a gradient takes so many seconds."""
    rows = {}
    for name, pattern in PATTERNS.items():
        if pattern.times is None:
            one, times = meter.each(pattern, net.floats, compute), steps
            epoch = times * one["seconds"]
        else:
            one, times = alone[name], pattern.times
            epoch = steps * compute + times * one["seconds"]
        rows[name] = {
            "each": pattern.each,
            "each_ms": 1000 * one["seconds"],
            "epoch_seconds": epoch,
            "communication": max(1 - steps * compute / epoch, 0.0),
            "megabytes": times * one["bytes"] / 1e6,
            "megabytes_of_busiest": times * one["bytes_of_busiest"] / 1e6,
            "interface_by_counted": one["bytes_of_interface"] / one["bytes"],
        }
    return {"step_ms": 1000 * compute, "patterns": rows, "ratios": _ratios(rows)}


def _ratios(rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Patterns beside each other, with what the papers report."""

    def ratio(one: str, other: str, key: str = "epoch_seconds") -> float:
        return float(rows[one][key] / rows[other][key])

    pipes = [
        {
            "name": f"time of allreduce / {name}",
            "value": ratio("allreduce", name),
            "paper": "2.0 to 3.2, where communication takes as long as computation or longer (Pipe-SGD)",
            "agrees": ratio("allreduce", name) > 1,
        }
        for name in rows
        if name.startswith("pipe")
    ]
    server = ratio("parameter_server, synchronous", "allreduce")
    less = [name for name in rows if rows[name]["megabytes"] < rows["hopping"]["megabytes"]]
    return [
        *pipes,
        {
            "name": "time of parameter_server, synchronous / allreduce",
            "value": server,
            "paper": "more than 1: a synchronous parameter server is slower than all-reduce (Pipe-SGD, Horovod)",
            "agrees": server > 1,
        },
        {
            "name": "time of hopping / allreduce",
            "value": ratio("hopping", "allreduce"),
            "paper": "less than 1: hopping exchanges once a partition, not once a mini-batch (Cerebro)",
            "agrees": ratio("hopping", "allreduce") < 1,
        },
        {
            "name": "bytes of hopping / allreduce",
            "value": ratio("hopping", "allreduce", "megabytes"),
            "paper": "hopping moves least (Cerebro)",
            "agrees": not less,
            "but": f"less is moved by {', '.join(less)}" if less else "",
        },
    ]


def show(results: Mapping[str, Any]) -> None:
    """Tables of all networks."""
    if "why_not" in results:
        print(results["why_not"])
        return
    for network in results["networks"]:
        _show_network(results, network)


def _show_network(results: Mapping[str, Any], network: Mapping[str, Any]) -> None:
    reached = network["reached"]
    counted = [
        row["interface_by_counted"]
        for net in network["nets"].values()
        for case in net["computing"].values()
        for row in case["patterns"].values()
    ]
    print(
        f"\n## {results['hosts']} hosts, {network['megabits']:,} Mbit/s, {results['delay_ms']} ms one way\n\n"
        f"Reached: {reached['megabits_of_one_link']:,.0f} Mbit/s from one host to another, "
        f"{reached['megabits_of_each_of_four']:,.0f} from each to the next at once; "
        f"{reached['round_trip_ms']:.2f} ms for a small message and its answer "
        f"({reached['processors']} processors, load {reached['load']:.1f}). "
        f"Interfaces count {min(counted):.3f} to {max(counted):.3f} times the bytes of the tables, with headers"
    )
    if reached["short_of_processors"]:
        print(
            "\nProcessors, not links, are what is short where all hosts send at once: hopping, task, allreduce and pipe "
            "would be faster on four machines, next to a parameter server, which waits for one link"
        )
    for name, net in network["nets"].items():
        for computing, case in net["computing"].items():
            print(
                f"\n### {name}: {net['floats']:,} numbers, a gradient takes {case['step_ms']:.2f} ms ({computing}); "
                f"{results['steps']} steps of each host in an epoch of 4 models\n"
            )
            _show_case(case)


def _show_case(case: Mapping[str, Any]) -> None:
    print("| pattern | ms | of one | epoch s | exchanging | MB of a host | of the busiest |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name, row in case["patterns"].items():
        print(
            f"| {name} | {row['each_ms']:.2f} | {row['each']} | {row['epoch_seconds']:.3f} "
            f"| {100 * row['communication']:.1f} % | {row['megabytes']:.1f} | {row['megabytes_of_busiest']:.1f} |"
        )
    print("\n| | measured | in the papers | direction agrees |\n|---|---:|---|---|")
    for one in case["ratios"]:
        agrees = "yes" if one["agrees"] else f"no: {one['but']}" if one.get("but") else "no"
        print(f"| {one['name']} | {one['value']:.2f} | {one['paper']} | {agrees} |")


def main() -> None:
    """Measure, and show tables."""
    given = _arguments()
    if given.host:
        serve()
        return
    nets = {**NETS, "large": NETS["large"]._replace(floats=given.large_floats)}
    results = measure(
        nets,
        given.megabits,
        given.delay_ms,
        given.steps,
        given.step_ms,
        given.rounds,
        lambda line: print(line, file=sys.stderr),
    )
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    show(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--megabits", type=_rates, default=[1000, 10000], help="a second; several")
    parser.add_argument("--delay-ms", type=float, default=0.2, help="one way")
    parser.add_argument("--steps", type=int, default=100, help="of a host in an epoch of 4 models")
    parser.add_argument("--large-floats", type=int, default=NETS["large"].floats)
    parser.add_argument("--step-ms", type=_step_times, default={}, help="of a gradient: net=ms,...")
    parser.add_argument("--rounds", type=int, default=3, help="of each, of which the median counts")
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("--host", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _rates(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _step_times(text: str) -> dict[str, float]:
    found = dict(one.split("=", 1) for one in text.split(","))
    if unknown := set(found) - set(NETS):
        raise argparse.ArgumentTypeError(f"got {', '.join(sorted(unknown))}")
    return {name: float(value) for name, value in found.items()}


if __name__ == "__main__":
    main()
