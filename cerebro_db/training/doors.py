"""Doors: where trainers of several hosts find each other, and who is let in.

A trainer listens on an address of its host within the network that an administrator has allowed. Both ends of
a connection prove that they know the secret of their round, by HMAC, as ``multiprocessing.connection`` has it;
then they tell which places of the round they have. What follows is not encrypted.
"""

from __future__ import annotations

import array
import errno
import fcntl
import ipaddress
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import NamedTuple

from cerebro_db.configs.settings import ports
from cerebro_db.errors import InvalidArgument, PeersApart

Tick = Callable[[], None]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
CONNECT_SECONDS = 5.0
_HANDSHAKE_SECONDS = 5.0
_WAIT_SECONDS = 0.1
_WAITING = 128  # connections that nobody has looked at yet
_MOST_BYTES = 256  # of a message before it is known who sends it
# A host that says nothing any more is asked after so many seconds, so often; no limit for what it takes to read
# what was sent, as its step may take longer.
_SILENT_SECONDS, _TRIES = 10, 3
_LET_IN = b"."
_REFUSALS = (OSError, EOFError, AuthenticationError, ValueError)


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


class Going(NamedTuple):
    """Way to another trainer.

    Attributes:
        address: of the other one.
        socket: that is being connected.
        deadline: until when it may take, on the clock ``time.monotonic``.
        error: of what could not even be begun.
    """

    address: Address
    socket: socket.socket
    deadline: float
    error: OSError | None = None


class Door:
    """The listening socket of a trainer, which stays where it is from round to round.

    Args:
        network: within which all addresses have to be, such as ``10.1.0.0/16``.
        among: ports to choose from, such as ``40000-40999``; empty for any.

    Attributes:
        network: as above.
        address: where it is.

    Raises:
        InvalidArgument: this host has no address there, or none of the ports is free.
    """

    def __init__(self, network: str, among: str = "") -> None:
        self.network: Network = ipaddress.ip_network(network)
        ip = address_in(network)
        self._ports = ports(among)
        self._socket = _listening(ip, among)
        self.address = Address(_host(), ip, self._socket.getsockname()[1])

    def to(self, address: Address, own: Pass, place: int, tick: Tick) -> socket.socket:
        """A connection to another trainer, which has a place in the same round.

        Args:
            address: of the other one.
            own: of this one.
            place: that the other one must have.
            tick: called while waiting; raises to end that.

        Raises:
            PeersApart: it cannot be reached, or does not let this one in.
            InvalidArgument: its address is not among those that are allowed.
        """
        return self.enter(self.go(address), own, place, tick)

    def go(self, address: Address) -> Going:
        """Begin to go to another trainer.

        Raises:
            InvalidArgument: as above.
        """
        if not self._is_allowed(address):
            among = (
                f" and ports {self._ports.start} to {self._ports.stop - 1}" if self._ports else ""
            )
            raise InvalidArgument(
                f"peers: got the address {address}; allowed: those within {self.network}{among}",
                hint=PeersApart.advice,
            )
        one = socket.socket(_family(address.ip), socket.SOCK_STREAM)
        going = Going(address, one, time.monotonic() + CONNECT_SECONDS)
        try:
            one.bind((self.address.ip, 0))  # as which the other one lets it in
            one.setblocking(False)
            one.connect((address.ip, address.port))
        except BlockingIOError:
            pass
        except OSError as error:
            return going._replace(error=error)
        return going

    def enter(self, going: Going, own: Pass, place: int, tick: Tick) -> socket.socket:
        """The connection to another trainer to which this one is going; the arguments are those of ``to``.

        Raises:
            PeersApart: as above.
        """
        one, address = going.socket, going.address
        try:
            _until_connected(going, tick)
            _until_readable(one, tick)  # the other one may be at something else for a while
            self._prove(one, own, place)
        except BaseException as error:
            one.close()
            if isinstance(error, _REFUSALS):
                raise self.apart(address, _reason(error)) from None
            raise
        one.setblocking(False)
        return one

    def come(self, own: Pass, tick: Tick) -> tuple[int, socket.socket]:
        """The next trainer that comes in, and its place; on anybody else the door is shut.

        Args:
            own: of this one.
            tick: called while waiting; raises to end that.
        """
        while True:
            try:
                one, (ip, *_) = self._socket.accept()
            except TimeoutError:
                tick()
                continue
            except ConnectionAbortedError:  # it has gone already
                continue
            try:
                _set_up(one)
                if ipaddress.ip_address(ip.partition("%")[0]) not in self.network:
                    raise AuthenticationError
                with _in_time(one), _talk(one) as link:
                    deliver_challenge(link, own.secret)
                    answer_challenge(link, own.secret)
                    theirs, wanted = json.loads(link.recv_bytes(_MOST_BYTES))
                    if (
                        wanted != own.place
                    ):  # with such a network it has come to another one than it meant
                        raise EOFError
                    link.send_bytes(_LET_IN)
                one.setblocking(False)
                return int(theirs), one
            except (*_REFUSALS, TypeError):
                one.close()

    def apart(self, address: Address, reason: str) -> PeersApart:
        """Error that tells from where to where there is no way."""
        return PeersApart(f"host {self.address.host} cannot reach {address}: {reason}")

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    def _prove(self, one: socket.socket, own: Pass, place: int) -> None:
        """Prove to belong to the round, and have the other one prove it."""
        with _in_time(one), _talk(one) as link:
            answer_challenge(link, own.secret)
            deliver_challenge(link, own.secret)
            link.send_bytes(json.dumps([own.place, place]).encode())
            if link.recv_bytes(_MOST_BYTES) != _LET_IN:
                raise EOFError

    def _is_allowed(self, address: Address) -> bool:
        try:
            is_within = ipaddress.ip_address(address.ip) in self.network
        except ValueError:
            return False
        return is_within and (not self._ports or address.port in self._ports)


def address_in(network: str) -> str:
    """The first address of this host within a network.

    Raises:
        InvalidArgument: it has none there.
    """
    own, wanted = own_addresses(), ipaddress.ip_network(network)
    for ip in own:
        if ipaddress.ip_address(ip) in wanted:
            return ip
    raise InvalidArgument(
        f"setting peer_network: got {network}; allowed: a network in which host {_host()} has an "
        f"address, of which it has {', '.join(own) or 'none'}",
        hint=PeersApart.advice,
    )


def _host() -> str:
    return os.uname().nodename


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _listening(ip: str, among: str) -> socket.socket:
    """A socket that listens on the first port that is free."""
    for port in ports(among) or (0,):
        one = socket.socket(_family(ip), socket.SOCK_STREAM)
        try:
            if port:  # also where connections of before have just ended
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((ip, port))
            one.listen(_WAITING)
            one.settimeout(_WAIT_SECONDS)
            return one
        except OSError as error:
            one.close()
            reason = error.strerror
    raise InvalidArgument(
        f"setting peer_ports: got {among or 'none'}; allowed: ports of which one is free on {ip} of host {_host()}: "
        f"{reason}",
        hint=PeersApart.advice,
    )


def _until_connected(going: Going, tick: Tick) -> None:
    if going.error is not None:
        raise going.error
    while not _is_ready(going.socket, select.POLLOUT):
        if time.monotonic() > going.deadline:
            raise OSError(errno.ETIMEDOUT, f"no answer within {CONNECT_SECONDS:g} s")
        tick()
    code = going.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    _set_up(going.socket)


def _reason(error: BaseException) -> str:
    """Why another trainer did not let this one in, or could not be reached."""
    if isinstance(error, AuthenticationError):
        return "it knows another secret"
    told = error.strerror if isinstance(error, OSError) else None
    return told or "the connection was closed before it was known who is who"


def _until_readable(one: socket.socket, tick: Tick) -> None:
    while not _is_ready(one, select.POLLIN):
        tick()


def _is_ready(one: socket.socket, what: int) -> bool:
    poll = select.poll()
    poll.register(one, what)
    return bool(poll.poll(_WAIT_SECONDS * 1e3))


@contextmanager
def _in_time(one: socket.socket) -> Iterator[None]:
    """End a connection whose other end does not get to the point."""

    def end() -> None:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_HANDSHAKE_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _talk(one: socket.socket) -> Iterator[Connection]:
    """Messages of ``multiprocessing.connection`` over a socket, which is left open."""
    with Connection(os.dup(one.fileno())) as link:
        yield link


def _set_up(one: socket.socket) -> None:
    """Have a connection send at once, and end where the other host says nothing any more."""
    one.setblocking(True)
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
