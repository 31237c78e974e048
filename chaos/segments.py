"""A cluster with segments that is killed: one that runs already, all of it on this machine.

Its processes are found by what the coordinator tells of its segments, and by their data directories.
"""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions

from cerebro_db.errors import ClusterFailed
from cerebro_db.install import embedded, installer
from cerebro_db.install.script import Script
from chaos.server import UP_SECONDS, Server, until

VARIABLE = "CEREBRO_GREENPLUM_DSN"
_COORDINATOR = -1
_SESSION = re.compile(rb" con(\d+) ")

_log = logging.getLogger(__name__)


class NotHere(Exception):
    """The cluster cannot be killed from here."""


class Segments(Server):
    """A database of that cluster.

    Args:
        dsn: of the database.

    Raises:
        NotHere: processes of it are on another machine, or another user's.
    """

    partitions = workers = 0
    chooses_partitions = False
    # Rows of a view come to segments in any order; which ones make a batch shows in last bits.
    predicts = False
    # A segment that ends, and what could not be committed there, which has no code of its own.
    lost = ("08", "57", "58", "XX")

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        rows = self.fetch(_NODES)
        away = [host for _, host, folder in rows if not _is_here(Path(folder))]
        if away:
            raise NotHere(f"the cluster is not on this machine, or another user's: {away}")
        self.folders = {content: Path(folder) for content, _, folder in rows}
        self.partitions = self.workers = len(rows) - 1

    # -- what is seen ------------------------------------------------------------
    def run(self, output: str) -> tuple[Any, ...] | None:
        """Statement by statement: none of them may read both what replicated tables and what the
        coordinator knows."""
        rows = self.fetch(_RUN, (output,))
        if not rows:
            return None
        run_id, written, error, driver, lock_key = rows[0]
        shown = self.fetch("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,))
        hops = self.value(_HOPS, (run_id,))
        workers = [pid for (pid,) in self.fetch(_WORKERS, (lock_key + 1,))]
        return (
            run_id, written, shown[0][0] if shown else None, error, hops,
            driver in self.pids(), workers,
        )  # fmt: skip

    def drivers(self) -> list[int]:
        """Process ids of sessions of drivers and workers."""
        return [pid for (pid,) in self.fetch(_DRIVERS)]

    def pids(self) -> list[int]:
        """Process ids of all sessions."""
        return [pid for (pid,) in self.fetch(_PIDS)]

    def sessions(self) -> list[str]:
        """Sessions of others, as words."""
        return [text for (text,) in self.fetch(_SESSIONS)]

    def leftovers(self) -> list[str]:
        """Leftovers that must not be there, on the coordinator and on segments."""
        found = [text for sql in _LEFTOVERS for (text,) in self.fetch(sql)]
        return self.sessions() + found

    def description(self) -> dict[str, Any]:
        """Version and settings."""
        segments = {"segments": len(self.folders) - 1}
        return super().description() | {"version": self.value("SELECT version()")} | segments

    def controls(self) -> list[Control]:
        """Controls that start each of its servers as it runs now."""
        found = []
        for content, folder in self.folders.items():
            pid = self._first_process(content)
            assert pid is not None
            found.append(Control.of(pid, folder))
        return found

    # -- what is done to it --------------------------------------------------------
    def kill_postmaster(self) -> None:
        """Kill the coordinator, and start it."""
        folder = self.folders[_COORDINATOR]
        pid = self._first_process(_COORDINATOR)
        assert pid is not None
        control = Control.of(pid, folder)
        os.kill(pid, signal.SIGKILL)
        self.forget_session()
        gone = "processes of the coordinator end after its first one"
        until(lambda: not embedded.processes_in(folder), UP_SECONDS, gone)
        control.start()

    def restart(self) -> None:
        """The coordinator."""
        folder = self.folders[_COORDINATOR]
        pid = self._first_process(_COORDINATOR)
        assert pid is not None
        Control.of(pid, folder).run("restart", "-m", "immediate")
        self.forget_session()

    def stopped(self, content: int) -> Control:
        """Stop a segment; what comes back starts it."""
        pid = self._first_process(content)
        assert pid is not None
        control = Control.of(pid, self.folders[content])
        control.run("stop", "-m", "immediate")
        return control

    def kill_on_segment(
        self, sessions: Sequence[int], reads: bool, generator: random.Random
    ) -> int | None:
        """Kill a process of one of these sessions on a segment."""
        pids = self.on_segments(sessions, reads)
        with suppress(ProcessLookupError):
            if pids:
                pid = generator.choice(pids)
                os.kill(pid, signal.SIGKILL)
                return pid
        return None

    def on_segments(self, sessions: Sequence[int], reads: bool) -> list[int]:
        """Processes of sessions on segments: of each, the one that uses most memory reads."""
        numbers = {n for (n,) in self.fetch(_NUMBERS, (list(sessions),))}
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for content in self.folders:
            first = self._first_process(content) if content != _COORDINATOR else None
            for pid, number in _children(first) if first else ():
                if number in numbers:
                    found.setdefault((content, number), []).append((_memory(pid), pid))
        return [pid for pids in found.values() for pid in _chosen(sorted(pids), reads)]

    def log_size(self) -> dict[Path, int]:
        """Bytes of the logs of all."""
        logs = [path for folder in self.folders.values() for path in folder.glob("pg_log/*.csv")]
        return {path: path.stat().st_size for path in logs}

    def _first_process(self, content: int) -> int | None:
        return embedded.read_pid(self.folders[content] / "postmaster.pid")


class Control:
    """Stops and starts a server as it was started before.

    Args:
        programs: folder of pg_ctl.
        folder: its data directory.
        environment: that it had.
        network: the network namespace that it was in.
    """

    def __init__(
        self, programs: Path, folder: Path, environment: dict[str, str], network: Network
    ) -> None:
        self._programs, self.folder, self._environment = programs, folder, environment
        self.network = network
        options = (folder / "postmaster.opts").read_text().split('"')[1::2]
        self._options = " ".join(options[options.index(str(folder)) + 1 :])

    @classmethod
    def of(cls, pid: int, folder: Path) -> Control:
        """The control of a server that runs."""
        process = Path("/proc") / str(pid)
        pairs = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        programs = Path(os.readlink(process / "exe")).parent
        return cls(programs, folder, environment, Network(pid))

    @property
    def is_up(self) -> bool:
        """True if the server runs."""
        return _is_here(self.folder)

    def start(self) -> None:
        """Start it."""
        self.run("start", "-o", self._options)

    def run(self, *arguments: str) -> None:
        """pg_ctl."""
        self.program("pg_ctl", "-D", str(self.folder), "-w", "-t", "60", *arguments)

    def program(self, name: str, *arguments: str) -> None:
        """A program of the server, as the user whose server it is and where it was; what that starts
        must not keep our files open."""
        owner = self.folder.stat()
        user = ("setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups")
        subprocess.run(
            [
                *self.network.entering,
                *(user if os.geteuid() == 0 else ()),
                self._programs / name,
                *arguments,
            ],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd="/",
        )


class Network:
    """The network namespace of a process: it stays when the process ends.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._file = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        self.is_ours = os.path.samestat(os.fstat(self._file), os.stat("/proc/self/ns/net"))

    @property
    def entering(self) -> Sequence[str]:
        """Prefix that runs a command there; entering another one needs root."""
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        return () if self.is_ours else ("nsenter", f"--net={path}")


@contextmanager
def segments(dsn: str, database: str = "cerebro_chaos") -> Iterator[Segments]:
    """A database of its own in that cluster, removed at the end."""
    drop = f"DROP DATABASE IF EXISTS {database}"
    _execute(dsn, drop, f"CREATE DATABASE {database}")
    own, folders = psycopg2.extensions.make_dsn(dsn, dbname=database), list[Path]()
    try:
        installer.install(own, Script())
        server = Segments(own)
        folders += server.folders.values()
        yield server
        server.forget_session()
    finally:
        _execute(dsn, _END.format(database=database))
        time.sleep(1)
        try:
            _execute(dsn, drop)
        except psycopg2.errors.ObjectInUse:
            _end_waiting(database, folders)
            time.sleep(1)
            _execute(dsn, drop)


def _end_waiting(database: str, folders: Sequence[Path]) -> None:
    """End processes that no session knows, and report them.

    A process that reads for another one, which was killed, waits for that one's snapshot for an hour
    and a half.
    """
    for pid in [pid for folder in folders for pid in embedded.processes_in(folder)]:
        with suppress(OSError):
            title = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
            if database.encode() in title.split():
                _log.warning("was left: %s", title.decode(errors="replace").strip())
                os.kill(pid, signal.SIGTERM)


def _is_here(folder: Path) -> bool:
    """True if a server with that data directory runs on this machine and can be killed."""
    with suppress(ClusterFailed):
        pid = embedded.read_pid(folder / "postmaster.pid")
        return pid is not None and embedded.works_in(pid, folder)
    return False


def _execute(dsn: str, *statements: str) -> None:
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        for statement in statements:
            connection.cursor().execute(statement)


def _children(first: int) -> Iterator[tuple[int, int]]:
    """Processes that a server has started for sessions, with the numbers of these."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == first:
                match = _SESSION.search((process / "cmdline").read_bytes().replace(b"\0", b" "))
                if match:
                    yield int(process.name), int(match[1])


def _memory(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0


def _chosen(pids: Sequence[tuple[int, int]], reads: bool) -> list[int]:
    """The largest reads; a session that has one process there has not read yet."""
    chosen = pids[1:][-1:] if reads else pids[:1]
    return [pid for _, pid in chosen]


_NODES = """
SELECT content, hostname, datadir FROM gp_segment_configuration WHERE role = 'p' ORDER BY content
"""

_RUN = """
SELECT run_id, status, error, driver_pid, lock_key FROM cerebro.catalog_runs
 WHERE output_name = %s ORDER BY run_id DESC LIMIT 1
"""
_HOPS = "SELECT count(*) FROM cerebro.catalog_hops WHERE run_id = %s"

_WORKERS = """
SELECT l.pid FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.objsubid = 1
   AND l.gp_segment_id = -1 AND (l.classid::bigint << 32) | l.objid::bigint = %s ORDER BY 1
"""

_PIDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
_DRIVERS = f"{_PIDS} AND application_name = 'cerebro worker' ORDER BY 1"
_NUMBERS = "SELECT sess_id FROM pg_stat_activity WHERE pid = ANY (%s::int[])"

_SESSIONS = """
SELECT 'the session ' || a.application_name || ', ' || a.state || ': ' || left(a.query, 80)
  FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
"""

_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"

_LEFTOVERS = (
    """
    SELECT 'the table ' || c.relname || ' on ' || c.place
      FROM (SELECT relname, relkind, relnamespace, -1 AS place FROM pg_class
            UNION ALL
            SELECT relname, relkind, relnamespace, gp_segment_id FROM gp_dist_random('pg_class')) c
     WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro_states')
       AND c.relkind = 'r'
    """,
    """
    SELECT 'the temporary relation ' || c.relname || ' on ' || c.place
      FROM (SELECT relname, relpersistence, -1 AS place FROM pg_class
            UNION ALL
            SELECT relname, relpersistence, gp_segment_id FROM gp_dist_random('pg_class')) c
     WHERE c.relpersistence = 't'
    """,
    "SELECT 'an advisory lock of ' || l.pid FROM pg_locks l WHERE l.locktype = 'advisory'",
    "SELECT 'a prepared transaction ' || gid FROM pg_prepared_xacts",
    "SELECT 'the request ' || request_id || ' of run ' || run_id FROM cerebro.catalog_requests",
    "SELECT 'a run that goes on: ' || run_id FROM cerebro.runs WHERE status IN ('starting', 'running')",
)
