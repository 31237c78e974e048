"""Trainers of several hosts: who is let in, and what they exchange, over the loopback network."""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Client
from typing import Any

import numpy as np
import pytest

from cerebro_db.errors import InvalidArgument, PeerLost, PeersApart
from cerebro_db.training.peers import listeners, network_peers
from cerebro_db.training.peers.listeners import Address, Listener
from cerebro_db.training.peers.network_peers import NetworkPeers, peers_of, unreached
from cerebro_db.training.peers.peers import ProcessGroup
from cerebro_db.training.tasks import process_group_of
from tests.training import test_group
from tests.training.conftest import Data, net
from tests.training.test_group import side_by_side

NETWORK = "127.0.0.0/8"
ROWS = (8, 3, 0, 5)  # one of them has none


def nothing() -> None:
    """For those who may wait."""


@pytest.fixture
def opened() -> Iterator[list[Listener]]:
    """Doors of a test, which shuts them."""
    found: list[Listener] = []
    yield found
    for listener in found:
        listener.close()


def meetings(
    opened: list[Listener], size: int, bits: int = 32, is_root: int = -1
) -> list[ProcessGroup]:
    """A process_group of trainers of several hosts, as each of them knows it."""
    found = [Listener(NETWORK) for _ in range(size)]
    opened += found
    secret, addresses = secrets.token_bytes(16), [listener.address for listener in found]
    return [
        ProcessGroup("", secret, size, rank, rank == is_root % size, bits, addresses, listener)
        for rank, listener in enumerate(found)
    ]


def exchanged(given: Sequence[ProcessGroup], own: np.ndarray, rows: Sequence[int]) -> list[Any]:
    """What each of some peers gets: the means of arrays, and the messages of all."""
    count = own.shape[-1]

    def work(rank: int) -> Any:
        peers = peers_of(given[rank], count, nothing)
        means = [peers.mean(one if rows[rank] else None, rows[rank], count) for one in own[rank]]
        exact = peers.mean(own[rank][0], 1.0, count, exact=True)
        told = peers.gather({"rank": rank})
        peers.close()
        return [one.tobytes() for one in (*means, exact)], told

    return side_by_side(work, len(given))


# -- what is exchanged ---------------------------------------------------------------------------
@pytest.mark.parametrize("bits", [32, 16, 8])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_means_are_to_the_bit_those_of_shared_memory(
    opened: list[Listener], size: int, bits: int
) -> None:
    own = np.random.default_rng(size).normal(size=(size, 3, 1001)).astype(np.float32)
    apart = meetings(opened, size, bits)
    name = f"test-{secrets.token_hex(8)}"
    together = [replace(one, name=name, addresses=(), listener=None) for one in apart]
    found, wanted = (exchanged(given, own, ROWS[-size:]) for given in (apart, together))
    assert found == wanted
    assert [told for _, told in found] == [[]] * (size - 1) + [
        [{"rank": rank} for rank in range(size)]
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_numbers_than_peers(opened: list[Listener], count: int) -> None:
    own = np.arange(4 * count, dtype=np.float32).reshape(4, 1, count)
    for means, _ in exchanged(meetings(opened, 4), own, (1, 1, 1, 1)):
        assert means[0] == own.mean(axis=0)[0].tobytes()


def test_large_arrays_that_all_send_at_once(opened: list[Listener]) -> None:
    """More than the buffers of the system hold, so that nobody could send first and receive then."""
    own = np.ones((3, 1, 6_000_000), np.float32) * np.arange(1, 4, dtype=np.float32)[:, None, None]
    for means, _ in exchanged(meetings(opened, 3), own, (1, 1, 1)):
        assert np.frombuffer(means[0], np.float32).tolist()[::1_000_000] == [2.0] * 6


@pytest.mark.parametrize(
    ("size", "bits", "share"),
    [(2, 32, 1.0), (2, 8, 0.25), (4, 32, 1.5), (4, 8, 0.75), (3, 16, 1.0)],
)
def test_bytes_that_each_sends(
    opened: list[Listener], monkeypatch: pytest.MonkeyPatch, size: int, bits: int, share: float
) -> None:
    """In shares of the array: all of it coded to all, or a share coded to each and the mean of one."""
    sent: list[int] = []
    flow = network_peers._Flow

    class Counted(flow):  # type: ignore[misc,valid-type]
        def __init__(self, link: Any, out: Sequence[memoryview], *others: Any) -> None:
            sent.append(sum(len(view) for view in out))
            super().__init__(link, out, *others)

    monkeypatch.setattr(network_peers, "_Flow", Counted)
    count, given = 24_000, meetings(opened, size, bits)
    own = np.ones((size, count), np.float32)

    def work(rank: int) -> None:
        peers = NetworkPeers(given[rank], count, nothing)
        peers.mean(own[rank], 1.0, count)
        peers.close()

    side_by_side(work, size)
    heads = size * (size - 1) * 16
    assert (sum(sent) - heads) / size == share * 4 * count


@pytest.mark.parametrize(("bits", "is_pipelined"), [(32, False), (8, True)])
def test_hops_come_to_the_bits_of_one_host(
    opened: list[Listener],
    recipe: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    bits: int,
    is_pipelined: bool,
) -> None:
    data = Data((20, 17), partitions=3)
    given = recipe(net(), f"{test_group.LOSS},optimizer='Adam(lr=0.01)'")
    start = test_group.initial(given, data)

    def weights() -> bytes:
        found, _ = test_group.parts_of(
            given, data, start, [37, 37, 21], bits=bits, is_pipelined=is_pipelined
        )
        return found

    together = weights()
    monkeypatch.setattr(
        test_group, "meetings", lambda size, is_root: meetings(opened, size, is_root=is_root)
    )
    assert weights() == together


# -- who is let in -----------------------------------------------------------------------------
def test_nobody_meets_without_the_secret(opened: list[Listener]) -> None:
    one, other = meetings(opened, 2)
    given = [one, replace(other, secret=b"guessed")]
    ended = threading.Event()

    def tick() -> None:
        if ended.is_set():
            raise PeerLost("nobody came")

    def work(rank: int) -> str:
        try:
            peers_of(given[rank], 4, tick if rank == 0 else nothing).close()
        except (PeersApart, PeerLost) as error:
            return error.message
        finally:
            if rank == 1:
                ended.set()
        return "met"

    waited, refused = side_by_side(work, 2)
    assert waited == "nobody came"
    assert refused == (
        f"host {os.uname().nodename} cannot reach {one.addresses[0]}: it knows another secret"
    )


def test_strangers_are_shut_out_and_the_others_meet(
    opened: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_HANDSHAKE_SECONDS", 1.0)
    given = meetings(opened, 2)
    rank = given[0].addresses[0][1:]
    silent = socket.create_connection(rank)
    rude = socket.create_connection(rank)
    rude.sendall(b"GET / HTTP/1.0\r\n\r\n" * 100)
    left = socket.create_connection(rank)
    left.close()

    def guess() -> None:
        with suppress(Exception):
            Client(rank, authkey=b"guessed")

    threading.Thread(target=guess, daemon=True).start()
    own = np.ones((2, 1, 4), np.float32)
    assert [means[0] for means, _ in exchanged(given, own, (1, 1))] == [own[0, 0].tobytes()] * 2
    for one in (silent, rude):
        one.close()


def test_who_comes_to_another_one_than_it_meant_is_shut_out(opened: list[Listener]) -> None:
    """Where hosts have the same address each for itself, it may be found on the own one."""
    given = meetings(opened, 3)
    addresses = list(given[2].addresses)
    addresses[1] = addresses[0]
    lost = replace(given[2], addresses=addresses)

    def work(rank: int) -> list[tuple[int, str]]:
        return unreached([given[0], lost][rank], nothing)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_peers, "_REACH_SECONDS", 1.0)
        _, told = side_by_side(work, 2)
    assert told == [
        (
            1,
            f"host {os.uname().nodename} cannot reach {addresses[1]}: the connection was closed before it was "
            "known who is who",
        )
    ]


def test_beyond_the_network_nobody_goes(opened: list[Listener]) -> None:
    _, other = meetings(opened, 2)
    away = [Address("away", "192.0.2.1", 4000), other.addresses[1]]
    with pytest.raises(
        PeersApart,
        match=r"got the address 192\.0\.2\.1:4000 of host away; allowed: .*127\.0\.0\.0/8",
    ):
        peers_of(replace(other, addresses=away), 4, nothing)


# -- who ends -----------------------------------------------------------------------------------
PEER = """
import json, sys
import numpy as np
from cerebro_db.training.peers.listeners import Address, Listener
from cerebro_db.training.peers.network_peers import NetworkPeers
from cerebro_db.training.peers.peers import ProcessGroup
listener = Listener("127.0.0.0/8")
print(json.dumps(listener.address), flush=True)
addresses = [Address(*one) for one in json.loads(sys.stdin.readline())]
peers = NetworkPeers(ProcessGroup("", b"secret", 3, 1, False, 32, addresses, listener), 1_000_000, lambda: None)
while True:
    peers.mean(np.ones(1_000_000, np.float32), 1, 1_000_000)
"""


def test_a_peer_that_is_killed_is_missed_within_a_second(opened: list[Listener]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    theirs = Address(*json.loads(child.stdout.readline()))
    first, _, third = meetings(opened, 3)
    addresses = [first.addresses[0], theirs, first.addresses[2]]
    given = {
        one.rank: replace(one, secret=b"secret", addresses=addresses) for one in (first, third)
    }
    print(json.dumps(addresses), file=child.stdin, flush=True)
    killed: list[float] = []

    def work(rank: int) -> tuple[float, str]:
        peers = NetworkPeers(given[rank], 1_000_000, nothing)
        try:
            for step in range(10_000):
                peers.mean(np.ones(1_000_000, np.float32), 1, 1_000_000)
                if step == 5 and rank == 0:
                    killed.append(time.monotonic())
                    child.kill()
        except PeerLost as error:
            return time.monotonic(), error.message
        finally:
            peers.close()
        raise AssertionError

    noticed = side_by_side(lambda number: work(2 * number), 2)
    child.communicate()
    assert max(when for when, _ in noticed) - killed[0] < 1.0
    told = {message for _, message in noticed}
    # The second one to notice it may miss the first one, which has left.
    assert f"the peer at {addresses[1]} has ended" in told


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_for_peers_can_be_stopped(opened: list[Listener], rank: int) -> None:
    def tick() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        peers_of(meetings(opened, 2)[rank], 4, tick)


# -- who can be reached ----------------------------------------------------------------------------
def test_all_look_whether_they_reach_each_other(opened: list[Listener]) -> None:
    given = meetings(opened, 4)
    assert side_by_side(lambda rank: unreached(given[rank], nothing), 4) == [[]] * 4


def test_a_listener_that_is_closed_is_reported_with_who_wanted_to_go_there(
    opened: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_peers, "_REACH_SECONDS", 0.5)
    given = meetings(opened, 3)
    opened[1].close()
    told = unreached(given[2], nothing)
    own = os.uname().nodename
    assert told == [
        (0, f"host {own} cannot reach {given[0].addresses[0]}: it let nobody in within 0.5 s"),
        (1, f"host {own} cannot reach {given[1].addresses[1]}: Connection refused"),
    ]
    elsewhere = replace(given[2], listener=opened[0])
    with pytest.raises(PeersApart, match="in a trainer that listens on"):
        NetworkPeers(elsewhere, 4, nothing)
    with pytest.raises(PeersApart, match="in a trainer that does not listen"):
        NetworkPeers(replace(given[2], listener=None), 4, nothing)


@pytest.fixture
def among() -> str:
    """A range of two ports that nobody has, below those that the system gives."""
    for first in range(20_000, 30_000, 2):
        try:
            with socket.socket() as one, socket.socket() as other:
                one.bind(("127.0.0.1", first))
                other.bind(("127.0.0.1", first + 1))
                return f"{first}-{first + 1}"
        except OSError:
            continue
    raise AssertionError


def test_listeners_keep_to_the_ports_that_are_allowed(
    opened: list[Listener], among: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_PORT_SECONDS", 0.2)
    opened += [Listener(NETWORK, among), Listener(NETWORK, among)]
    assert "-".join(str(listener.address.port) for listener in opened) == among
    with pytest.raises(PeersApart, match=f"peer_ports: got {among}; .* in use") as caught:
        Listener(NETWORK, among)
    assert "at least twice as many" in (caught.value.hint or "")


def test_a_port_of_a_trainer_that_is_about_to_end_is_waited_for(
    opened: list[Listener], among: str
) -> None:
    opened += [Listener(NETWORK, among), Listener(NETWORK, among)]
    ticks: list[None] = []

    def tick() -> None:
        ticks.append(None)
        if len(ticks) == 3:
            opened[1].close()

    opened.append(Listener(NETWORK, among, tick))
    assert opened[2].address == opened[1].address

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Listener(NETWORK, among, stop)


def test_a_host_without_an_address_in_the_network() -> None:
    with pytest.raises(PeersApart, match=r"peer_network: got 203\.0\.113\.0/24; .* has 127"):
        Listener("203.0.113.0/24")


def test_many_strangers_delay_nobody(
    opened: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who prove nothing are heard beside the others, so many at a time."""
    given = meetings(opened, 3)
    strangers = [socket.create_connection(given[0].addresses[0][1:]) for _ in range(100)]
    monkeypatch.setattr(listeners, "_STRANGERS", 8)
    own, begun = np.ones((3, 1, 4), np.float32), time.monotonic()
    for means, _ in exchanged(given, own, (1, 1, 1)):
        assert means[0] == own[0, 0].tobytes()
    assert time.monotonic() - begun < 2.0
    for one in strangers:
        one.close()


def test_one_way_that_is_shut_is_no_fault_of_the_others(
    opened: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for an answer lets others in meanwhile."""
    monkeypatch.setattr(network_peers, "_REACH_SECONDS", 1.0)
    given = meetings(opened, 4)  # nobody serves the first listener
    told = side_by_side(lambda number: unreached(given[number + 1], nothing), 3)
    assert [[rank for rank, _ in reasons] for reasons in told] == [[0]] * 3


def test_proofs_are_good_for_one_direction_and_for_these_places(opened: list[Listener]) -> None:
    """Whoever brings the words of one to another gets nowhere."""
    given = meetings(opened, 3)
    relay = socket.create_server(("127.0.0.1", 0))
    addresses = list(given[2].addresses)
    addresses[1] = Address("relay", *relay.getsockname())  # which brings all to the first one
    lost = replace(given[2], addresses=addresses)

    def carry() -> None:
        came, _ = relay.accept()
        with came, socket.create_connection(given[0].addresses[0][1:]) as gone:
            came.sendall(gone.recv(4096))
            gone.sendall(came.recv(4096))
            came.sendall(gone.recv(4096))

    thread = threading.Thread(target=carry, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_peers, "_REACH_SECONDS", 1.0)
        _, told = side_by_side(lambda rank: unreached([given[0], lost][rank], nothing), 2)
    thread.join()
    relay.close()
    assert [rank for rank, _ in told] == [1]
    assert "before it was known who is who" in told[0][1]


def test_who_does_not_speak_as_trainers_do_is_no_peer(opened: list[Listener]) -> None:
    given = meetings(opened, 2)
    rude = socket.create_server(("127.0.0.1", 0))
    addresses = [Address("rude", *rude.getsockname()), given[1].addresses[1]]

    def handshake() -> None:
        came, _ = rude.accept()
        with came:
            came.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" * 10)
            came.recv(4096)

    thread = threading.Thread(target=handshake, daemon=True)
    thread.start()
    with pytest.raises(PeersApart, match="of host rude: it knows another secret"):
        peers_of(replace(given[1], addresses=addresses), 4, nothing)
    thread.join()
    rude.close()


def test_a_way_that_the_system_refuses_at_once_is_reported(
    opened: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(network_peers, "_REACH_SECONDS", 1.0)
    listener = Listener("0.0.0.0/0")
    opened.append(listener)
    nowhere = Address("away", "0.0.0.1", 4000)
    process_group = ProcessGroup(
        "", b"x", 3, 1, False, 32, [nowhere, listener.address, listener.address], listener
    )
    ((rank, told),) = unreached(process_group, nothing)
    assert rank == 0
    assert told.startswith(f"host {os.uname().nodename} cannot reach 0.0.0.1:4000 of host away: ")


class Flaky:
    """The socket of a listener, whose first connections have ended before they are let in."""

    def __init__(self, real: socket.socket, *errors: int) -> None:
        self._real, self._errors = real, list(errors)
        self.fileno, self.close = real.fileno, real.close

    def accept(self) -> Any:
        if self._errors:
            raise OSError(self._errors.pop(), "told by accept")
        return self._real.accept()


def test_connections_that_ended_before_they_are_let_in_harm_nobody(opened: list[Listener]) -> None:
    given = meetings(opened, 2)
    opened[0].socket = Flaky(opened[0].socket, errno.EPROTO, errno.ENETDOWN, errno.ECONNABORTED)  # type: ignore[assignment]
    own = np.ones((2, 1, 4), np.float32)
    assert [means[0] for means, _ in exchanged(given, own, (1, 1))] == [own[0, 0].tobytes()] * 2


def look(**other: Any) -> str:
    """The task of a look."""
    listed = [{"host": "h", "ip": f"10.0.0.{one}", "port": 4000} for one in (1, 2)]
    told = {"name": "n", "secret": "s", "size": 2, "rank": 0, "is_root": False, "bits": 32}
    return json.dumps(told | {"addresses": listed} | other)


def test_a_look_goes_to_each_address_once(opened: list[Listener]) -> None:
    opened.append(Listener(NETWORK))
    found = process_group_of(look(), opened[0])
    assert [str(one) for one in found.addresses] == [
        "10.0.0.1:4000 of host h",
        "10.0.0.2:4000 of host h",
    ]
    same = [{"host": name, "ip": "10.0.0.1", "port": 4000} for name in ("a", "b")]
    with pytest.raises(PeersApart, match=r"got 10\.0\.0\.1:4000 of host b and 10"):
        process_group_of(look(addresses=same), opened[0])
    many = [{"host": "h", "ip": "10.0.0.1", "port": 1 + port} for port in range(1001)]
    with pytest.raises(InvalidArgument, match="got 1001 addresses; allowed: 1000"):
        process_group_of(look(addresses=many, size=1001), opened[0])


def test_sums_take_little_memory(opened: list[Listener]) -> None:
    count, given = 4_000_000, meetings(opened, 2)
    own = np.ones((2, count), np.float32)

    def work(rank: int) -> None:
        peers = NetworkPeers(given[rank], count, nothing)
        peers.mean(own[rank], 1.0, count)
        peers.close()

    tracemalloc.start()
    try:
        side_by_side(work, 2)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What came of the other one, and the mean: of two peers, beside blocks.
    assert most < 5 * own[0].nbytes


def test_ip_of_version_6(opened: list[Listener]) -> None:
    if "::1" not in listeners.own_addresses():
        pytest.skip("this host has no addresses of version 6")
    opened += [Listener("::1/128"), Listener("::1/128")]
    addresses = [listener.address for listener in opened]
    assert str(addresses[0]).startswith(f"[::1]:{addresses[0].port} of host ")
    given = [
        ProcessGroup("", b"x", 2, rank, rank == 1, 32, addresses, opened[rank]) for rank in (0, 1)
    ]
    own = np.ones((2, 1, 4), np.float32)
    assert [means[0] for means, _ in exchanged(given, own, (1, 1))] == [own[0, 0].tobytes()] * 2
