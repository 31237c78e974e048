"""The server of a benchmark: an embedded cluster of its own, with Cerebro-DB in it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

from benchmarks.meter import Meter
from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_PATIENCE = 60.0


@dataclass(frozen=True)
class Server:
    """A running server: where it is, and what measures it."""

    dsn: str
    meter: Meter

    @contextmanager
    def session(self) -> Iterator[Any]:
        """The cursor of a fresh session, which ends with all the workers that it started."""
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        try:
            yield connection.cursor()
        finally:
            connection.close()
            self._wait_until_alone()

    def version(self) -> str:
        """Of PostgreSQL."""
        with self.session() as cursor:
            cursor.execute("SHOW server_version")
            return str(cursor.fetchone()[0])

    def _wait_until_alone(self) -> None:
        """No side may be charged for what another one left running."""
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        cursor = connection.cursor()
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            cursor.execute(_OTHERS)
            if cursor.fetchone()[0] == 0:
                break
            time.sleep(0.1)
        connection.close()


@contextmanager
def server() -> Iterator[Server]:
    """A server in a temporary folder, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="cerebro-bench-", dir="/tmp") as folder:
        # Root's server runs as another user, who must be able to enter.
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder) / "home")
        cluster.start()
        try:
            installer.install(cluster.dsn(), Script())
            pid = cluster.pid()
            assert pid is not None
            yield Server(cluster.dsn(), Meter(pid))
        finally:
            cluster.destroy()
