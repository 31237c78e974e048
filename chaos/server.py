"""The server that is killed: an embedded cluster of its own, and a session that watches it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg2

from cerebro_db.install import installer, processes
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script

# The server has to be back within this, whatever was killed.
UP_SECONDS = 60.0
_POLL_SECONDS = 0.01
# Classes of SQLSTATE, where there is one at all: connection lost, server ends or starts.
_LOST = ("08", "57")
_Found = TypeVar("_Found")


class TookTooLong(Exception):
    """Something did not happen in time."""


def until(
    condition: Callable[[], _Found], seconds: float, what: str, pause: float = _POLL_SECONDS
) -> _Found:
    """Wait for something that is true; returns that.

    Raises:
        TookTooLong: it was not in time.
    """
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TookTooLong(f"{what}: not after {seconds:g} s")
        time.sleep(pause)
    return found


class Server:
    """A running server.

    Args:
        cluster: its files and processes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.dsn = cluster, cluster.dsn()
        self._connection: Any = None

    def fetch(self, sql: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement that can be repeated: a lost session is replaced.

        Raises:
            TookTooLong: the server does not answer.
        """
        found: list[list[tuple[Any, ...]]] = []

        def answered() -> bool:
            try:
                with self._session().cursor() as cursor:
                    cursor.execute(sql, parameters)
                    found.append(cursor.fetchall() if cursor.description else [])
            except psycopg2.Error as error:
                if error.pgcode and error.pgcode[:2] not in _LOST:
                    raise
                self.forget_session()
            return bool(found)

        until(answered, UP_SECONDS, "the server answers", pause=0.05)
        return found[0]

    def value(self, sql: str, parameters: Sequence[Any] | None = None) -> Any:
        """The only value of a statement."""
        ((value,),) = self.fetch(sql, parameters)
        return value

    def call(self, sql: str, parameters: Sequence[Any] | None = None) -> None:
        """A statement whose session would keep others for its next call; it ends with them."""
        self.forget_session()
        self.fetch(sql, parameters)
        self.forget_session()

    def forget_session(self) -> None:
        """The next statement makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def kill_postmaster(self) -> None:
        """Kill the first process, wait for the others, which have to end by themselves, and start.

        Raises:
            TookTooLong: processes of the server go on without it.
        """
        pid = self.cluster.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.forget_session()
        gone = "processes of the server end after its first one"
        until(lambda: not processes.all_in(self.cluster.data), UP_SECONDS, gone)
        self.cluster.start()

    def log_size(self) -> int:
        """Bytes of the server's log."""
        return self.cluster.log.stat().st_size

    def log_since(self, size: int) -> str:
        """What the log has more than so many bytes."""
        with self.cluster.log.open("rb") as file:
            file.seek(size)
            return file.read().decode(errors="replace")

    def _session(self) -> Any:
        if self._connection is None:
            self._connection = psycopg2.connect(self.dsn, application_name="chaos")
            self._connection.autocommit = True
        return self._connection


@contextmanager
def server() -> Iterator[Server]:
    """A server in a temporary folder, removed at the end; it waits for the disk as any does."""
    with tempfile.TemporaryDirectory(prefix="cerebro-chaos-", dir="/tmp") as folder:
        # Root's server runs as another user, who must be able to enter.
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder) / "home")
        cluster.start()
        try:
            installer.install(cluster.dsn(), Script())
            yield Server(cluster)
        finally:
            cluster.destroy()
