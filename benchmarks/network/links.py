"""Connections of one host with all others."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

HOSTS = 4
ADDRESS = "10.77.0.{}"
_PORT = 7700
_PATIENCE_SECONDS = 60
_SO_TIMESTAMPNS = 35  # of Linux; Python has no name for it
_TIME, _CLOCK = struct.Struct("ll"), struct.Struct("d")


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
        with socket.create_server((ADDRESS.format(place + 1), _PORT)) as door:
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
            return socket.create_connection((ADDRESS.format(place + 1), _PORT), timeout=5)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
