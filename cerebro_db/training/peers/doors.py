"""Doors: where trainers of several hosts find each other, and who is let in.

A trainer listens on an address of its host within the network that an administrator has allowed. Both ends of
a connection prove by HMAC that they know the secret of their round, and which places of it they have. What
follows is neither encrypted nor signed.
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
# Of those that have not proved anything so many are heard at a time, beside those that are awaited.
_STRANGERS = 64
# A host that says nothing any more is asked after so many seconds, so often; no limit for what it takes to read
# what was sent, as its step may take longer.
_SILENT_SECONDS, _TRIES = 10, 3
_REFUSALS = (OSError, EOFError, AuthenticationError)
# What accept tells of a connection that has ended already, or of the network, as accept(2) lists it.
_PASSING = {
    errno.EAGAIN, errno.ECONNABORTED, errno.EINTR, errno.ENETDOWN, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT,
    errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH, errno.ETIMEDOUT,
}  # fmt: skip
# Who lets in sends a number; who comes sends one, its place and the place that it means, and the proof of
# these; who lets in answers with its own proof. Each proof is good for one direction.
_HASH, _NONCE = "sha256", 32
_PLACES = struct.Struct("<2I")
_HELLO = struct.Struct(f"<{_NONCE}s{_PLACES.size}s32s")
_COMES, _LETS_IN, _REFUSED = b"comes", b"lets in", bytes(32)
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
class Pass:
    """Proof that a connection belongs to a round.

    Attributes:
        secret: that all of its trainers know.
        place: of this one.
    """

    secret: bytes
    place: int

    def proof(self, *parts: bytes) -> bytes:
        """Proof of knowing the secret, for these parts; all but the first have one length."""
        return hmac.digest(self.secret, b"".join(parts), _HASH)


class Met(NamedTuple):
    """Trainers that a trainer has met.

    Attributes:
        links: to them, by their places.
        reasons: why it could not go to others, by their places.
    """

    links: dict[int, socket.socket]
    reasons: dict[int, PeersApart]


class Door:
    """The listening socket of a trainer, which stays where it is from round to round.

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

    def meet(
        self, own: Pass, addresses: Sequence[Address], tick: Tick, seconds: float = math.inf
    ) -> Met:
        """Go to the trainers before this one, and let in those after it; on anybody else the door is shut.

        Args:
            own: place of this one, and what all of them know.
            addresses: of all of them, by their places.
            tick: called while waiting; raises to end that.
            seconds: until when all of them are tried; without, it ends with the first one that cannot be reached.

        Raises:
            PeersApart: an address is not among those that are allowed.
        """
        found, deadline = _Gathering(self, own, addresses), time.monotonic() + seconds
        try:
            while found.awaited and not (found.met.reasons and seconds == math.inf):
                found.serve()
                tick()
                if time.monotonic() > deadline:
                    found.give_up(seconds)
                    break
        except BaseException:
            found.met_none()
            raise
        finally:
            found.close()
        return found.met

    def apart(self, address: Address, reason: str) -> PeersApart:
        """Error that tells from where to where there is no way."""
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


class _Talk:
    """A connection whose ends are about to prove who they are.

    Args:
        one: the connection, which does not block.
        steps: of the proof: yield how many bytes they want, get these, and end with a place.
        place: of the trainer to which this one goes; None where one has come.
        seconds: that it may take.

    Attributes:
        link, place: as above.
        is_connecting: whether nobody has answered yet.
    """

    def __init__(self, one: socket.socket, steps: Steps, place: int | None, seconds: float) -> None:
        self.link, self.place, self._steps = one, place, steps
        self.is_connecting = place is not None
        self._came, self._wanted = b"", next(steps)
        self.takes(seconds)

    def takes(self, seconds: float) -> None:
        """Have it end after so many seconds."""
        self._deadline, self._seconds = time.monotonic() + seconds, seconds

    def in_time(self) -> None:
        """Refuse one that takes too long."""
        if time.monotonic() > self._deadline:
            raise OSError(errno.ETIMEDOUT, f"no answer within {self._seconds:g} s")

    def connected(self) -> None:
        """Be at the other end, which may be at something else for a while."""
        code = self.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        _set_up(self.link)
        self.is_connecting = False
        self.takes(math.inf)

    def go_on(self) -> int | None:
        """Take what has come; at the end the place of the other one."""
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
        self.takes(_HANDSHAKE_SECONDS)
        return None


class _Gathering:
    """A trainer on its way to those before it, which lets in those after it; whoever can go on is served.

    Attributes:
        met: whom it has met.
        awaited: places of those of whom it is not known yet.
    """

    def __init__(self, door: Door, own: Pass, addresses: Sequence[Address]) -> None:
        self._door, self._own, self._addresses = door, own, addresses
        for address in addresses[: own.place]:
            door.check(address)
        self.met, self.awaited = Met({}, {}), set(range(len(addresses))) - {own.place}
        self._talks: dict[int, _Talk] = {}  # by the numbers of their sockets, the oldest first
        self._poll = select.poll()
        self._poll.register(door.socket, select.POLLIN)
        for place in range(own.place):
            self._go(place)

    def serve(self) -> None:
        """Have those go on who can, or wait a moment."""
        for number, _ in self._poll.poll(_WAIT_SECONDS * 1e3):
            if number == self._door.socket.fileno():
                self._let_in()
            elif number in self._talks:
                talk = self._talks[number]
                self._try(talk, partial(self._go_on, talk))
        for talk in list(self._talks.values()):
            self._try(talk, talk.in_time)

    def give_up(self, seconds: float) -> None:
        """Tell of those who have not let this one in."""
        for talk in self._talks.values():
            if talk.place is not None:
                self._unreached(talk.place, f"it let nobody in within {seconds:g} s")

    def met_none(self) -> None:
        """Leave those that it has met."""
        for link in self.met.links.values():
            link.close()

    def close(self) -> None:
        """Leave those that have proved nothing."""
        for talk in self._talks.values():
            talk.link.close()

    def _go(self, place: int) -> None:
        """Begin to go to another one."""
        address = self._addresses[place]
        one = socket.socket(_family(address.ip), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        talk = _Talk(one, _coming(one, self._own, place), place, CONNECT_SECONDS)
        self._talks[one.fileno()] = talk
        self._poll.register(one, select.POLLOUT)
        self._try(talk, partial(self._connect, one, address))

    def _connect(self, one: socket.socket, address: Address) -> None:
        one.bind((self._door.address.ip, 0))  # as which the other one lets it in
        with suppress(BlockingIOError):
            one.connect(address[1:])

    def _let_in(self) -> None:
        """Hear one who has come."""
        try:
            one, (ip, *_) = self._door.socket.accept()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return
        try:
            if ipaddress.ip_address(ip.partition("%")[0]) not in self._door.network:
                raise AuthenticationError
            _set_up(one)
            one.setblocking(False)
            steps = _letting_in(one, self._own, self.awaited)
            self._talks[one.fileno()] = _Talk(one, steps, None, _HANDSHAKE_SECONDS)
            self._poll.register(one, select.POLLIN)
        except _REFUSALS:
            self._talks.pop(one.fileno(), None)
            one.close()
        came = [talk for talk in self._talks.values() if talk.place is None]
        if len(came) > len(self.awaited) + _STRANGERS:
            self._end(came[0])
            came[0].link.close()

    def _go_on(self, talk: _Talk) -> None:
        if talk.is_connecting:
            talk.connected()
            self._poll.modify(talk.link, select.POLLIN)
            return
        place = talk.go_on()
        if place is not None:
            self._end(talk)
            self.met.links[place] = talk.link
            self.awaited.discard(place)

    def _try(self, talk: _Talk, work: Callable[[], None]) -> None:
        """Shut out whoever does not get to the point."""
        try:
            work()
        except _REFUSALS as error:
            self._end(talk)
            talk.link.close()
            if talk.place is not None:
                self._unreached(talk.place, _reason(error))

    def _end(self, talk: _Talk) -> None:
        self._poll.unregister(talk.link)
        del self._talks[talk.link.fileno()]

    def _unreached(self, place: int, reason: str) -> None:
        self.met.reasons[place] = self._door.apart(self._addresses[place], reason)
        self.awaited.discard(place)


def _coming(one: socket.socket, own: Pass, place: int) -> Steps:
    """Prove to belong to a round to the one that has a place in it, and have that prove it."""
    theirs = yield _NONCE
    mine, places = os.urandom(_NONCE), _PLACES.pack(own.place, place)
    _tell(one, _HELLO.pack(mine, places, own.proof(_COMES, theirs, mine, places)))
    answer = yield len(_REFUSED)
    if not hmac.compare_digest(answer, own.proof(_LETS_IN, theirs, mine, places)):
        raise AuthenticationError
    return place


def _letting_in(one: socket.socket, own: Pass, awaited: set[int]) -> Steps:
    """Have one that has come prove that it belongs to the round, and prove it to that."""
    mine = os.urandom(_NONCE)
    _tell(one, mine)
    theirs, places, proof = _HELLO.unpack((yield _HELLO.size))
    if not hmac.compare_digest(proof, own.proof(_COMES, mine, theirs, places)):
        _tell(one, _REFUSED)
        raise AuthenticationError
    place, wanted = _PLACES.unpack(places)
    # Where hosts have the same address each for itself, it has come to another one than it meant.
    if wanted != own.place or place not in awaited or place < own.place:
        raise EOFError
    _tell(one, own.proof(_LETS_IN, mine, theirs, places))
    return int(place)


def _tell(one: socket.socket, message: bytes) -> None:
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
    told = error.strerror if isinstance(error, OSError) else None
    return told or "the connection was closed before it was known who is who"


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
