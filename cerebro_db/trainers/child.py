"""Life of a driver or a trainer, from its fork on."""

from __future__ import annotations

import array
import gc
import json
import os
import resource
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cerebro_db.errors import RunInterrupted
from cerebro_db.relay.wire import DRIVER, TRAINER, send
from cerebro_db.server.host import close_sessions
from cerebro_db.server.memory import idle_seconds, release_memory
from cerebro_db.trainers.link import Link
from cerebro_db.trainers.serving import serve
from cerebro_db.training.environment import lasting

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
        gc.enable()
        while (handed := _handed(control)) is not None:
            if not _worked(*handed, kind):
                break
            release_memory(_kept)
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


def _worked(sock: socket.socket, session: dict[str, Any], kind: str) -> bool:
    """Serve a connection; whether this process can serve another one."""
    _call_itself(f"{kind} {session['pid']}")
    send(sock, {"pid": os.getpid()})
    link = Link(sock, _session_ended) if kind == DRIVER else Link(sock)
    try:
        # A driver's sessions have ended when its caller gets the answer; a trainer reads with the
        # one that it has as long as its caller stays.
        usable = serve(link, session, _kept, _close_sessions if kind == DRIVER else _nothing)
    finally:
        _close_sessions()
        link.close()
        _call_itself(f"{kind} idle")
    return usable and kind == TRAINER


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
