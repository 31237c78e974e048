"""Work in the computing thread: where it runs, what it is kept from, what becomes of it."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from cerebro_db.errors import InvalidData, OutOfMemory, ProcessSpoiled, RunFailed
from cerebro_db.server import computing
from cerebro_db.server.computing import Abandoned, ComputingThread, Tick


class Cancelled(Exception):
    """What a tick raises."""


class Server:
    """Stands for plpy: notes which threads call it, and cancels when it was called enough."""

    def __init__(self, patience: int = 10**6) -> None:
        self.callers: list[threading.Thread] = []
        self._patience = patience

    def execute(self, query: str) -> None:
        self.callers.append(threading.current_thread())
        if len(self.callers) > self._patience:
            raise Cancelled


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> ComputingThread:
    """A computing thread of this test, in the place of that of the process."""
    thread = ComputingThread()
    monkeypatch.setattr(computing, "_thread", thread)
    monkeypatch.setattr(computing, "end_at_once", lambda: None)
    return thread


def endless(tick: Tick) -> None:
    """Computes until nobody wants it any more."""
    while True:
        time.sleep(0.01)
        tick()


def silent(done: threading.Event) -> Callable[[Tick], None]:
    """Computes until ``done``, and does not notice anything meanwhile."""
    return lambda tick: done.wait(30) and None


def test_only_the_main_thread_calls_the_server(thread: ComputingThread) -> None:
    server, workers = Server(), []

    @computing.computing
    def compute(tick: Tick, number: int) -> int:
        workers.append(threading.current_thread())
        for _ in range(20):
            time.sleep(0.01)
            tick()
        return 2 * number

    assert [compute(server, 3), compute(server, 4)] == [6, 8]
    assert set(server.callers) == {threading.main_thread()}
    assert len(set(workers)) == 1
    assert workers[0] is not threading.main_thread()


def test_the_server_is_called_from_the_main_thread_or_not_at_all() -> None:
    thread = ComputingThread()
    with pytest.raises(AssertionError):
        thread.run(lambda tick: computing.listen(Server()), lambda: None)


def test_signals_are_held_back_from_the_thread_and_what_it_starts(thread: ComputingThread) -> None:
    def mask(tick: Tick = lambda: None) -> set[int]:
        return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    def masks(tick: Tick) -> list[set[int]]:
        found = [mask()]
        child = threading.Thread(target=lambda: found.append(mask()))
        child.start()
        child.join()
        return found

    before = mask()
    needed = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM}
    for found in thread.run(masks, lambda: None):
        assert needed <= found
    assert mask() == before


def test_errors_arrive(thread: ComputingThread) -> None:
    def fail(tick: Tick) -> None:
        raise InvalidData("no")

    with pytest.raises(InvalidData, match="no"):
        thread.run(fail, lambda: None)
    assert thread.run(lambda tick: 1, lambda: None) == 1


def test_work_that_gets_no_memory_is_the_last_of_its_process(thread: ComputingThread) -> None:
    def fail(tick: Tick) -> None:
        raise MemoryError

    with pytest.raises(OutOfMemory, match="the data of this worker"):
        computing.compute(Server(), fail)
    with pytest.raises(ProcessSpoiled):
        computing.compute(Server(), lambda tick: 1)


def test_cancelled_work_ends_where_it_asks(thread: ComputingThread) -> None:
    ends: list[type[BaseException]] = []

    def work(tick: Tick) -> None:
        try:
            endless(tick)
        except BaseException as error:
            ends.append(type(error))
            raise

    with pytest.raises(Cancelled):
        computing.compute(Server(patience=2), work)
    assert computing.compute(Server(), lambda tick: "next") == "next"
    assert ends == [Abandoned]


def test_the_next_work_waits_for_what_was_cancelled(thread: ComputingThread) -> None:
    done = threading.Event()
    with pytest.raises(Cancelled):
        computing.compute(Server(patience=1), silent(done))
    with pytest.raises(Cancelled):  # such waiting can be cancelled too
        computing.compute(Server(patience=1), lambda tick: None)
    with pytest.raises(RunFailed, match="still computes"):
        computing.require_idle(Server())
    done.set()
    computing.require_idle(Server())
    assert computing.compute(Server(), lambda tick: "next") == "next"


def test_nothing_is_kept(thread: ComputingThread) -> None:
    class Large:
        """As a state is."""

    def work(tick: Tick, given: Large = Large()) -> Any:  # noqa: B008
        return Large()

    seen = weakref.ref(thread.run(work, lambda: None))
    assert seen() is None
