"""Keeper: starts drivers or trainers for server processes of this host, and ends with the last of them.

It has imported what they need and computes nothing itself, so that a fork of it is ready at once.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import pkgutil
import re
import select
import selectors
import signal
import socket
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from cerebro_db import server, training
from cerebro_db.relay.keepers import DRIVER_SECONDS, FORK_HINT
from cerebro_db.relay.machine import cores
from cerebro_db.relay.wire import TRAINER, Closed, exactly, is_ours, received, send
from cerebro_db.trainers.child import MESSAGE_BYTES, harmless, live
from cerebro_db.training import environment

IDLE_SECONDS = 600.0
SETTLE_SECONDS = 0.5  # of a trainer whose caller has gone
_HELLO_SECONDS = 5.0
_REMEMBERED = 1000  # processes that have ended
_OOM_SCORE = 300


@dataclass
class Child:
    """A driver or trainer.

    Attributes:
        pid: of its process.
        owner: server, database and role that it works for.
        control: connection to it.
        like: settings that it has made for the rest of its life; None where it has made none.
        caller: a copy of its caller's connection, to see that end; None while it is idle.
        deadline: when it is ended, on the clock ``time.monotonic``; None for never.
        dismissed: whether it has been asked to end.
        alone: whether it goes on without a caller.
    """

    pid: int
    owner: tuple[Any, ...]
    control: socket.socket
    like: Any = None
    caller: socket.socket | None = None
    deadline: float | None = None
    dismissed: bool = False
    alone: bool = False

    @property
    def is_idle(self) -> bool:
        """True if it can be given to a caller."""
        return self.caller is None and not self.dismissed and not self.alone


class Keeper:
    """The loop of one keeper.

    Args:
        kind: of the processes that it starts.
        listener: socket on which server processes ask for them.
        lock: held as long as the keeper lives.
    """

    def __init__(self, kind: str, listener: socket.socket, lock: BinaryIO) -> None:
        self._kind, self._listener, self._lock = kind, listener, lock
        self._children: dict[int, Child] = {}
        self._ended: OrderedDict[int, str] = OrderedDict()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._hangups = select.poll()
        self._last_work = time.monotonic()
        self._most_idle = cores()

    def run(self) -> None:
        """Serve until no process has been needed for a while."""
        wakeup, signalled = socket.socketpair()
        for end in (wakeup, signalled):
            end.setblocking(False)
        signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(wakeup, selectors.EVENT_READ)
        while self._children or self._is_wanted():
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is wakeup:
                    wakeup.recv(MESSAGE_BYTES)
                elif key.data in self._children:
                    self._hear(self._children[key.data])
            self._reap()
            self._look_for_hangups()
            self._end_late()

    # -- callers -----------------------------------------------------------------
    def _accept(self) -> None:
        self._last_work = time.monotonic()
        try:
            caller, _ = self._listener.accept()
        except OSError:
            return
        with caller, suppress(Closed, OSError):  # it has gone, and whatever was begun for it ends
            caller.settimeout(_HELLO_SECONDS)
            self._serve(caller)

    def _serve(self, caller: socket.socket) -> None:
        if not is_ours(caller):
            return
        hello: dict[str, Any] = received(lambda count: exactly(count, caller.recv_into))
        if "postmortem" in hello:
            send(caller, {"ended": self._postmortem(int(hello["postmortem"]))})
            return
        if "end" in hello:
            send(caller, {"ended": self._end(int(hello["end"]))})
            return
        owner, like = tuple(hello["owner"]), hello.get("like")
        self._reap()  # who has died meanwhile is nobody to hand over to
        child = self._idle_child(owner, like)
        if child is None:
            try:
                child = self._fork(owner, caller)
            except OSError as error:
                send(caller, _cannot_fork(self._kind, error))
                return
        child.like = like or child.like
        self._hand_over(child, caller, hello["session"])

    def _idle_child(self, owner: tuple[Any, ...], like: Any) -> Child | None:
        """An idle process of the same owner that fits, preferably one that is set up as wanted."""
        found = [
            child
            for child in self._children.values()
            if child.is_idle
            and child.owner == owner
            and (like is None or child.like in (None, like))
        ]
        return max(found, key=lambda child: child.like == like, default=None)

    def _fork(self, owner: tuple[Any, ...], caller: socket.socket) -> Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if not pid:
            self._begin_child(ours, theirs, caller)
        theirs.close()
        child = self._children[pid] = Child(pid, owner, ours)
        self._selector.register(ours, selectors.EVENT_READ, pid)
        return child

    def _begin_child(
        self, ours: socket.socket, theirs: socket.socket, caller: socket.socket
    ) -> None:
        """In the child: leave all that is the keeper's, and begin its own life."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._lock.close()
        others = [child.control for child in self._children.values()]
        callers = [child.caller for child in self._children.values() if child.caller]
        for one in (ours, caller, self._listener, *others, *callers):
            one.close()
        self._selector.close()
        live(theirs, self._kind)

    def _hand_over(self, child: Child, caller: socket.socket, session: Any) -> None:
        # What is set for one copy of a socket holds for all of them.
        caller.settimeout(None)
        handed = array.array("i", [caller.fileno()])
        message = json.dumps(session).encode()
        child.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
        child.caller, child.deadline = caller.dup(), None
        self._hangups.register(child.caller, select.POLLRDHUP)

    def _postmortem(self, pid: int) -> str | None:
        end = time.monotonic() + SETTLE_SECONDS
        while pid in self._children and time.monotonic() < end:
            self._reap()
            time.sleep(0.01)
        return self._ended.get(pid)

    def _end(self, pid: int) -> str | None:
        """Kill a child that works for a caller; how it ended."""
        child = self._children.get(pid)
        if child is not None and child.caller is not None:
            self._dismiss(child)
        return self._postmortem(pid)

    # -- children ----------------------------------------------------------------
    def _hear(self, child: Child) -> None:
        """A child has no more to do for its caller, or has ended."""
        data = child.control.recv(MESSAGE_BYTES)
        if not data:
            self._close_control(child)  # the system reports its end
            return
        self._last_work = time.monotonic()
        self._forget_caller(child)
        message = json.loads(data)
        if "alone" in message:
            child.alone, child.deadline = True, None
            return
        child.like = message["like"]
        child.deadline = time.monotonic() + float(message["idle"])
        idle = [one for one in self._children.values() if one.is_idle]
        for one in sorted(idle, key=lambda one: one.deadline or 0.0)[: -self._most_idle]:
            self._dismiss(one)

    def _close_control(self, child: Child) -> None:
        if child.control.fileno() >= 0:
            with suppress(KeyError):
                self._selector.unregister(child.control)
            child.control.close()

    def _forget_caller(self, child: Child) -> None:
        if child.caller is not None:
            with suppress(KeyError):
                self._hangups.unregister(child.caller)
            child.caller.close()
            child.caller = None

    def _look_for_hangups(self) -> None:
        """A child whose caller has gone has a moment to notice."""
        gone = {number for number, _ in self._hangups.poll(0)}
        for child in self._children.values():
            if child.caller is not None and child.caller.fileno() in gone:
                self._hangups.unregister(child.caller)
                settle = SETTLE_SECONDS if self._kind == TRAINER else DRIVER_SECONDS
                child.deadline = time.monotonic() + settle

    def _end_late(self) -> None:
        now = time.monotonic()
        for child in list(self._children.values()):
            if child.deadline is not None and now > child.deadline:
                self._dismiss(child)

    def _dismiss(self, child: Child) -> None:
        """End a child: politely while it is idle, at once while it does not hear."""
        child.deadline = None
        if child.caller is None:
            child.dismissed = True
            self._close_control(child)
        else:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid in list(self._children):
            how = ended(pid)
            if how is None:
                continue
            child = self._children.pop(pid)
            self._close_control(child)
            self._forget_caller(child)
            self._ended[pid] = how
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
            self._last_work = time.monotonic()

    def _is_wanted(self) -> bool:
        """True if somebody may come yet: not for long, and not where the socket is gone."""
        reachable = os.path.exists(self._listener.getsockname())
        return reachable and time.monotonic() - self._last_work < IDLE_SECONDS

    def _patience(self) -> float:
        """Seconds until something is due."""
        busy = any(child.caller is not None for child in self._children.values())
        return SETTLE_SECONDS / 2 if busy else 5.0


def _cannot_fork(kind: str, error: OSError) -> dict[str, str]:
    return {
        "error": f"no {kind} can be started: {error.strerror}",
        "hint": FORK_HINT,
    }


def keep(kind: str, name: str, lock: BinaryIO) -> None:
    """Listen on the socket of that name, in this process's folder, until no process is needed any more.

    Args:
        kind: of the processes to start.
        name: of the socket.
        lock: held as long as this keeper lives; its children must not have it.
    """
    harmless(_OOM_SCORE)
    gc.disable()
    preload(kind)
    gc.freeze()
    with suppress(FileNotFoundError):
        os.unlink(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(name)
        os.chmod(name, 0o600)
        listener.listen(128)
        Keeper(kind, listener, lock).run()
        with suppress(FileNotFoundError):
            os.unlink(name)


_LIMIT = re.compile(r"^Max data size\s+(\d+)", re.MULTILINE)


def ended(pid: int) -> str | None:
    """End of a child, such as "was killed by SIGKILL"; None while it lives.

    After a violent end with what it had of the memory that it was allowed.
    """
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        allowed = _allowed(pid)
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return "has ended"
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.waitstatus_to_exitcode(status)}"
    had = f"it had {usage.ru_maxrss / 2**20:.1f} GB"
    limit = f" of {allowed / 2**30:.1f} GB allowed" if allowed else ""
    return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}: {had}{limit}"


def _allowed(pid: int) -> int | None:
    """Bytes that it was allowed to have."""
    try:
        found = _LIMIT.search(Path(f"/proc/{pid}/limits").read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


def preload(kind: str) -> None:
    """Import what processes of a kind need; nothing computes, and no thread is left but TensorFlow's.

    All of it at once: what a process imports later may be of another version by then.

    Args:
        kind: driver or trainer.
    """
    if kind == TRAINER:
        environment.preload()
        _import_all(training)
    _import_all(server)


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
