"""Connections to the keeper of this host, which is started where it does not run."""

import errno
import fcntl
import hashlib
import os
import pwd
import socket
import stat
import subprocess
import time
from typing import Any, Dict, List

from . import machine
from .connection import LISTEN_SECONDS, Connection, until
from .wire import Closed, is_ours

_START_SECONDS, _STARTS = 90.0, 3
# How long a driver may take to end its work in order, after a cancel or when its caller is gone.
DRIVER_SECONDS = 3.5
_KEEPER_SECONDS = 0.5  # for a keeper to end a process
_MODULE = "cerebro_db.trainers"
# What a keeper inherits of the server's environment; nothing that leads Python or libpq elsewhere.
_PASSED_ON = ("LANG", "TZ", "HOME", "PATH")
_PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_", "TF_", "XLA_")
PATH_LIMIT = 107  # bytes of a socket's name


class CannotStart(Exception):
    """There is no keeper, and none could be started.

    Args:
        message: why.
        hint: what to do about it.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class Installation:
    """Paths and version of the package, as its installation has written them into the bodies of functions.

    Args:
        interpreter: program of the virtual environment's Python.
        package: folder of the package cerebro_db.
        directory: absolute path of the folder in which keepers have theirs.
        version: of the package when it was installed.
    """

    def __init__(self, interpreter: str, package: str, directory: str, version: str) -> None:
        self.interpreter, self.package = interpreter, package
        self.directory, self.version = directory, version

    def folder(self) -> str:
        """Folder of the sockets, which only this user may enter."""
        return os.path.join(self.directory, f"cerebro-{os.geteuid()}")

    def _decisive(self) -> List[str]:
        """Files that are others as soon as the package or its interpreter is."""
        found = [os.path.join(self.package, "__init__.py"), self.interpreter]
        if os.path.exists(os.path.join(self.package, "..", "pyproject.toml")):  # a checkout
            for folder, _, names in os.walk(self.package):
                found += [
                    os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")
                ]
        return found

    def socket_name(self, kind: str) -> str:
        """Name of a keeper's socket: another one for another package, interpreter or environment.

        Args:
            kind: of the processes that it starts.
        """
        known = [self.interpreter, self.package, self.version, repr(sorted(_environment().items()))]
        for path in self._decisive():
            try:
                found = os.stat(path)
            except OSError as error:
                what, option = ("interpreter", "--python") if path == self.interpreter else (
                    "package", "--package"
                )  # fmt: skip
                raise CannotStart(
                    f"{path}: {error.strerror}",
                    "the {} was moved or removed, or {} may not read it: an administrator can put it back, or run"
                    ' "cerebro upgrade" with {} and the path of the new place'.format(
                        what, _user(), option
                    ),
                )
            known.append(f"{found.st_ino} {found.st_mtime_ns}")
        digest = hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]
        return f"{kind}-{digest}"


class Process(Connection):
    """Connection to a driver or a trainer, and what is known of it.

    Attributes:
        kind: driver or trainer.
        pid: of the process.
        like: settings that it has made for the rest of its life, None before.
        knows: what the catalog has for it, as JSON: registered functions, and where peers may be.
        again: name and arguments of the call that goes on where this process ends.
        asked_in: the statement of the call that is under way.
        last_asked_in: that of the last call.
    """

    def __init__(self, sock: socket.socket, listen: Any, kind: str) -> None:
        super().__init__(sock, listen)
        self.kind, self.pid = kind, 0
        self.like: Any = None
        self.knows: Any = None
        self.again: Any = None
        self.asked_in: Any = None
        self.last_asked_in: Any = None


def connected(installation: Installation, kind: str, hello: Dict[str, Any], listen: Any) -> Process:
    """A connection to a process that a keeper has started, or had ready.

    Args:
        installation: which package.
        kind: of the process: driver or trainer.
        hello: what the keeper must know.
        listen: called while waiting.

    Raises:
        CannotStart: there is none, with the reason.
    """
    name = installation.socket_name(kind)
    folder = installation.folder()
    path = os.path.join(folder, name)
    _check_folder(folder, path)
    for _ in range(_STARTS):  # one that ends at this moment still takes connections
        sock = _connect(path, listen) or _started(installation, kind, folder, name, listen)
        connection = Process(sock, listen, kind)
        try:
            connection.send(hello)
            answer = connection.receive()
            break
        except Closed:
            connection.close()
        except BaseException:
            connection.close()
            raise
    else:
        raise CannotStart(
            "the keeper of {}s ended before it answered".format(kind),
            "its log has the reason: {}.log".format(path),
        )
    if "error" in answer:
        connection.close()
        raise CannotStart(answer["error"], answer["hint"])
    connection.pid = answer["pid"]
    return connection


def postmortem(installation: Installation, kind: str, pid: int, listen: Any) -> Any:
    """How a process ended, as its keeper knows; None where nobody knows."""
    try:
        return _answer_of_keeper(installation, kind, {"postmortem": pid}, listen)
    except (CannotStart, Closed):
        return None


class _NoAnswer(Exception):
    """A keeper does not answer in time."""


def end_by_force(installation: Installation, kind: str, pid: int) -> Any:
    """Have the keeper kill a process; how it ended, None where the keeper does not answer in time.

    The keeper also kills it some seconds after its connection is closed.
    """
    deadline = time.monotonic() + _KEEPER_SECONDS

    def listen() -> None:
        if time.monotonic() > deadline:
            raise _NoAnswer

    try:
        return _answer_of_keeper(installation, kind, {"end": pid}, listen)
    except (CannotStart, Closed, _NoAnswer):
        return None


def _answer_of_keeper(
    installation: Installation, kind: str, question: Dict[str, Any], listen: Any
) -> Any:
    """End of a process, as the keeper that runs answers a question about it."""
    path = os.path.join(installation.folder(), installation.socket_name(kind))
    sock = _connect(path, listen)
    if sock is None:
        return None
    connection = Connection(sock, listen)
    try:
        connection.send(question)
        return connection.receive().get("ended")
    finally:
        connection.close()


def _environment() -> Dict[str, str]:
    """Environment that a keeper inherits of the server's."""
    return {
        key: value
        for key, value in os.environ.items()
        if key in _PASSED_ON or key.startswith(_PASSED_ON_PREFIXES)
    }


def _check_folder(folder: str, path: str) -> None:
    """Make the folder of sockets, or check that nobody else can put anything there."""
    if len(os.fsencode(path)) > PATH_LIMIT:
        raise CannotStart(
            f"{path}: got a name of {len(os.fsencode(path))} bytes for a socket; allowed: up to {PATH_LIMIT}",
            _OTHER_FOLDER,
        )
    try:
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        found = os.lstat(folder)
    except OSError as error:
        raise CannotStart(f"{folder}: {error.strerror}", _advice(error, _OTHER_FOLDER))
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise CannotStart(
            f"{folder}: got something else than a folder of {_user()} that nobody else may enter",
            f"an administrator can remove it, or name another place: {_OTHER_FOLDER}",
        )
    taken = _mode(path)
    if taken is not None and not stat.S_ISSOCK(taken):
        raise CannotStart(
            f"{path}: got something else than a socket",
            f"an administrator can remove it, or name another place: {_OTHER_FOLDER}",
        )


def _mode(path: str) -> Any:
    """Kind and permissions of a file; None where there is none."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def _user() -> str:
    """Name of the server's operating system user."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


_OTHER_FOLDER = (
    "the server's user must be able to make a folder there; cerebro upgrade --keeper-directory /path names"
    " another place"
)
_ROOM = "make room on its disk (df and df -i show it), or name another place: cerebro upgrade --keeper-directory /path"
FORK_HINT = (
    "the limits of processes and memory of the server's user are reached (ulimit -u, TasksMax of systemd, pids.max of a"
    " container): raise them, or use fewer workers; cerebro verify tells them"
)
_ADVICE = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EAGAIN: FORK_HINT, errno.ENOMEM: FORK_HINT,
}  # fmt: skip


def _advice(error: OSError, otherwise: str) -> str:
    """Advice on an error of the system."""
    return _ADVICE.get(error.errno or 0, otherwise)


def _connect(path: str, listen: Any) -> Any:
    """A connection to who listens there, if that is a process of this very user."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect_socket(sock, path, listen)
        ours = is_ours(sock)
    except OSError as error:
        sock.close()
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return None
        raise CannotStart(f"{path}: {error.strerror}", _OTHER_FOLDER)
    except BaseException:
        sock.close()
        raise
    if not ours:
        sock.close()
        raise CannotStart(f"{path}: another user listens there", _OTHER_FOLDER)
    return sock


def _connect_socket(sock: socket.socket, path: str, listen: Any) -> None:
    """Connect; while the queue of the other side is full, look whether to go on."""
    sock.setblocking(False)
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            listen()
            time.sleep(LISTEN_SECONDS)


def _start(installation: Installation, kind: str, folder: str, name: str) -> None:
    """Start a keeper that outlives this process and is none of its children."""
    log = os.path.join(folder, name + ".log")
    command = [installation.interpreter, "-I", "-m", _MODULE, kind, folder, name]
    try:
        with open(log, "ab", 0) as output:
            os.fchmod(output.fileno(), 0o600)
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=_environment(), cwd="/", start_new_session=True,
            )  # fmt: skip
        code = child.wait()  # it leaves a process of its own behind
    except OSError as error:
        raise CannotStart(
            "the keeper of {}s cannot be started: {}: {}".format(
                kind, error.filename or installation.interpreter, error.strerror
            ),
            _advice(
                error,
                f"{installation.interpreter} must be a Python that the server's user may run, and {folder} a folder that"
                " it may write to",
            ),
        )
    if code:
        raise CannotStart(
            "the keeper of {}s ended with exit code {}: {}".format(kind, code, _last_line(log)),
            _look_into(log),
        )


def _started(installation: Installation, kind: str, folder: str, name: str, listen: Any) -> Any:
    """A connection to a keeper that is started for it, or that somebody else starts."""
    path = os.path.join(folder, name)
    found: List[Any] = []

    def connects() -> bool:
        found[:] = [_connect(path, listen)]
        return found[0] is not None or not _is_held(path + ".lock")

    for _ in range(_STARTS):  # one that ends at this moment still holds the lock
        _start(installation, kind, folder, name)
        until(connects, _START_SECONDS, listen)
        sock = found[0] or _connect(path, listen)
        if sock is not None:
            return sock
    raise CannotStart(
        "the keeper of {}s did not start: {}".format(kind, _last_line(path + ".log")),
        _look_into(path + ".log"),
    )


def _look_into(log: str) -> str:
    """Advice to read a log, or to make room where nothing could be written there."""
    if machine.free_bytes(os.path.dirname(log)) == 0:
        return "nothing can be written into {}: {}".format(log, _ROOM)
    return "its log has more: {}".format(log)


def _is_held(path: str) -> bool:
    """True if a keeper holds its lock."""
    try:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _last_line(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else "it has printed nothing"
