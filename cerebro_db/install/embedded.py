"""The embedded PostgreSQL: a cluster of its own in a home directory, on a Unix socket only."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cerebro_db.errors import ClusterFailed, MissingPrerequisite
from cerebro_db.install import postgres
from cerebro_db.install.account import Account, server_account

DATABASE = "cerebro"
SUPERUSER = "postgres"
PORT = 5432

DEFAULT_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "max_connections": "50",
    "jit": "off",
    # One machine, no standby: bulk loads into new tables need no log.
    "wal_level": "minimal",
    "max_wal_senders": "0",
}

# Everyone who can reach the socket may be anyone: its folder is closed to other users. The server
# itself comes back through it, as the role that trains.
_AUTHENTICATION = "local all all trust\n"
_SOCKET_PATH_LIMIT = 107
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_ON = ("TZ", "CUDA_VISIBLE_DEVICES")


def default_home() -> Path:
    """$CEREBRO_HOME, or the usual place for the data of this user."""
    if named := os.environ.get("CEREBRO_HOME"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/lib/cerebro-db")
    shared = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(shared) / "cerebro-db"


@dataclass(frozen=True)
class Cluster:
    """Cluster of the embedded server.

    Args:
        home: its folder; everything of it is in there.
        account: who runs it.
        settings: what differs from :data:`DEFAULT_SETTINGS`.
    """

    home: Path
    account: Account = field(default_factory=server_account)
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", Path(os.path.abspath(self.home)))

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.home / "log" / "server.log"

    @property
    def socket_directory(self) -> Path:
        """Folder of the socket: in the home, or under /tmp where its path would be too long."""
        usual = self.home / "socket"
        if len(os.fsencode(usual / f".s.PGSQL.{PORT}")) <= _SOCKET_PATH_LIMIT:
            return usual
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path("/tmp") / f"cerebro-{digest}"

    def dsn(self, database: str = DATABASE) -> str:
        """The connection string, for libpq."""
        host = str(self.socket_directory).replace("\\", "\\\\").replace("'", "\\'")
        quoted = f"'{host}'" if set(host) & set(" '\\") else host
        return f"host={quoted} port={PORT} dbname={database} user={SUPERUSER}"

    def pid(self) -> int | None:
        """The postmaster's process id; None where it does not run."""
        pid = read_pid(self.data / "postmaster.pid")
        return pid if pid is not None and works_in(pid, self.data) else None

    def require_running(self) -> None:
        """Raises ClusterFailed where it does not run."""
        if self.pid() is None:
            raise ClusterFailed(
                f"no server runs in {self.home}", 'Start it: "cerebro server start"'
            )

    def start(self) -> None:
        """Starts it and makes what is missing; does nothing where it runs."""
        _ = self._postgres  # or nothing is made
        with self._locked():
            self._make_folders()
            if not self.data.exists():
                self._initialise()
            if self.pid() is None:
                self._clear_stale_locks()
                self._write_settings()
                self._launch()
            self._make_database()

    def stop(self) -> bool:
        """Stops it; whether it ran."""
        if self.pid() is None:
            return False
        with self._locked():
            # One that hangs does not hear a polite request.
            if self._control("stop", "-m", "fast", "-t", "20") is not None and self.pid():
                self._require(self._control("stop", "-m", "immediate", "-t", "60"), "stopping")
        return True

    def destroy(self) -> None:
        """Stops it and removes all that it had."""
        if not self.home.exists():
            return
        if self.data.exists() and not (self.data / "cerebro.conf").exists():
            raise ClusterFailed(f"{self.data} is not of an embedded server: nothing was removed")
        self.stop()
        for folder in (self.data, self._unfinished, *self._own_folders):
            if folder.exists():
                shutil.rmtree(folder)
        (self.home / ".lock").unlink(missing_ok=True)
        if not any(self.home.iterdir()):
            self.home.rmdir()

    def psql(self) -> str:
        """The full path of a psql of its version."""
        return self._postgres.program("psql")

    @property
    def _unfinished(self) -> Path:
        return self.home / "data.new"

    @property
    def _own_folders(self) -> tuple[Path, ...]:
        return (self.socket_directory, self.log.parent, self.home / "work")

    @property
    def _postgres(self) -> postgres.Postgres:
        """Programs of the version that made the data; of the newest one where there are none."""
        version = self.data / "PG_VERSION"
        if not version.exists():
            return postgres.find()
        major = version.read_text().strip()
        try:
            return postgres.find(major)
        except MissingPrerequisite as error:
            newest = postgres.find().major
            if newest == major:
                raise
            raise ClusterFailed(
                f"{self.data} is of PostgreSQL {major}, and this machine has PostgreSQL {newest}",
                f"To keep the data, install PostgreSQL {major} again beside it and move them with"
                " pg_upgrade or pg_dumpall: docs/install.md tells how under After an upgrade of the system."
                ' Or begin anew: "cerebro server destroy".',
            ) from error

    @property
    def _environment(self) -> dict[str, str]:
        """Environment that the server inherits: nothing that would lead its Python elsewhere."""
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        home = str(self.home / "work")
        return {"PATH": _PATH, "HOME": home, "LANG": "C.UTF-8", **passed_on}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.home.mkdir(mode=0o755, parents=True, exist_ok=True)
            lock = open(self.home / ".lock", "w")  # noqa: SIM115 - closed below
        except OSError as error:
            raise ClusterFailed(
                f"the server's folder cannot be used: {error}", "Choose another one with --home."
            ) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_folders(self) -> None:
        if not self.account.can_enter(self.home):
            raise ClusterFailed(
                f'user "{self.account.name}", who runs the server, cannot enter {self.home}',
                "Choose another folder with --home, or open the folders above it.",
            )
        for folder in self._own_folders:
            self.account.make_private(folder)

    def _initialise(self) -> None:
        # Renamed when complete: an interrupted initdb leaves nothing that looks like a cluster.
        unfinished = self._unfinished
        if unfinished.exists():
            shutil.rmtree(unfinished)
        self.account.make_private(unfinished)
        options = ["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
        command = [self._postgres.program("initdb"), "-D", str(unfinished), *options]
        done = self.account.run(command, self._environment)
        self._require(done.stdout if done.returncode else None, "initdb")
        self._write(unfinished / "pg_hba.conf", _AUTHENTICATION)
        configuration = unfinished / "postgresql.conf"
        self._write(configuration, configuration.read_text() + "\ninclude = 'cerebro.conf'\n")
        unfinished.rename(self.data)

    def _write_settings(self) -> None:
        folder = str(self.socket_directory).replace('"', '""')
        settings = {
            **DEFAULT_SETTINGS,
            **self.settings,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": f'"{folder}"',
            "unix_socket_permissions": "0700",
        }
        lines = ["# Written at each start. Change settings with ALTER SYSTEM.\n"]
        for name, value in settings.items():
            quoted = value.replace("\\", "\\\\").replace("'", "''")
            lines.append(f"{name} = '{quoted}'\n")
        self._write(self.data / "cerebro.conf", "".join(lines))

    def _write(self, path: Path, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        self.account.own(Path(name))
        os.replace(name, path)

    def _clear_stale_locks(self) -> None:
        """Removes lock files whose process id belongs to something else by now."""
        lock = self.data / "postmaster.pid"
        if read_pid(lock) is None:
            return
        if left := processes_in(self.data):
            raise ClusterFailed(
                f"processes of an earlier server still work in {self.data}: {left}",
                "Wait until they end, or end them.",
            )
        lock.unlink(missing_ok=True)
        (self.socket_directory / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)

    def _launch(self) -> None:
        failure = self._control("start", "-t", "60", "-l", str(self.log))
        if failure is not None:
            tail = (
                self.log.read_text(errors="replace").splitlines()[-5:] if self.log.exists() else []
            )
            self._require("\n".join([failure, *tail]), "starting")

    def _make_database(self) -> None:
        query = f"SELECT 1 FROM pg_catalog.pg_database WHERE datname = '{DATABASE}'"
        if not self._execute(query):
            self._execute(f'CREATE DATABASE "{DATABASE}"')

    def _execute(self, sql: str) -> str:
        command = [self.psql(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.dsn("postgres")]
        # Nothing that others have put into a schema of the search_path is run.
        environment = {**self._environment, "PGOPTIONS": "-c search_path=pg_catalog,pg_temp"}
        done = self.account.run([*command, "-c", sql], environment)
        self._require(done.stdout if done.returncode else None, "psql")
        return done.stdout.strip()

    def _control(self, *arguments: str) -> str | None:
        """Runs pg_ctl; what it said where it failed."""
        command = [self._postgres.program("pg_ctl"), "-D", str(self.data), "-w", *arguments]
        done = self.account.run(command, self._environment)
        return done.stdout if done.returncode else None

    def _require(self, failure: str | None, what: str) -> None:
        if failure is not None:
            raise ClusterFailed(
                f"{what} failed for the server in {self.home}: {failure.strip()}",
                f"The server's log is {self.log}",
            )


_NAMES = ("postgres", "postmaster")


def read_pid(file: Path) -> int | None:
    """The process id in the first line of a lock file; None where there is none.

    Raises:
        ClusterFailed: the folder is another user's.
    """
    try:
        first = file.read_text().partition("\n")[0].strip()
    except FileNotFoundError:
        return None
    except PermissionError:
        raise ClusterFailed(
            f"{file.parent} belongs to another operating system user",
            "Run this as that user, or as root.",
        ) from None
    return int(first) if first.isdigit() else None


def works_in(pid: int, folder: Path) -> bool:
    """True if that is a process of PostgreSQL with ``folder`` as working directory, as all of a
    server have their data directory. Another process that got a reused id has not."""
    process = Path("/proc") / str(pid)
    try:
        named = (process / "comm").read_text().strip() in _NAMES
        return named and (process / "cwd").samefile(folder)
    except OSError:  # gone meanwhile, or another user's
        return False


def processes_in(folder: Path) -> list[int]:
    """All processes that work there."""
    pids = (int(process.name) for process in Path("/proc").glob("[0-9]*"))
    return sorted(pid for pid in pids if works_in(pid, folder))
