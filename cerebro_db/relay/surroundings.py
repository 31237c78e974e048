"""Limits that the server's processes find on their machine, for who verifies an installation."""

import os
import pwd
import socket
import sys
from typing import Any, List, Tuple

from . import machine
from .keepers import Installation
from .wire import DRIVER, TRAINER

_LEAST_MB = 16  # for logs
_MANY = 256  # processes and threads of a run with some workers


def found(installation: Installation) -> List[Tuple[str, str, Any]]:
    """Name, value, and what an administrator should know of it, if anything."""
    python = "{}.{}.{}".format(*sys.version_info)
    return [("Python of plpython3u", python, None), _folder(installation), _processes()]


def _folder(installation: Installation) -> Tuple[str, str, Any]:
    folder = installation.folder()
    sockets = [name for name in os.listdir(folder) if _listens(os.path.join(folder, name))]
    ours = {installation.socket_name(kind) for kind in (DRIVER, TRAINER)}
    free = machine.free_bytes(folder) // 2**20
    text = "{}, {} MB free, {} keepers, {} of them of other versions or environments".format(
        folder, free, len(sockets), len(set(sockets) - ours)
    )
    warning = None
    if free < _LEAST_MB:
        warning = "{} has {} MB of room for logs; allowed: from {}".format(folder, free, _LEAST_MB)
    return "folder of keepers", text, warning


def _processes() -> Tuple[str, str, Any]:
    user = pwd.getpwuid(os.geteuid()).pw_name
    count, most = machine.processes()
    text = "{}; allowed: {}".format(count, "any number" if most is None else most)
    warning = None
    if most is not None and count + _MANY > most:
        warning = (
            "operating system user {} has {} processes and threads of {} allowed; a run needs some dozens for each "
            "worker (ulimit -u, TasksMax of systemd, pids.max of a container)".format(
                user, count, most
            )
        )
    return "processes and threads of " + user, text, warning


def _listens(path: str) -> bool:
    """True if a keeper is behind a file, and not what one has left that was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(path)
        except OSError:
            return False
    return True
