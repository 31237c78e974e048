"""The kernel bounds what a process that computes may take; nothing in it can undo that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY

from cerebro_db.configs.settings import processors
from tests.server.conftest import Caller

SETTING = "SELECT cerebro_set(%s, %s)"
ALONE = r"""
import os, socket, sys, threading, types
from cerebro_db.configs.settings import Settings
from cerebro_db.errors import CerebroError
from cerebro_db.server import computing, limits, network
from cerebro_db.training.environment import configure

if os.geteuid() == 0:  # who may lift any limit
    os.setuid(65534)
plpy = types.SimpleNamespace(listen=lambda: None, Error=InterruptedError)

def tell(work):
    try:
        sys.stdout.write(f"{work()}\n")
    except (CerebroError, OSError, ValueError) as error:
        sys.stdout.write(f"{type(error).__name__} {error}\n")
"""
MEMORY = r"""
import resource
assert limits.limit_memory(Settings(max_worker_mb=1100)) == 1100

def work(elements):
    def do(tick):
        configure(threads=1)
        import tensorflow as tf
        return float(tf.reduce_sum(tf.ones([elements])))
    return do

for elements in (2**20, 2**30):
    tell(lambda: computing.compute(plpy, work(elements)))
tell(lambda: resource.setrlimit(resource.RLIMIT_DATA, (2**31, 2**31)))
tell(lambda: limits.limit_memory(Settings(max_worker_mb=1200)))
tell(lambda: limits.limit_memory(Settings(max_worker_mb=1050)))
"""
NARROWER = r"""
tell(lambda: limits.limit_memory(Settings(max_worker_mb=2000)))
taken = bytearray(1100 * 2**20)
tell(lambda: limits.limit_memory(Settings(max_worker_mb=900)))
del taken
tell(lambda: limits.limit_memory(Settings(max_worker_mb=900)))
"""
NETWORK = r"""
def opened(family, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as sock:
        return sock.family.name

def threaded(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(tried(work)))
    thread.start()
    thread.join()
    return found[0]

def tried(work):
    try:
        return work()
    except OSError as error:
        return type(error).__name__

def families():
    return [tried(lambda: opened(*one)) for one in (
        (socket.AF_INET,), (socket.AF_INET6,), (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_UNIX,))]

before, stays = threading.Event(), []
early = threading.Thread(target=lambda: (before.wait(), stays.append(families())))
early.start()
with socket.socket(socket.AF_INET) as kept:
    tell(lambda: network.refuse())
    kept.bind(("127.0.0.1", 0))
before.set()
early.join()
tell(families)
tell(lambda: stays[0] == families() == threaded(families))
tell(lambda: limits.bind(Settings(trainer_network="on")))
tell(lambda: os.getuid())
"""


TCP = r"""
def opened(family, kind, protocol=0):
    with socket.socket(family, kind, protocol) as sock:
        return sock.family.name

def tried(*one):
    try:
        return opened(*one)
    except OSError as error:
        return type(error).__name__

def kinds():
    return [tried(*one) for one in (
        (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC),
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP), (socket.AF_UNIX, socket.SOCK_DGRAM),
        (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP),
        (socket.AF_INET, socket.SOCK_STREAM, 262), (socket.AF_INET6, socket.SOCK_DGRAM),
        (socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_STREAM))]

def bind(**given):
    return lambda: limits.bind(Settings(max_worker_mb=2000), **given)

tell(bind(has_peers=True))
tell(kinds)
tell(lambda: limits.bind(Settings(max_worker_mb=2000, trainer_network="on")))
tell(bind())
tell(kinds)
tell(bind(has_peers=True))
"""


PEERS = r"""
import json
from cerebro_db.server.settings import limits as found

def told_of(peer_network):
    given = {"max_worker_mb": "2000", "peer_network": peer_network}
    return lambda: json.dumps(found(None, {}, json.dumps(given))[-1])

if os.fork():
    os.wait()
    tell(told_of("127.0.0.0/8"))
    tell(told_of("127.0.0.0/8"))
else:
    tell(told_of("203.0.113.0/24"))
"""


def answers(script: str) -> list[str]:
    """What a process tells that has these limits."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE + script], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_tensor_beyond_the_limit_is_an_error_and_the_limit_stays() -> None:
    first, refused, raised, wider, narrower = answers(MEMORY)
    assert first == str(float(2**20))
    assert (
        refused
        == "OutOfMemory got no memory for a tensor of shape [1073741824]; allowed: 1100 MB a worker"
    )
    assert raised.startswith("ValueError not allowed to raise")
    assert wider.startswith("TrainerBound the trainer began with a narrower max_worker_mb")
    assert narrower == "1050"


def test_a_process_that_has_more_than_is_allowed_now_is_replaced() -> None:
    wide, more, less = answers(NARROWER)
    assert (wide, less) == ("2000", "900")
    assert more == "TrainerBound the trainer has more than the max_worker_mb that is set now"


def test_no_thread_of_it_opens_a_socket_of_a_network() -> None:
    refused, families, same, bound, _ = answers(NETWORK)
    assert refused == "True"
    assert families == str(["PermissionError"] * 4 + ["AF_UNIX"])
    assert same == "True"
    assert bound.startswith("TrainerBound the trainer began with a narrower trainer_network")


def test_who_has_peers_on_other_hosts_opens_tcp_and_nothing_else() -> None:
    bound, kinds, wider, narrower, none, anew = answers(TCP)
    assert (bound, narrower) == ("2000", "2000")
    assert kinds == str(["AF_INET"] * 3 + ["AF_UNIX"] + ["PermissionError"] * 6)
    assert wider.startswith("TrainerBound the trainer began with a narrower trainer_network")
    assert none == str(["PermissionError"] * 3 + ["AF_UNIX"] + ["PermissionError"] * 6)
    assert anew.startswith("TrainerBound the trainer began with a narrower peer_network")


def test_where_peers_of_other_hosts_come_in_is_reported() -> None:
    nowhere, there, again = answers(PEERS)
    assert nowhere.startswith('["peers of other hosts", "no address in 203.0.113.0/24", "setting')
    assert there == '["peers of other hosts", "127.0.0.1 in 127.0.0.0/8", null]'
    assert again.startswith("TrainerBound")  # another trainer tells


@pytest.mark.parametrize(
    ("listed", "found"),
    [("", set()), ("3", {3}), ("0-2,8", {0, 1, 2, 8}), ("1,1-2", {1, 2}), ("2-1", set())],
)
def test_lists_of_processors(listed: str, found: set[int]) -> None:
    assert processors(listed) == found


@pytest.fixture
def trainer(caller: Caller, place: str) -> Iterator[Callable[..., int]]:
    """Gives a session a trainer with settings of a database; its process."""

    def trainer(**settings: str) -> int:
        for name, value in settings.items():
            caller.sql.run(SETTING, (name, value))
        caller.prepare()
        name = f"trainer {caller.pid}"
        (pid,) = [
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/comm")
            if _text(path) == name
        ]
        return pid

    yield trainer
    caller.sql.run("DELETE FROM cerebro.catalog_settings")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def threads(pid: int, what: Callable[[int], Any]) -> Any:
    """What holds for all threads of a process."""
    (found,) = {what(int(path.name)) for path in Path(f"/proc/{pid}/task").iterdir()}
    return found


def affinity(pid: int) -> frozenset[int]:
    """Processors that a process may use."""
    return frozenset(os.sched_getaffinity(pid))


def memory(pid: int) -> list[int]:
    """Megabytes that a process may have: soft limit and hard one."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    (found,) = re.findall(r"^Max data size +(\d+) +(\d+) ", limits, re.M)
    return [int(number) // 2**20 for number in found]


def nice(pid: int) -> int:
    """Of a process, as the system tells."""
    return os.getpriority(os.PRIO_PROCESS, pid)


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_trainers_have_the_limits_of_the_settings(
    trainer: Callable[..., int], caller: Caller
) -> None:
    first = trainer()
    server, cpus = nice(caller.pid), os.sched_getaffinity(caller.pid)
    assert threads(first, nice) == server
    assert threads(first, affinity) == cpus
    narrow = trainer(trainer_nice="5", trainer_cpus=f"{min(cpus)}, 4000", max_worker_mb="1200")
    assert narrow == first
    assert threads(narrow, nice) == server + 5
    assert threads(narrow, affinity) == {min(cpus)}
    assert memory(narrow) == [1200, 1200]
    caller.hop()
    assert threads(narrow, nice) == server + 5
    # What a trainer cannot get rid of again, another one has never had.
    trainer(trainer_cpus="", max_worker_mb="1300")
    wide = trainer(trainer_nice="0")
    assert wide != narrow
    assert threads(wide, nice) == server
    assert threads(wide, affinity) == cpus
    assert memory(wide) == [1300, 1300]
    caller.hop()


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_trainers_have_no_network_unless_they_are_given_one(
    trainer: Callable[..., int],
) -> None:
    def filters(pid: int) -> list[str]:
        return re.findall(r"^Seccomp:\s*(\d)", Path(f"/proc/{pid}/status").read_text(), re.M)

    without = trainer()
    assert filters(without) == ["2"]
    given = trainer(trainer_network="on")
    assert given != without
    assert filters(given) == ["0"]


def test_processors_that_the_host_does_not_have(trainer: Callable[..., int]) -> None:
    with pytest.raises(psycopg2.errors.InvalidParameterValue) as error:
        trainer(trainer_cpus="4000-4095")
    assert "trainer_cpus: got 4000-4095; allowed on host " in str(error.value)
    assert "cerebro_set('trainer_cpus'" in (error.value.diag.message_hint or "")
