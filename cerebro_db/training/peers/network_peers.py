"""Peers of several hosts: they exchange arrays by TCP, each with each, to the same bits as through shared memory.

Every number has an owner, who gets it from all, sums in the order of the ranks, and hands the mean to all.
Where less is moved if everybody gets everything, coded, each makes all sums. Arrays are sent from where they
are and received where they are used; who waits to send receives meanwhile, so that nobody waits for ever.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from cerebro_db.errors import InvalidArgument, PeerLost, PeersApart
from cerebro_db.training.peers.listeners import Address, Credential, Listener, Tick
from cerebro_db.training.peers.peers import (
    CODINGS,
    MAX_FLOATS,
    Coding,
    Exchange,
    Peers,
    ProcessGroup,
    mean_of,
    share_of,
)

# Of a look whether all can reach each other, which begins at about the same time everywhere.
_REACH_SECONDS = 15.0
_WAIT_SECONDS = 0.1
_BITS = 32  # of a number of a mean
_PART = struct.Struct("<2d")  # rows, scale
_SIZE = struct.Struct("<Q")
_MOST_BYTES = 2**24
_BLOCK = 2**18  # numbers that are summed at a time: the same bits, and less memory
Incoming = Iterator[memoryview]


def peers_of(process_group: ProcessGroup, floats: int, tick: Tick) -> Exchange:
    """The peers of a trainer, on one host or on several, when all are there."""
    return (
        NetworkPeers(process_group, floats, tick)
        if process_group.addresses
        else Peers(process_group, floats, tick)
    )


class NetworkPeers:
    """Peers of several hosts.

    Args:
        process_group: of which this one is.
        floats: the most numbers of an array that is exchanged, the same for all of them.
        tick: called now and then while waiting; raises to end that.

    Attributes:
        tick: as above.

    Raises:
        PeersApart: one of them cannot be reached.
        PeerLost: one of them has ended; also by the methods.
    """

    def __init__(self, process_group: ProcessGroup, floats: int, tick: Tick) -> None:
        if not 0 < floats <= MAX_FLOATS:
            raise InvalidArgument(f"floats: got {floats}; allowed: 1 to {MAX_FLOATS}")
        self._rank, self._size, self.tick = process_group.rank, process_group.size, tick
        self._is_root, self._bits = process_group.is_root, process_group.bits
        self._links: dict[int, socket.socket] = {}
        # Memory for what each of the others sends.
        self._rooms: dict[int, np.ndarray] = {}
        try:
            self._connect(process_group)
        except BaseException:
            self.close()
            raise
        self._addresses = process_group.addresses

    # -- together --------------------------------------------------------------------
    def mean(
        self, own: np.ndarray | None, rows: float, count: int, *, exact: bool = False
    ) -> np.ndarray:
        """Mean of the arrays of all peers, weighted by rows."""
        bits = 32 if exact else self._bits
        coding, heads = CODINGS[bits], np.zeros((self._size, 2))
        coded = np.zeros(0, coding.dtype)
        if own is not None and rows > 0:
            coded, scale = coding.coded(np.ascontiguousarray(own, np.float32))
            heads[self._rank] = rows, scale
        goes_to_all = bits * (self._size - 1) <= _BITS
        shares = [
            slice(0, count) if goes_to_all else share_of(count, rank, self._size)
            for rank in range(self._size)
        ]
        parts = self._parts(coding, coded, heads, shares)
        share = shares[self._rank]
        mean = np.empty(count, np.float32)
        for start in range(0, share.stop - share.start, _BLOCK):
            block = mean[share][start : start + _BLOCK]
            read = (
                coding.read(part[start : start + _BLOCK], scale)
                for part, scale in zip(parts, heads[:, 1], strict=True)
            )
            block[:] = mean_of(read, heads[:, 0], len(block))
        if not goes_to_all:
            self._exchange(
                {rank: [_bytes_of(mean[share])] for rank in self._links},
                {rank: iter([_bytes_of(mean[shares[rank]])]) for rank in self._links},
            )
        return mean

    def gather(self, message: Any) -> list[Any]:
        """Messages of all peers, for the root."""
        own = json.dumps(message).encode()
        sent = [memoryview(_SIZE.pack(len(own))), memoryview(own)]
        found: dict[int, bytearray] = {}

        def incoming(rank: int) -> Incoming:
            size = bytearray(_SIZE.size)
            yield memoryview(size)
            (length,) = _SIZE.unpack(size)
            if length > _MOST_BYTES:
                raise PeerLost(f"got a message of {length} bytes of a peer; allowed: {_MOST_BYTES}")
            found[rank] = bytearray(length)
            yield memoryview(found[rank])

        self._exchange(
            dict.fromkeys(self._links, sent),
            {rank: incoming(rank) for rank in self._links},
        )
        if not self._is_root:
            return []
        texts = found | {self._rank: bytearray(own)}
        return [json.loads(texts[rank]) for rank in sorted(texts)]

    def close(self) -> None:
        """Leave the others."""
        for link in self._links.values():
            with suppress(OSError):
                link.close()
        self._links = {}

    # -- inside ----------------------------------------------------------------------
    def _connect(self, process_group: ProcessGroup) -> None:
        """Connect to all of them."""
        listener, own = (
            _listener_of(process_group),
            Credential(process_group.secret, process_group.rank),
        )
        self._links, errors = listener.connect(own, process_group.addresses, self.tick)
        for error in errors.values():
            raise error

    def _parts(
        self, coding: Coding, own: np.ndarray, heads: np.ndarray, shares: Sequence[slice]
    ) -> list[np.ndarray]:
        """Arrays of all peers for the numbers whose sums this one makes; ``heads`` gets rows and scales.

        Of those without rows nothing comes.
        """
        share = shares[self._rank]
        found: dict[int, np.ndarray] = {self._rank: own[share]}

        def incoming(rank: int) -> Incoming:
            head = bytearray(_PART.size)
            yield memoryview(head)
            heads[rank] = _PART.unpack(head)
            found[rank] = np.zeros(0, coding.dtype)
            if heads[rank, 0] > 0:
                room = self._room(rank, (share.stop - share.start) * own.itemsize)
                found[rank] = room.view(coding.dtype)
                yield room.data

        head = memoryview(_PART.pack(*heads[self._rank]))
        self._exchange(
            {rank: [head, _bytes_of(own[shares[rank]])] for rank in self._links},
            {rank: incoming(rank) for rank in self._links},
        )
        return [found[rank] for rank in range(self._size)]

    def _room(self, rank: int, size: int) -> np.ndarray:
        """So many bytes for what comes from a rank, the same ones each time."""
        if rank not in self._rooms or len(self._rooms[rank]) < size:
            self._rooms[rank] = np.empty(size, np.uint8)
        return self._rooms[rank][:size]

    def _exchange(
        self, out: Mapping[int, Sequence[memoryview]], into: Mapping[int, Incoming]
    ) -> None:
        """Send to all, and receive from all, until everything has gone and come."""
        poll, ticked = select.poll(), time.monotonic()
        flows: dict[int, _Flow] = {}
        # Each begins with the one after it, so that not all send to the same one.
        for rank in sorted(self._links, key=lambda rank: (rank - self._rank) % self._size):
            flow = _Flow(self._links[rank], out[rank], into[rank], self._addresses[rank])
            if flow.wants:
                flows[flow.number] = flow
                poll.register(flow.number, flow.wants)
        while flows:
            for number, _ in poll.poll(_WAIT_SECONDS * 1e3):
                flow = flows[number]
                flow.go_on()
                if flow.wants:
                    poll.modify(number, flow.wants)
                else:
                    poll.unregister(number)
                    del flows[number]
            if time.monotonic() - ticked > _WAIT_SECONDS:
                self.tick()
                ticked = time.monotonic()


class _Flow:
    """Numbers that go to a peer, and that come from it, at the same time.

    Args:
        link: to the peer.
        out: what goes there.
        into: where to put what comes; the next rank is asked for when one is full.
        address: of the peer.

    Attributes:
        number: of the socket, as the system knows it.
    """

    def __init__(
        self, link: socket.socket, out: Sequence[memoryview], into: Incoming, address: Address
    ) -> None:
        self._link, self._into, self._address = link, into, address
        self.number = link.fileno()
        self._out = deque(view for view in out if len(view))
        self._free = self._next()

    @property
    def wants(self) -> int:
        """Events to wait for; 0 at the end."""
        sends = select.POLLOUT if self._out else 0
        return sends | (select.POLLIN if self._free is not None else 0)

    def go_on(self) -> None:
        """Send and receive what is possible now."""
        try:
            with suppress(BlockingIOError):
                self._send()
            with suppress(BlockingIOError):
                self._receive()
        except OSError:
            raise self._lost() from None

    def _send(self) -> None:
        while self._out:
            sent = self._link.send(self._out[0])
            self._out[0] = self._out[0][sent:]
            if not len(self._out[0]):
                self._out.popleft()

    def _receive(self) -> None:
        while self._free is not None:
            came = self._link.recv_into(self._free)
            if not came:
                raise self._lost()
            self._free = self._free[came:]
            if not len(self._free):
                self._free = self._next()

    def _lost(self) -> PeerLost:
        return PeerLost(f"the peer at {self._address} has ended")

    def _next(self) -> memoryview | None:
        return next((view for view in self._into if len(view)), None)


def unreached(process_group: ProcessGroup, tick: Tick) -> list[tuple[int, str]]:
    """Ranks that this trainer cannot reach, and why; all of the group look at the same time.

    Args:
        process_group: of which nothing but the way to each other is tried.
        tick: called while waiting; raises to end that.
    """
    own = Credential(process_group.secret, process_group.rank)
    links, errors = _listener_of(process_group).connect(
        own, process_group.addresses, tick, _REACH_SECONDS
    )
    for link in links.values():
        link.close()
    return [(rank, error.message) for rank, error in sorted(errors.items())]


def _listener_of(process_group: ProcessGroup) -> Listener:
    """The listener of a trainer, which still has the address that the others know.

    Raises:
        PeersApart: it is not.
    """
    listener = process_group.listener
    address = process_group.addresses[process_group.rank]
    if listener is None:
        raise PeersApart(
            f"peers: got the address {address} in a trainer that does not listen", hint=_ELSEWHERE
        )
    if listener.address[1:] != address[1:]:
        raise PeersApart(
            f"peers: got the address {address} in a trainer that listens on {listener.address}",
            hint=_ELSEWHERE,
        )
    return listener


_ELSEWHERE = "the round is made again, with trainers that tell anew where they listen"


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of an array, byte by byte."""
    return array.data.cast("B") if len(array) else memoryview(b"")
