"""Sessions that train, in a database of these tests: something to cancel, to look into, to end."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest
from pace import stretched
from pace import until as until
from servers import Server, connected, drop_database, make_database

from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
from cerebro_db.install.embedded import Cluster
from tests.conftest import Sql
from tests.fitting.conftest import ADAM, CLASSES, DENSE, FEATURES, PLAIN, SOFTMAX, model, select

ROWS, FOREVER = 64, 1_000_000
# Its loop is traced for seconds, and XLA compiles it for more.
DEEP = model(*[DENSE] * 30, SOFTMAX)
WORKERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE application_name = 'cerebro worker' AND datname = current_database() ORDER BY pid"
)
WORKING_ON = WORKERS.replace(
    "ORDER",
    "AND state = 'active' AND query LIKE %s"
    " AND query_start < clock_timestamp() - interval '1 second' ORDER",
)
BAD_ENDS = (
    "was terminated by signal",
    "terminated abnormally",
    "other active server processes",
    "PANIC",
)


class Caller:
    """A session whose statements run aside, so that a test can disturb them."""

    def __init__(self, dsn: str) -> None:
        connection = connected(dsn)
        self.sql = Sql(connection, dsn)
        self.sql.run("SET search_path = work, public, cerebro")
        self.pid = connection.info.backend_pid
        self.error: psycopg2.Error | None = None
        self._thread = threading.Thread()

    def prepare(self, threads: int = 1) -> None:
        """Make this session itself a worker."""
        self.sql.run("SELECT cerebro._prepare_worker(%s, false, 10000000, 0)", [threads])

    def hop(self, epochs: int = 1, *, net: str = PLAIN, jit: bool = False) -> None:
        """Train one hop in this session."""
        self.sql.run(HOP, _hop(net, epochs, jit))

    def fit(self, configs: str, **options: Any) -> None:
        """Train a grid; the sessions of its workers stay with this one."""
        given = "".join(f", {name} := %s" for name in options)
        self.sql.run(
            f"SELECT cerebro_fit_multiple('packed', %s, %s, 1{given})",
            [f"out_{time.monotonic_ns()}", configs, *options.values()],
        )

    def start(self, call: Callable[..., None], *arguments: Any, **named: Any) -> None:
        """Begin one of the above, or a statement."""

        def run() -> None:
            try:
                call(*arguments, **named)
            except psycopg2.Error as error:
                self.error = error

        self.error = None
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float = 60) -> None:
        """Until what was started has ended."""
        self._thread.join(stretched(seconds))
        assert not self._thread.is_alive(), f"it went on for {seconds} s"

    def close(self) -> None:
        """End the session, and what it is at."""
        while self._thread.is_alive():  # a run that lost its workers would go on with others
            with contextlib.suppress(psycopg2.Error):
                self.sql.connection.cancel()
            self._thread.join(0.5)
        self.sql.connection.close()


HOP = """
SELECT cerebro.cerebro_train(kind, task, NULL::bytea, NULL::bytea, 0, 0, x, x_shape, y, y_shape
                             ORDER BY kind)
  FROM (SELECT 0 AS kind, %s AS task, NULL::bytea AS x, NULL::int[] AS x_shape,
               NULL::bytea AS y, NULL::int[] AS y_shape
        UNION ALL SELECT 2, NULL, %s::bytea, %s::int[], %s::bytea, %s::int[]) AS input
"""


def _hop(net: str, epochs: int, jit: bool) -> Sequence[Any]:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(ROWS, FEATURES)).astype(np.float32)
    labels = generator.integers(0, CLASSES, ROWS).astype(np.int32)
    task = {
        "architecture": net,
        "architecture_id": fingerprint(check_architecture(net)),
        "compile_params": ADAM,
        "fit_params": f"batch_size=8,epochs={epochs}",
        "targets": {"kind": "class", "num_classes": CLASSES, "shape": []},
        "jit": jit,
        "steps_per_call": 8,
        "run_id": 0,
        "dataset": "training",
        "partition_key": 0,
        "buffers": {"ids": [0], "rows": [ROWS]},
        "seed": 0,
        "epoch": 1,
        "salt": "",
        "initial_seed": 1,
        "is_first": True,
    }
    return [json.dumps(task), features.tobytes(), [ROWS, FEATURES], labels.tobytes(), [ROWS]]


def make_tables_at(dsn: str) -> None:
    """The same in the database of a DSN."""
    connection = connected(dsn)
    make_tables(Sql(connection, dsn))
    connection.close()


def make_tables(sql: Sql) -> None:
    """A packed table of two partitions, and configurations that train shortly or forever."""
    sql.run("CREATE SCHEMA work; SET search_path = work, public, cerebro")
    sql.run(
        "CREATE TABLE points AS SELECT i AS id, i %% 3 AS label,"
        " ARRAY[sin(i), cos(i), i %% 3, i %% 5, i %% 7, 1]::real[] AS x"
        " FROM generate_series(1, %s) AS i",
        [ROWS],
    )
    options = "buffer_size := 16, num_partitions := 2"
    sql.run(f"SELECT cerebro_pack('points', 'packed', 'label', 'x', {options})")
    sql.run("SELECT cerebro_pack_validation('points', 'val', 'label', 'x', 'packed')")
    sql.run("SELECT cerebro_load_model('models', %s)", (PLAIN,))
    compile_params = [ADAM, ADAM.replace("0.01", "0.1")]
    select(sql, "short", [1], compile_params, ["batch_size=8"])
    select(sql, "endless", [1], compile_params, [f"batch_size=8,epochs={FOREVER}"])


@pytest.fixture(scope="module")
def place(cluster: Server, administrator: Sql, template: str) -> Iterator[str]:
    """The DSN of a database with the tables of these tests."""
    make_database(administrator, f"server_tests_{os.getpid()}", template)
    dsn = cluster.dsn(f"server_tests_{os.getpid()}")
    make_tables_at(dsn)
    yield dsn
    drop_database(administrator, f"server_tests_{os.getpid()}")


@pytest.fixture
def watcher(place: str, connect: Callable[[str], Sql]) -> Sql:
    """A session that looks at the others."""
    return connect(place)


@pytest.fixture
def call(place: str) -> Iterator[Callable[[], Caller]]:
    """Makes sessions; those left are closed after the test."""
    made: list[Caller] = []

    def make() -> Caller:
        made.append(Caller(place))
        return made[-1]

    yield make
    for caller in made:
        caller.close()


@pytest.fixture
def caller(call: Callable[[], Caller]) -> Caller:
    """One session."""
    return call()


@pytest.fixture
def good_ends(cluster: Server) -> Iterator[None]:
    """Whatever a test does, no server process crashes; of a cluster elsewhere nobody reads the log."""
    if not isinstance(cluster, Cluster):
        yield
        return
    start = cluster.log.stat().st_size
    yield
    assert_good_ends(cluster, start)


def assert_good_ends(cluster: Cluster, start: int = 0) -> None:
    """The log tells of no process that crashed."""
    text = cluster.log.read_bytes()[start:].decode(errors="replace")
    found = [line for line in text.splitlines() if any(bad in line for bad in BAD_ENDS)]
    assert found == []


def busy_workers(watcher: Sql, query: str) -> list[int]:
    """The two workers that have been at such a statement for a second by now."""

    def found() -> list[int]:
        pids = watcher.column(WORKING_ON, [f"%{query}%"])
        return pids if len(pids) == 2 else []

    pids: list[int] = until(found)
    return pids


def ended(pids: Sequence[int], seconds: float = 5) -> float:
    """Wait until processes are gone; the seconds that it took."""
    started = time.monotonic()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds)
    return time.monotonic() - started
