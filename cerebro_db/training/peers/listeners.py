"""Links between trainers of several hosts: listeners, and the handshake of a connection.

A trainer listens on an address of its host within the network that an administrator has allowed. It connects
to the trainers of lower ranks, and accepts those of higher ones. Both ends of a connection prove by HMAC that
they know the secret of their process group, and which ranks of it they have. What follows is neither
encrypted nor signed.
"""

from __future__ import annotations

import array
import errno
import fcntl
import hmac
import ipaddress
import math
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import NamedTuple

from cerebro_db.configs.settings import ports
from cerebro_db.errors import PeersApart

Tick = Callable[[], None]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
CONNECT_SECONDS = 5.0
_HANDSHAKE_SECONDS = 5.0
# For trainers of before to leave their ports.
_PORT_SECONDS, _PORT_WAIT_SECONDS = 10.0, 0.1
_WAIT_SECONDS = 0.1
_WAITING = 1024  # connections that nobody has looked at yet
# Connections that have not proved anything, at a time, beside those that are awaited.
_STRANGERS = 64
# A host that says nothing any more is asked after so many seconds, so often; no limit for what it takes to read
# what was sent, as its step may take longer.
_SILENT_SECONDS, _TRIES = 10, 3
_REFUSALS = (OSError, EOFError, AuthenticationError)
# What accept tells of a connection that has ended already, or of the network, as accept(2) lists it.
_TRANSIENT = {
    errno.EAGAIN, errno.ECONNABORTED, errno.EINTR, errno.ENETDOWN, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT,
    errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT,
}  # fmt: skip
# Who accepts sends a nonce; who connects sends one, its rank and the rank that it means, and the proof of
# these; who accepts answers with its own proof. Each proof is good for one direction.
_HASH, _NONCE = "sha256", 32
_RANKS = struct.Struct("<2I")
_HELLO = struct.Struct(f"<{_NONCE}s{_RANKS.size}s32s")
_CLIENT, _SERVER, _REFUSED = b"comes", b"lets in", bytes(32)
Steps = Generator[int, bytes, int]


class Address(NamedTuple):
    """Address on which a trainer listens.

    Attributes:
        host: its name, for people.
        ip: of version 4 or 6.
        port: of TCP.
    """

    host: str
    ip: str
    port: int

    def __str__(self) -> str:
        ip = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{ip}:{self.port} of host {self.host}"


@dataclass(frozen=True)
class Credential:
    """Credential by which a connection belongs to a process group.

    Attributes:
        secret: that all of its trainers know.
        rank: of this one.
    """

    secret: bytes
    rank: int

    def proof(self, *parts: bytes) -> bytes:
        """Proof of knowing the secret, for these parts; all but the first have one length."""
        return hmac.digest(self.secret, b"".join(parts), _HASH)


class Links(NamedTuple):
    """Links of a trainer to the others of its process group.

    Attributes:
        links: by rank.
        errors: of those that could not be reached, by rank.
    """

    links: dict[int, socket.socket]
    errors: dict[int, PeersApart]


class Listener:
    """Listening socket of a trainer, which stays where it is from round to round.

    Args:
        network: within which all addresses have to be, such as ``10.1.0.0/16``.
        among: ports to choose from, such as ``40000-40999``; empty for any.
        tick: called while waiting for a port; raises to end that.

    Attributes:
        network: as above.
        address: where it is.

    Raises:
        PeersApart: this host has no address there, or none of the ports gets free.
    """

    def __init__(self, network: str, among: str = "", tick: Tick = lambda: None) -> None:
        self.network: Network = ipaddress.ip_network(network)
        self._ports = ports(among)
        ip = address_in(self.network)
        self.socket = _listening(ip, self._ports, tick)
        self.address = Address(_host(), ip, self.socket.getsockname()[1])

    def connect(
        self, own: Credential, addresses: Sequence[Address], tick: Tick, seconds: float = math.inf
    ) -> Links:
        """Connect to the trainers of lower ranks, and accept those of higher ones only.

        Args:
            own: rank of this one, and what all of them know.
            addresses: of all of them, by their ranks.
            tick: called while waiting; raises to end that.
            seconds: until when all of them are tried; without, it ends with the first one that cannot be reached.

        Raises:
            PeersApart: an address is not among those that are allowed.
        """
        found, deadline = _Connecting(self, own, addresses), time.monotonic() + seconds
        try:
            while found.awaited and not (found.made.errors and seconds == math.inf):
                found.serve()
                tick()
                if time.monotonic() > deadline:
                    found.give_up(seconds)
                    break
        except BaseException:
            found.drop_links()
            raise
        finally:
            found.close()
        return found.made

    def apart(self, address: Address, reason: str) -> PeersApart:
        """Error of two hosts between which there is no way."""
        return PeersApart(f"host {self.address.host} cannot reach {address}: {reason}")

    def close(self) -> None:
        """Listen no more."""
        self.socket.close()

    def check(self, address: Address) -> None:
        """Refuse an address to which this trainer may not go.

        Raises:
            PeersApart: it is not among those that are allowed.
        """
        with suppress(ValueError):
            is_within = ipaddress.ip_address(address.ip) in self.network
            if is_within and (not self._ports or address.port in self._ports):
                return
        among = f" and ports {self._ports.start} to {self._ports.stop - 1}" if self._ports else ""
        raise PeersApart(
            f"peers: got the address {address}; allowed: those within {self.network}{among}"
        )


class _Handshake:
    """Handshake of a new connection, whose ends prove who they are.

    Args:
        one: the connection, which does not block.
        steps: of the proof: yield how many bytes they want, get these, and end with a rank.
        rank: of the trainer that this one connects to; None where one was accepted.
        seconds: that it may take.

    Attributes:
        link, rank: as above.
        is_connecting: whether the other end has not answered yet.
    """

    def __init__(self, one: socket.socket, steps: Steps, rank: int | None, seconds: float) -> None:
        self.link, self.rank, self._steps = one, rank, steps
        self.is_connecting = rank is not None
        self._came, self._wanted = b"", next(steps)
        self.limit(seconds)

    def limit(self, seconds: float) -> None:
        """Allow it so many seconds from now."""
        self._deadline, self._seconds = time.monotonic() + seconds, seconds

    def check_time(self) -> None:
        """Refuse one that takes too long."""
        if time.monotonic() > self._deadline:
            raise OSError(errno.ETIMEDOUT, f"no answer within {self._seconds:g} s")

    def connected(self) -> None:
        """Take note that the other end is reached, which may be at something else for a while."""
        code = self.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        _set_up(self.link)
        self.is_connecting = False
        self.limit(math.inf)

    def advance(self) -> int | None:
        """Take the bytes that are there; at the end returns the rank of the other trainer."""
        with suppress(BlockingIOError):
            came = self.link.recv(self._wanted - len(self._came))
            if not came:
                raise EOFError
            self._came += came
        if len(self._came) < self._wanted:
            return None
        whole, self._came = self._came, b""
        try:
            self._wanted = self._steps.send(whole)
        except StopIteration as end:
            return int(end.value)
        self.limit(_HANDSHAKE_SECONDS)
        return None


class _Connecting:
    """Handshakes of a trainer with all others of its process group, whichever can go on.

    Attributes:
        made: links, and errors.
        awaited: ranks to which there is neither yet.
    """

    def __init__(self, listener: Listener, own: Credential, addresses: Sequence[Address]) -> None:
        self._listener, self._own, self._addresses = listener, own, addresses
        for address in addresses[: own.rank]:
            listener.check(address)
        self.made, self.awaited = Links({}, {}), set(range(len(addresses))) - {own.rank}
        self._handshakes: dict[
            int, _Handshake
        ] = {}  # by the numbers of their sockets, the oldest first
        self._poll = select.poll()
        self._poll.register(listener.socket, select.POLLIN)
        for rank in range(own.rank):
            self._begin(rank)

    def serve(self) -> None:
        """Have those go on who can, or wait a moment."""
        for number, _ in self._poll.poll(_WAIT_SECONDS * 1e3):
            if number == self._listener.socket.fileno():
                self._accept()
            elif number in self._handshakes:
                handshake = self._handshakes[number]
                self._try(handshake, partial(self._go_on, handshake))
        for handshake in list(self._handshakes.values()):
            self._try(handshake, handshake.check_time)

    def give_up(self, seconds: float) -> None:
        """Take note of those that have not accepted this one."""
        for handshake in self._handshakes.values():
            if handshake.rank is not None:
                self._unreached(handshake.rank, f"it let nobody in within {seconds:g} s")

    def drop_links(self) -> None:
        """Close the links that were made."""
        for link in self.made.links.values():
            link.close()

    def close(self) -> None:
        """Close the connections that have proved nothing."""
        for handshake in self._handshakes.values():
            handshake.link.close()

    def _begin(self, rank: int) -> None:
        """Begin to connect to another one."""
        address = self._addresses[rank]
        one = socket.socket(_family(address.ip), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        handshake = _Handshake(one, _prove(one, self._own, rank), rank, CONNECT_SECONDS)
        self._handshakes[one.fileno()] = handshake
        self._poll.register(one, select.POLLOUT)
        self._try(handshake, partial(self._connect, one, address))

    def _connect(self, one: socket.socket, address: Address) -> None:
        one.bind((self._listener.address.ip, 0))  # as which the other one lets it in
        with suppress(BlockingIOError):
            one.connect(address[1:])

    def _accept(self) -> None:
        """Begin the handshake of a connection that has come."""
        try:
            one, (ip, *_) = self._listener.socket.accept()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
            return
        try:
            if ipaddress.ip_address(ip.partition("%")[0]) not in self._listener.network:
                raise AuthenticationError
            _set_up(one)
            one.setblocking(False)
            steps = _verify(one, self._own, self.awaited)
            self._handshakes[one.fileno()] = _Handshake(one, steps, None, _HANDSHAKE_SECONDS)
            self._poll.register(one, select.POLLIN)
        except _REFUSALS:
            self._handshakes.pop(one.fileno(), None)
            one.close()
        came = [handshake for handshake in self._handshakes.values() if handshake.rank is None]
        if len(came) > len(self.awaited) + _STRANGERS:
            self._end(came[0])
            came[0].link.close()

    def _go_on(self, handshake: _Handshake) -> None:
        if handshake.is_connecting:
            handshake.connected()
            self._poll.modify(handshake.link, select.POLLIN)
            return
        rank = handshake.advance()
        if rank is not None:
            self._end(handshake)
            self.made.links[rank] = handshake.link
            self.awaited.discard(rank)

    def _try(self, handshake: _Handshake, work: Callable[[], None]) -> None:
        """Do a part of a handshake; one that fails is closed."""
        try:
            work()
        except _REFUSALS as error:
            self._end(handshake)
            handshake.link.close()
            if handshake.rank is not None:
                self._unreached(handshake.rank, _reason(error))

    def _end(self, handshake: _Handshake) -> None:
        self._poll.unregister(handshake.link)
        del self._handshakes[handshake.link.fileno()]

    def _unreached(self, rank: int, reason: str) -> None:
        self.made.errors[rank] = self._listener.apart(self._addresses[rank], reason)
        self.awaited.discard(rank)


def _prove(one: socket.socket, own: Credential, rank: int) -> Steps:
    """Handshake of the end that connects: prove to belong to the group to a rank, and have that prove it."""
    theirs = yield _NONCE
    mine, ranks = os.urandom(_NONCE), _RANKS.pack(own.rank, rank)
    _send(one, _HELLO.pack(mine, ranks, own.proof(_CLIENT, theirs, mine, ranks)))
    answer = yield len(_REFUSED)
    if not hmac.compare_digest(answer, own.proof(_SERVER, theirs, mine, ranks)):
        raise AuthenticationError
    return rank


def _verify(one: socket.socket, own: Credential, awaited: set[int]) -> Steps:
    """Handshake of the end that accepts: have the other one prove that it belongs to the group, and prove it to that."""
    mine = os.urandom(_NONCE)
    _send(one, mine)
    theirs, ranks, proof = _HELLO.unpack((yield _HELLO.size))
    if not hmac.compare_digest(proof, own.proof(_CLIENT, mine, theirs, ranks)):
        _send(one, _REFUSED)
        raise AuthenticationError
    rank, wanted = _RANKS.unpack(ranks)
    # Where hosts have the same address each for itself, it has come to another one than it meant.
    if wanted != own.rank or rank not in awaited or rank < own.rank:
        raise EOFError
    _send(one, own.proof(_SERVER, mine, theirs, ranks))
    return int(rank)


def _send(one: socket.socket, message: bytes) -> None:
    """Send a message, for which there is room in a connection that is new."""
    if one.send(message) < len(message):
        raise EOFError


def address_in(network: Network) -> str:
    """The first address of this host within a network.

    Raises:
        PeersApart: it has none there.
    """
    own = own_addresses()
    for ip in own:
        if ipaddress.ip_address(ip) in network:
            return ip
    raise PeersApart(
        f"setting peer_network: got {network}; allowed: a network in which host {_host()} has an "
        f"address, of which it has {', '.join(own) or 'none'}"
    )


def _host() -> str:
    return os.uname().nodename


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _listening(ip: str, among: range, tick: Tick) -> socket.socket:
    """A socket that listens on the first port that is free, or gets free soon."""
    deadline = time.monotonic() + _PORT_SECONDS
    while True:
        for port in among or (0,):
            one = socket.socket(_family(ip), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                if port:  # also where connections of before have just ended
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((ip, port))
                one.listen(_WAITING)
                return one
            except OSError as error:
                one.close()
                reason = error.strerror
        if time.monotonic() > deadline:
            break
        tick()
        time.sleep(_PORT_WAIT_SECONDS)
    got = f"{among.start}-{among.stop - 1}" if among else "none"
    raise PeersApart(
        f"setting peer_ports: got {got}; allowed: ports of which one is free on {ip} of host {_host()}: {reason}",
        hint="each trainer of a host takes one, and for a while those of before have theirs: give at least twice as "
        "many as the host has segments, for each run that goes on at the same time",
    )


def _reason(error: BaseException) -> str:
    """Why another trainer did not let this one in, or could not be reached."""
    if isinstance(error, AuthenticationError):
        return "it knows another secret"
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or "the connection was closed before it was known who is who"


def _set_up(one: socket.socket) -> None:
    """Have a connection send at once, and end where the other host says nothing any more."""
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_SECONDS)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENT_SECONDS)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _TRIES)


# What other ways to ask need, a netlink socket, trainers are refused.
_SIOCGIFCONF = 0x8912
_MOST_INTERFACES = 1024
_INTERFACE = struct.Struct("16sHH4s16x")  # name, family, port, address
_INTERFACES = struct.Struct("iP")
_INTERFACES_OF_6 = Path("/proc/net/if_inet6")


def own_addresses() -> list[str]:
    """Addresses of this host, those of version 4 first."""
    size = _MOST_INTERFACES * _INTERFACE.size
    found = array.array("B", bytes(size))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        asked = _INTERFACES.pack(size, found.buffer_info()[0])
        used, _ = _INTERFACES.unpack(fcntl.ioctl(one, _SIOCGIFCONF, asked))
    rows = _INTERFACE.iter_unpack(found.tobytes()[:used])
    listed = [socket.inet_ntop(socket.AF_INET, ip) for _, _, _, ip in rows]
    with suppress(FileNotFoundError):  # of a host that has only version 4
        for line in _INTERFACES_OF_6.read_text().splitlines():
            listed.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    # Those of a link alone mean nothing without the name of an interface.
    return [one for one in listed if ":" not in one or not ipaddress.ip_address(one).is_link_local]
