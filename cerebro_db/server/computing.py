"""A thread for all that TensorFlow does in a backend, while the main thread listens to the server.

TensorFlow computes for seconds without a look at anything: it is imported, traces, compiles. So the
main thread hands over what is to be done and waits, and asks the server again and again
whether to go on. If not, it leaves at once; the thread ends what it was at when it can.

The thread holds back all signals, hence so do the threads that TensorFlow starts, which
inherit its mask. It is given no ``plpy``, so it cannot call the server.
"""

from __future__ import annotations

import functools
import math
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from cerebro_db.database.dialects.backend import client_is_gone
from cerebro_db.database.dialects.capabilities import interrupts_python
from cerebro_db.database.dialects.interrupts import raise_pending
from cerebro_db.errors import (
    CerebroError,
    OutOfMemory,
    ProcessSpoiled,
    RunFailed,
    RunInterrupted,
)
from cerebro_db.training.causes import of_the_model
from cerebro_db.training.ending import end_at_once

P = ParamSpec("P")
R = TypeVar("R")
Tick = Callable[[], None]

_TENSOR = re.compile(r"shape(\[[\d,]*\])")
LISTEN_SECONDS = 0.05
SETTLE_SECONDS = 0.5
# Compilers recurse; a thread would get what the server's own limit happens to be.
_STACK_BYTES = 64 * 2**20


# What a thread itself does wrong, and what no process can hold back.
_SYNCHRONOUS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
_HELD_BACK = set(signal.Signals) - _SYNCHRONOUS - {signal.SIGKILL, signal.SIGSTOP}


class Abandoned(BaseException):
    """Nobody waits for this work any more. No ``Exception``, which much would catch."""


class _Job(Generic[R]):
    """One piece of work on its way through the thread."""

    def __init__(self, work: Callable[[Tick], R]) -> None:
        self._work: Callable[[Tick], R] | None = work
        self._results: list[R] = []
        self._error: BaseException | None = None
        self.done = threading.Event()
        self.abandoned = False

    def do(self, check: Tick) -> None:
        """In the thread: work, and keep what came out."""
        work, self._work = self._work, None
        try:
            assert work is not None
            check()
            self._results.append(work(check))
        except BaseException as error:
            self._error = error
        finally:
            del work  # its arguments may be large
            self.done.set()

    def result(self) -> R:
        """In the main thread: what came out, which is not kept."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        return self._results.pop()


def as_ours(error: Exception) -> Exception:
    """An error of TensorFlow, or of Python, about memory as one of ours."""
    if type(error).__name__ == "ResourceExhaustedError":
        found = _TENSOR.search(str(error))
        what = f"a tensor of shape {found[1]}" if found else "a tensor"
    elif isinstance(error, MemoryError):
        what = "the data of this worker"
    else:
        return error
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    allowed = f"; allowed: {limit // 2**20} MB a worker" if limit != resource.RLIM_INFINITY else ""
    return OutOfMemory(f"got no memory for {what}{allowed}")


class ComputingThread:
    """One thread, as long as the process lives; it does one job after the other."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job[Any]] = SimpleQueue()
        self._current: _Job[Any] | None = None
        self._thread: threading.Thread | None = None
        self._spoiled = False

    def run(self, work: Callable[[Tick], R], tick: Tick) -> R:
        """Do ``work`` in the thread; meanwhile call ``tick``, here and often.

        Args:
            work: gets a function that raises when the work was abandoned, to be called now and then.
            tick: an exception of it ends the waiting. The work goes on until it notices, and the
                next call waits for that.
        """
        self.require_sound()
        self.settle(tick)
        job: _Job[R] = _Job(work)
        del work
        self._start()
        self._current = job
        self._jobs.put(job)
        try:
            self._wait(job, tick)
        except BaseException:
            job.abandoned = True
            raise
        self._current = None
        try:
            return job.result()
        except OutOfMemory:
            self._spoiled = True
            raise

    def require_sound(self) -> None:
        """Refuse to go on where memory ran out: TensorFlow may end the process at its next tensor.

        Raises:
            ProcessSpoiled: that is so.
        """
        if self._spoiled:
            raise ProcessSpoiled("got more work in a process that has run out of memory before")

    def settle(self, tick: Tick, seconds: float = math.inf) -> bool:
        """Wait for abandoned work; whether there is none after so many seconds."""
        if self._current is not None and self._wait(self._current, tick, seconds):
            self._current = None
        return self._current is None

    def check(self) -> None:
        """In the thread: raises if nobody waits for the job any more."""
        if self._current is not None and self._current.abandoned:
            raise Abandoned

    def _wait(self, job: _Job[Any], tick: Tick, seconds: float = math.inf) -> bool:
        deadline = time.monotonic() + seconds
        while not job.done.wait(LISTEN_SECONDS):
            tick()
            if time.monotonic() > deadline:
                return False
        return True

    def _start(self) -> None:
        if self._thread is None:
            end_at_once()
            self._thread = threading.Thread(target=self._work, name="cerebro", daemon=True)
            before = threading.stack_size(_STACK_BYTES)
            try:
                with _signals_held_back():
                    self._thread.start()
            finally:
                threading.stack_size(before)

    def _work(self) -> None:
        while True:
            self._jobs.get().do(self.check)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """A thread that is started now inherits the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_thread = ComputingThread()


def compute(
    plpy: Any,
    work: Callable[[Tick], R],
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> R:
    """Do ``work`` in the computing thread of this process; a cancel ends the waiting for it.

    Args:
        plpy: of the backend.
        work: gets a tick, to be called now and then.
        within: what is entered in the thread before the work, and left when that ends, abandoned
            or not.

    Raises:
        CerebroError: of the work; what Keras and TensorFlow raise there is told by its cause.
    """

    def told(tick: Tick) -> R:
        with within():
            try:
                return work(tick)
            except CerebroError:
                raise
            except Exception as error:
                raise of_the_model(as_ours(error)) from None

    return _thread.run(told, lambda: listen(plpy))


def wait_until_idle(plpy: Any) -> None:
    """Wait for abandoned work: what is done here then is not done beside it."""
    _thread.settle(lambda: listen(plpy))


def require_idle(plpy: Any) -> None:
    """Give abandoned work a moment to end.

    Raises:
        RunFailed: it goes on, so that this session is better closed than kept.
        ProcessSpoiled: so it is, as memory ran out.
    """
    _thread.require_sound()
    if not _thread.settle(lambda: listen(plpy), SETTLE_SECONDS):
        raise RunFailed("this session still computes what was cancelled; close it")


def computing(function: Callable[Concatenate[Tick, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Decorate what computes: it is called with ``plpy``, and gets a tick in its place."""

    @functools.wraps(function)
    def wrapper(plpy: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return compute(plpy, lambda tick: function(tick, *args, **kwargs))

    return wrapper


def listen(plpy: Any) -> None:
    """Let the server act on a cancel request, a timeout, its own end; nobody works for a lost client.

    Raises:
        RunInterrupted: the client is gone.
    """
    assert threading.current_thread() is threading.main_thread()
    if not interrupts_python():
        plpy.execute("SELECT 1")
    raise_pending()
    if client_is_gone():
        raise RunInterrupted("the client is gone; its session ends too")
