"""A driver that does not end its work after a cancel is ended by force, whatever it does meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import stretched, until

import cerebro_db
from cerebro_db.relay import backend, calls
from cerebro_db.relay.calls import Relay
from cerebro_db.relay.keepers import DRIVER_SECONDS, Installation, Process
from cerebro_db.relay.services import Services
from cerebro_db.relay.wire import DRIVER, exactly, received

GRACE = 0.5
KEEPER = textwrap.dedent("""
    import fcntl, os, sys, time, types
    from cerebro_db.server.entry import entry
    from cerebro_db.trainers.keeper import keep

    busy = sys.modules["cerebro_db.server.busy"] = types.ModuleType("cerebro_db.server.busy")

    @entry
    def computes(plpy, gd):
        while True:
            sum(range(1000))

    @entry
    def swallows(plpy, gd):
        while True:
            try:
                plpy.listen()
            except Exception:
                pass

    @entry
    def talks(plpy, gd):
        while True:
            plpy.notice("still at it")

    @entry
    def obeys(plpy, gd):
        while True:
            plpy.listen()
            time.sleep(0.01)

    vars(busy).update(computes=computes, swallows=swallows, talks=talks, obeys=obeys)
    folder, name = sys.argv[1:]
    os.chdir(folder)
    lock = open(name + ".lock", "ab")
    fcntl.flock(lock, fcntl.LOCK_EX)
    keep("driver", name, lock)
""")


class Plpy:
    """What the server hands to bodies of functions."""

    class Error(Exception):
        """An error of the server."""

        sqlstate = "57014"
        spidata = None
        hint = None

    SPIError = Error

    def commit(self) -> None:
        """Only newer servers have it."""

    def notice(self, text: str) -> None:
        """Nobody reads it."""


@pytest.fixture
def relay(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """A relay of this process, whose keeper starts drivers that have entries of this test."""
    told = {
        "interpreter": sys.executable,
        "package": str(Path(cerebro_db.__file__).parent),
        "directory": str(own_folder),
        "version": "of this test",
    }
    installation = Installation(**told)
    folder, name = installation.folder(), installation.socket_name(DRIVER)
    os.mkdir(folder, 0o700)
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER, folder, name])
    until(Path(folder, name).exists)
    monkeypatch.setattr(backend, "owner", lambda: ["/", 1, os.getpid()])
    monkeypatch.setattr(calls, "DRIVER_SECONDS", GRACE)
    yield Relay(Plpy(), told)
    keeper.kill()
    keeper.wait()


@pytest.fixture
def cancel(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A cancel request of the server, raised once, as the server does it."""
    event = threading.Event()

    def listen(plpy: Any) -> None:
        if event.is_set():
            event.clear()
            raise Plpy.Error("canceling statement due to user request")

    monkeypatch.setattr(backend, "listen", listen)
    return event


def drivers() -> list[str]:
    """Drivers of this process that live."""
    name = f"driver {os.getpid()}"[:15]
    return [one for one in os.listdir("/proc") if one.isdigit() and _comm(one) == name]


def _comm(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def cancelled(relay: Relay, cancel: threading.Event, name: str) -> tuple[Any, float]:
    """The error of a call that is cancelled after a while, and the seconds that it took to end."""
    threading.Timer(0.3, cancel.set).start()
    began = time.monotonic()
    with pytest.raises(Plpy.Error) as caught:
        relay.driver(f"busy.{name}")
    return caught.value, time.monotonic() - began - 0.3


@pytest.mark.parametrize("name", ["computes", "swallows", "talks"])
def test_it_is_ended_by_force(relay: Relay, cancel: threading.Event, name: str) -> None:
    error, seconds = cancelled(relay, cancel, name)
    assert error.sqlstate == "57014"
    assert "ended by force" in str(error)
    assert GRACE <= seconds < stretched(GRACE + 1)
    assert drivers() == []


def test_one_that_looks_up_ends_by_itself(relay: Relay, cancel: threading.Event) -> None:
    error, seconds = cancelled(relay, cancel, "obeys")
    assert str(error) == "canceling statement due to user request"
    assert seconds < stretched(GRACE)


def test_one_that_had_left_word_is_not_replaced(
    relay: Relay, cancel: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_answer", _remembering(relay._answer))
    error, _ = cancelled(relay, cancel, "computes")
    assert error.hint == "the run goes on where it was: SELECT cerebro.cerebro_resume(7)"
    assert drivers() == []


def _remembering(answer: Callable[[Process], Any]) -> Callable[[Process], Any]:
    def with_word(process: Process) -> Any:
        process.again = ["fitting.go_on", [7, None]]
        return answer(process)

    return with_word


def test_one_whose_caller_is_gone_is_ended_by_its_keeper(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(BaseException):
        """This process ends, as a backend does at a terminate."""

    def listen(plpy: Any) -> None:
        raise Gone

    monkeypatch.setattr(backend, "is_ending", lambda: True)
    monkeypatch.setattr(backend, "listen", lambda plpy: None)
    threading.Timer(0.3, monkeypatch.setattr, (backend, "listen", listen)).start()
    began = time.monotonic()
    with pytest.raises(Gone):
        relay.driver("busy.computes")
    assert time.monotonic() - began < stretched(1)
    until(lambda: not drivers(), DRIVER_SECONDS + 1)


def test_a_cancel_does_not_come_into_the_middle_of_a_message() -> None:
    ours, theirs = socket.socketpair()
    services = Services(Plpy(), {})

    def listen() -> None:
        raise Plpy.Error("canceling statement due to user request")

    driver = Process(ours, None, DRIVER)
    driver.listen = calls._Interrupts(driver, listen, services, None)
    got: list[Any] = []

    def read() -> None:
        time.sleep(0.2)
        while len(got) < 2:
            got.append(received(lambda count: exactly(count, theirs.recv_into)))

    reader = threading.Thread(target=read)
    reader.start()
    driver.send({"rows": b"x" * 2**24})
    driver.listen()
    reader.join(stretched(10))
    assert [next(iter(message)) for message in got] == ["rows", "cancel"]
    driver.close()
    theirs.close()
