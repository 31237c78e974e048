"""Peers: trainers that compute together; those of one host exchange arrays through shared memory.

They connect to a Unix socket of the root, whose name and secret the run has given them. Each of them is checked:
it has the same user of the operating system, and it knows the secret. The root hands out a piece of memory
that has no name; only words of a byte go through the sockets. One that has ended is noticed at once, as
its sockets are closed.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple, Protocol

import numpy as np

from cerebro_db.errors import InvalidArgument, PeerLost
from cerebro_db.training.peers.listeners import Address, Listener, Tick

_TRY_SECONDS, _LISTEN_SECONDS = 0.002, 0.1
MAX_FLOATS = 2**33
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_TIMEOUT = struct.pack("ll", 0, int(_LISTEN_SECONDS * 1e6))
_WORD = b"."


@dataclass(frozen=True)
class ProcessGroup:
    """ProcessGroup point of peers.

    Attributes:
        name: of the socket, which no file has; of those of several hosts nothing.
        secret: that each of them knows.
        size: how many they are.
        rank: of this one, from 0; sums are made in the order of the ranks.
        is_root: whether it hands out the memory, and leaves the state of the round.
        bits: of a number of an array that is averaged, unless it must be exact: 32, 16 or 8.
        addresses: of all of them by rank, where they are on several hosts.
        listener: of this one, where they are on several hosts.
    """

    name: str
    secret: bytes
    size: int
    rank: int
    is_root: bool
    bits: int = 32
    addresses: Sequence[Address] = ()
    listener: Listener | None = None


class Exchange(Protocol):
    """The peers of one trainer, each of which calls the same methods in the same order.

    Attributes:
        tick: called now and then while waiting; raises to end that.

    Raises:
        PeerLost: one of them has ended; by all methods.
    """

    tick: Tick

    def mean(
        self, own: np.ndarray | None, rows: float, count: int, *, exact: bool = False
    ) -> np.ndarray:
        """Mean of the arrays of all peers, weighted by rows; each peer gets the same bits.

        Args:
            own: ``float32[count]`` of this one; None where it has no rows.
            rows: that it counts for.
            count: numbers of the arrays.
            exact: whether they are exchanged as they are.
        """

    def gather(self, message: Any) -> list[Any]:
        """Messages of all peers, as JSON, by rank; the root gets them, others nothing."""

    def close(self) -> None:
        """Leave the others."""


class Peers:
    """Peers of one host.

    Args:
        process_group: of which this one is.
        floats: the most numbers of an array that is exchanged, the same for all of them.
        tick: called now and then while waiting; raises to end that.

    Attributes:
        tick: as above.

    Raises:
        PeerLost: one of them has ended; also by the methods.
    """

    def __init__(self, process_group: ProcessGroup, floats: int, tick: Tick) -> None:
        if not 0 < floats <= MAX_FLOATS:
            raise InvalidArgument(f"floats: got {floats}; allowed: 1 to {MAX_FLOATS}")
        self._rank, self._size, self.tick = process_group.rank, process_group.size, tick
        self._is_root, self._bits = process_group.is_root, process_group.bits
        self._links: list[Connection] = []
        try:
            handle = (
                self._as_root(process_group, floats)
                if process_group.is_root
                else self._as_member(process_group)
            )
        except (OSError, EOFError, AuthenticationError) as error:
            self.close()
            raise PeerLost(f"peers did not meet: {error or type(error).__name__}") from None
        except BaseException:
            self.close()
            raise
        with os.fdopen(handle, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _bytes(process_group.size, floats))
        numbers = np.frombuffer(self._memory, np.float64, count=2 * process_group.size)
        self._rows, self._scales = numbers[: process_group.size], numbers[process_group.size :]
        whole = np.frombuffer(self._memory, np.float32, offset=16 * process_group.size)
        self._parts = whole[: process_group.size * floats].reshape(process_group.size, floats)
        self._sum = whole[process_group.size * floats :]

    # -- together --------------------------------------------------------------------
    def mean(
        self, own: np.ndarray | None, rows: float, count: int, *, exact: bool = False
    ) -> np.ndarray:
        """Mean of the arrays of all peers, weighted by rows."""
        coding = CODINGS[32 if exact else self._bits]
        self._rows[self._rank] = 0.0 if own is None else rows
        if own is not None:
            coded, self._scales[self._rank] = coding.coded(own)
            self._parts[self._rank].view(coding.dtype)[:count] = coded
        self._barrier()
        share = share_of(count, self._rank, self._size)
        parts = (
            coding.read(self._parts[rank].view(coding.dtype)[share], self._scales[rank])
            for rank in range(self._size)
        )
        self._sum[share] = mean_of(parts, self._rows, share.stop - share.start)
        self._barrier()
        return self._sum[:count].copy()

    def gather(self, message: Any) -> list[Any]:
        """Messages of all peers, for the root."""
        if not self._is_root:
            self._links[0].send_bytes(json.dumps([self._rank, message]).encode())
            return []
        found = {self._rank: message}
        for link in self._links:
            rank, theirs = json.loads(self._received(link))
            found[rank] = theirs
        return [found[rank] for rank in sorted(found)]

    def close(self) -> None:
        """Leave the others."""
        for link in self._links:
            with suppress(OSError):
                link.close()
        self._links = []

    def _barrier(self) -> None:
        """Wait until all peers have come here."""
        if self._is_root:
            for link in self._links:
                self._received(link)
            for link in self._links:
                self._send(link)
        else:
            self._send(self._links[0])
            self._received(self._links[0])

    def _send(self, link: Connection) -> None:
        try:
            link.send_bytes(_WORD)
        except OSError:
            raise PeerLost("a peer has ended") from None

    def _received(self, link: Connection) -> bytes:
        while True:
            try:
                return link.recv_bytes()
            except BlockingIOError:  # nothing has come for a while
                self.tick()
            except (OSError, EOFError):
                raise PeerLost("a peer has ended") from None

    # -- process_group -----------------------------------------------------------------------
    def _as_root(self, process_group: ProcessGroup, floats: int) -> int:
        """Accept the others; returns the memory."""
        handle = os.memfd_create("cerebro peers", os.MFD_CLOEXEC)
        try:
            os.truncate(handle, _bytes(process_group.size, floats))
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(_address(process_group))
                listener.listen(process_group.size)
                listener.settimeout(_LISTEN_SECONDS)
                while len(self._links) < process_group.size - 1:
                    self._accept(listener, process_group, floats, handle)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _accept(
        self, listener: socket.socket, process_group: ProcessGroup, floats: int, handle: int
    ) -> None:
        try:
            came, _ = listener.accept()
        except TimeoutError:
            self.tick()
            return
        if not _is_of_this_user(came):
            came.close()
            return
        link = _link(came)
        deliver_challenge(link, process_group.secret)
        answer_challenge(link, process_group.secret)
        link.send_bytes(json.dumps(floats).encode())
        send_handle(link, handle, None)
        self._links.append(impatient(link))

    def _as_member(self, process_group: ProcessGroup) -> int:
        """Connect to the root; returns the memory."""
        while True:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.connect(_address(process_group))
                break
            except (ConnectionRefusedError, FileNotFoundError):
                listener.close()
                self.tick()
                time.sleep(_TRY_SECONDS)
        if not _is_of_this_user(listener):
            listener.close()
            raise PeerLost("peers did not meet: their socket was taken by another user")
        link = _link(listener)
        self._links.append(link)
        answer_challenge(link, process_group.secret)
        deliver_challenge(link, process_group.secret)
        link.recv_bytes()
        handle = int(recv_handle(link))
        impatient(link)
        return handle


def share_of(count: int, rank: int, size: int) -> slice:
    """The numbers of which one of some peers makes the sums."""
    return slice(count * rank // size, count * (rank + 1) // size)


def mean_of(
    parts: Iterable[np.ndarray], rows: Sequence[float] | np.ndarray, count: int
) -> np.ndarray:
    """The mean of arrays, ``float64[count]``, weighted by rows; summed in double precision, in their order."""
    total, found = math.fsum(rows), np.zeros(count)
    for part, weight in zip(parts, rows, strict=True):
        if weight > 0:
            found += part * np.float64(weight / total)
    return found


class Coding(NamedTuple):
    """Coding of numbers that are exchanged.

    Attributes:
        dtype: of what is exchanged.
        coded: makes that of ``float32[n]``, with a scale.
        read: makes numbers of it.
    """

    dtype: type[np.generic]
    coded: Callable[[np.ndarray], tuple[np.ndarray, float]]
    read: Callable[[np.ndarray, float], np.ndarray]


def _scaled(numbers: np.ndarray) -> tuple[np.ndarray, float]:
    """The nearest of 255 steps between the negative and the positive of the largest number."""
    scale = float(np.abs(numbers).max(initial=0.0)) / _MOST
    if not scale:
        return np.zeros(numbers.shape, np.int8), 0.0
    return np.rint(numbers / np.float32(scale)).astype(np.int8), scale


_MOST = 127
# Of 16 bits are the first ones of a float: its sign, its exponent, and 7 bits of its mantissa.
CODINGS = {
    32: Coding(np.float32, lambda numbers: (numbers, 1.0), lambda part, scale: part),
    16: Coding(
        np.uint16,
        lambda numbers: ((numbers.view(np.uint32) >> 16).astype(np.uint16), 1.0),
        lambda part, scale: (part.astype(np.uint32) << 16).view(np.float32),
    ),
    8: Coding(np.int8, _scaled, lambda part, scale: part * scale),
}


def _bytes(size: int, floats: int) -> int:
    """Size of the shared memory: rows and scale of each peer, an array of each, and their mean."""
    return 16 * size + 4 * floats * (size + 1)


def _address(process_group: ProcessGroup) -> str:
    return f"\0{process_group.name}"


def _is_of_this_user(one: socket.socket) -> bool:
    data = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(data)[1] == os.geteuid())


def _link(one: socket.socket) -> Connection:
    one.setblocking(True)
    return Connection(one.detach())


def impatient(link: Connection) -> Connection:
    """The connection, where waiting for a message ends after a while."""
    with socket.fromfd(link.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
    return link
