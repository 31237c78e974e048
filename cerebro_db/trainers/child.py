"""Life of a driver or a trainer, from its fork on: calls of server processes, one after another."""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import resource
import secrets
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cerebro_db.errors import CerebroError, OutOfMemory, RunInterrupted, TrainerBound, Unexpected
from cerebro_db.relay.machine import give_back_freed_memory, keep_freed_memory
from cerebro_db.relay.wire import DRIVER, TRAINER, send
from cerebro_db.server.host import close_sessions
from cerebro_db.server.memory import idle_seconds, know_functions, know_network, release_memory
from cerebro_db.trainers.plpy import CallerGone, Link, Plpy, ServerError
from cerebro_db.training.environment import lasting

_MOST_TEXT, _MOST_MESSAGE = 1000, 4000


def described(error: Exception) -> dict[str, Any]:
    """An error as the server process raises it.

    A defect is reported in one line; its traceback, which shows where files lie, is for the server's log.
    """
    log = None
    if isinstance(error, ServerError):
        return {"number": error.number}
    if not isinstance(error, CerebroError):
        error, log = _unexpected(error)
    return {
        "sqlstate": error.sqlstate,
        "message": _tellable(error.message),
        "hint": error.hint and _tellable(error.hint),
        "detail": error.detail and _tellable(error.detail),
        "log": log,
    }


def _unexpected(error: Exception) -> tuple[Unexpected, str]:
    number = secrets.token_hex(4)
    trace = "".join(traceback.format_exception(error))
    text = " ".join(str(error)[:_MOST_TEXT].split())
    short = Unexpected(
        f"unexpected error {number}, {type(error).__name__}: {text}",
        hint=f"the log of the server has its traceback, under the number {number}",
    )
    return short, f"Cerebro-DB: unexpected error {number}: {trace}"


def _tellable(text: str) -> str:
    """A text as the server can take it: no half characters, no NUL, no value of megabytes that somebody gave."""
    if len(text) > _MOST_MESSAGE:
        left_out = f" ... ({len(text) - _MOST_MESSAGE} characters) ... "
        text = text[: _MOST_MESSAGE // 2] + left_out + text[-_MOST_MESSAGE // 2 :]
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    for folder in _folders():
        text = text.replace(f"{folder}/", "")
    return text


def _folders() -> list[str]:
    """Folders of Python and its packages on the server: nothing for users to know."""
    found = {*map(str, sys.path), sys.prefix, sys.base_prefix, os.getcwd()}  # paths may be objects
    return sorted((one for one in found if len(one) > 1), key=len, reverse=True)


_PACKAGE = "cerebro_db.server"


def serve(
    link: Link, session: dict[str, Any], gd: dict[str, Any], after: Callable[[], None]
) -> bool:
    """Answer calls until the connection ends.

    Args:
        link: to the server process.
        session: facts about that process.
        gd: what this process keeps from call to call.
        after: called after each call, before its answer.

    Returns:
        Whether this process can go on to work for others.
    """
    calls = _Calls(Plpy(link, **session), gd, after)
    try:
        while calls.usable:
            for answer in calls.answered(link.receive()):
                link.send(answer)
    except (CallerGone, RunInterrupted):
        return True
    return False


class _Calls:
    """Calls of one connection, of which some wait for no answer.

    Where such a one fails, those that follow are left out, until one waits: it gets the error.
    """

    def __init__(self, plpy: Plpy, gd: dict[str, Any], after: Callable[[], None]) -> None:
        self._plpy, self._gd, self._after = plpy, gd, after
        self._failed: dict[str, Any] | None = None
        self.usable = True

    def answered(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Do a call; what is to be sent then."""
        if call["begins"]:
            self._failed = None
        if self._failed is None:
            answer, self.usable = _done(self._plpy, self._gd, call)
            self._after()
        else:
            answer = self._failed
        if call["waits"]:
            self._failed = None
            yield answer
        elif self._failed is None and "error" in answer:
            self._failed = answer
            yield {"row_failed": True}


def _done(plpy: Plpy, gd: dict[str, Any], call: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The answer to a call, and whether more can be done here."""
    try:
        if "functions" in call:
            know_functions(gd, call["functions"])
        if "network" in call:
            know_network(gd, call["network"])
        function = _function(call["call"])
        return {
            "result": function(plpy, gd, *call["arguments"], **call["named"]),
            "like": lasting(),
        }, True
    except Exception as error:
        # TensorFlow may end a process that has no memory left at its next tensor.
        spoiled = isinstance(error, OutOfMemory)
        anew = isinstance(error, TrainerBound)
        answer = {"error": described(error), "like": lasting(), "ends": spoiled, "anew": anew}
        return answer, not (spoiled or anew)


def _function(name: str) -> Callable[..., Any]:
    """An entry of a module of the package's server functions."""
    module, _, name = name.partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
    if not getattr(found, "is_entry", False):
        raise LookupError(f"{name} is no entry")
    return found


# Which processes the kernel ends first where memory runs out: trainers before all of the server's.
_OOM_SCORES = {TRAINER: 900, DRIVER: 600}
MESSAGE_BYTES = 4096


def live(control: socket.socket, kind: str) -> NoReturn:
    """Work for one server process after another, as the keeper hands over their connections.

    Args:
        control: to the keeper.
        kind: driver or trainer; a driver works for one connection only.
    """
    code = 1
    try:
        harmless(_OOM_SCORES[kind])
        keep_freed_memory()
        gc.enable()
        while (handed := _handed(control)) is not None:
            if not _worked(*handed, kind, control):
                break
            release_memory(_kept)
            give_back_freed_memory()
            if not (seconds := idle_seconds(_kept)):
                break
            control.sendall(json.dumps({"idle": seconds, "like": lasting()}).encode())
        code = 0
    except OSError:  # the keeper has gone
        code = 0
    finally:
        os._exit(code)  # without destructors of libraries whose threads still work


def harmless(oom_score: int) -> None:
    """Be taken by the kernel before the server, and leave no rows of users in a core dump."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(oom_score))
    # Of one byte, which also holds where a program takes the dumps.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    # Signals of a terminal are for the keeper's starter.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


_kept: dict[str, Any] = {}


def _worked(
    sock: socket.socket, session: dict[str, Any], kind: str, control: socket.socket
) -> bool:
    """Serve a connection; whether this process can serve another one."""
    _call_itself(f"{kind} {session['pid']}")
    send(sock, {"pid": os.getpid()})
    link = Link(sock, _session_ended, lambda: _go_alone(control)) if kind == DRIVER else Link(sock)
    try:
        # A driver's sessions have ended when its caller gets the answer; a trainer reads with the
        # one that it has as long as its caller stays.
        usable = serve(link, session, _kept, _close_sessions if kind == DRIVER else _nothing)
    finally:
        _close_sessions()
        link.close()
        _call_itself(f"{kind} idle")
    return usable and kind == TRAINER


def _go_alone(control: socket.socket) -> None:
    """Notify the keeper that this process lives on without its caller."""
    _call_itself("driver job")
    control.sendall(json.dumps({"alone": True}).encode())


def _call_itself(name: str) -> None:
    """The name that ``ps`` and ``top`` show of this process: what it is, and for which process."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _close_sessions() -> None:
    close_sessions(_kept)


def _nothing() -> None:
    pass


def _session_ended() -> BaseException:
    """Driver's error where its caller has gone: it writes down how far its work has come."""
    return RunInterrupted("its session has ended")


def _handed(control: socket.socket) -> tuple[socket.socket, dict[str, Any]] | None:
    """The next connection from the keeper, and what is known of its session; None at the end."""
    size = array.array("i").itemsize
    data, ancillary, *_ = control.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(size))
    for level, kind, handed in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            return socket.socket(fileno=array.array("i", handed[:size])[0]), json.loads(data)
    assert not data
    return None
