"""The server that is killed: an embedded cluster of its own, and a session that watches it."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg2

from cerebro_db.install import embedded, installer
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


class Server(ABC):
    """A running server.

    Args:
        dsn: of the database that the runs are in.
    """

    partitions, workers = 4, 2
    # Whether that many are asked for; where they lie on segments there is one on each.
    chooses_partitions = True
    lost: Sequence[str] = _LOST
    # Whether models are also compared by what they predict.
    predicts = True

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
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
                if error.pgcode and error.pgcode[:2] not in self.lost:
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

    # -- what is seen ------------------------------------------------------------
    def run(self, output: str) -> tuple[Any, ...] | None:
        """The last run of an output name: run_id, its status as it was written, as it is shown,
        error, hops, whether its driver's session is there, process ids of its workers."""
        rows = self.fetch(_RUN, (output,))
        return rows[0] if rows else None

    def drivers(self) -> list[int]:
        """Process ids of sessions of drivers and workers."""
        return list(self.value(_DRIVERS))

    def pids(self) -> list[int]:
        """Process ids of all sessions."""
        return [pid for (pid,) in self.fetch(_PIDS)]

    def sessions(self) -> list[str]:
        """Sessions of others, as words."""
        return [text for (text,) in self.fetch(_SESSIONS)]

    def leftovers(self) -> list[str]:
        """Leftovers that must not be there while no run goes on, as words."""
        return self.sessions() + [text for (text,) in self.fetch(_LEFTOVERS)]

    def description(self) -> dict[str, Any]:
        """Version and settings."""
        settings = {name: self.value(f"SHOW {name}") for name in SETTINGS}
        return {"postgresql": self.value("SHOW server_version"), "settings": settings}

    # -- what is done to it --------------------------------------------------------
    @abstractmethod
    def kill_postmaster(self) -> None:
        """Kill the first process, wait for the others, which have to end by themselves, and start.

        Raises:
            TookTooLong: processes of the server go on without it.
        """

    def restart(self) -> None:
        """Restart it without waiting for anybody."""
        raise NotImplementedError

    def kill_on_segment(
        self, sessions: Sequence[int], reads: bool, generator: random.Random
    ) -> int | None:
        """Kill a process of one of these sessions on a segment; None where there is none.

        Args:
            sessions: process ids on the coordinator.
            reads: the process that reads, and trains; else the one that writes.
            generator: chooses one.
        """
        raise NotImplementedError

    @abstractmethod
    def log_size(self) -> dict[Path, int]:
        """Bytes of each log."""

    def log_since(self, sizes: Mapping[Path, int]) -> str:
        """Part of the logs beyond so many bytes."""
        found = []
        for path in self.log_size():
            with path.open("rb") as file:
                file.seek(sizes.get(path, 0))
                found.append(file.read().decode(errors="replace"))
        return "".join(found)

    def _session(self) -> Any:
        if self._connection is None:
            self._connection = psycopg2.connect(
                self.dsn, application_name="chaos", options="-c extra_float_digits=3"
            )
            self._connection.autocommit = True
        return self._connection


class Embedded(Server):
    """A server in a folder of its own.

    Args:
        cluster: its files and processes.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.dsn())
        self.cluster = cluster

    def leftovers(self) -> list[str]:
        """Files as well."""
        files = self.cluster.data.glob("base/pgsql_tmp/*")
        return super().leftovers() + [f"the file {path.name}" for path in files]

    def kill_postmaster(self) -> None:
        """Kill the first process, and start anew."""
        pid = self.cluster.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.forget_session()
        gone = "processes of the server end after its first one"
        until(lambda: not embedded.processes_in(self.cluster.data), UP_SECONDS, gone)
        self.cluster.start()

    def log_size(self) -> dict[Path, int]:
        """Bytes of its log."""
        return {self.cluster.log: self.cluster.log.stat().st_size}


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
            yield Embedded(cluster)
        finally:
            cluster.destroy()


SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "wal_level")

_PIDS = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"

_DRIVERS = """
SELECT coalesce(array_agg(pid ORDER BY pid), '{}') FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name = 'cerebro worker'
"""

# Workers share the lock of a run's guard, which is the one after the run's own.
_RUN = """
SELECT r.run_id, r.status, (SELECT v.status FROM cerebro.runs v WHERE v.run_id = r.run_id), r.error,
       (SELECT count(*) FROM cerebro.catalog_hops h WHERE h.run_id = r.run_id),
       EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.pid = r.driver_pid),
       (SELECT coalesce(array_agg(l.pid ORDER BY l.pid), '{}') FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.objsubid = 1
           AND (l.classid::bigint << 32) | l.objid::bigint = r.lock_key + 1)
  FROM cerebro.catalog_runs r WHERE r.output_name = %s ORDER BY r.run_id DESC LIMIT 1
"""

_SESSIONS = """
SELECT 'the session ' || a.application_name || ', ' || a.state || ': ' || left(a.query, 80)
  FROM pg_stat_activity a
 WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
"""

_LEFTOVERS = """
SELECT 'the table ' || c.oid::regclass FROM pg_class c
 WHERE c.relnamespace = 'cerebro_states'::regnamespace AND c.relkind = 'r'
UNION ALL
SELECT 'the temporary relation ' || c.relname FROM pg_class c WHERE c.relpersistence = 't'
UNION ALL
SELECT 'an advisory lock of ' || l.pid FROM pg_locks l WHERE l.locktype = 'advisory'
UNION ALL
SELECT 'a prepared transaction ' || gid FROM pg_prepared_xacts
UNION ALL
SELECT 'the request ' || q.request_id || ' of run ' || q.run_id FROM cerebro.catalog_requests q
UNION ALL
SELECT 'a run that goes on: ' || r.run_id FROM cerebro.runs r
 WHERE r.status IN ('starting', 'running')
"""
