"""Fixtures of the tests that need a database: one cluster a session, one fresh database a test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.configuration
import psycopg2
import psycopg2.extensions
import psycopg2.extras
import pytest
from pace import stretched
from servers import (
    EMBEDDED,
    SEGMENTS,
    VARIABLE,
    SegmentServer,
    Server,
    connected,
    drop_database,
    limit_partitions,
    make_database,
)
from upkeep import Upkeep, revive

from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from cerebro_db.training import environment

TEMPLATE = f"cerebro_template_{os.getpid()}"

# A test's data need not survive a crash of the machine.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

_numbers = itertools.count(1)

# What libraries keep for later, such as a number that ONNX Runtime gives to a machine, is no part of anyone's home.
_caches = tempfile.TemporaryDirectory(prefix="cerebro-caches-")
os.environ["XDG_CACHE_HOME"] = _caches.name
os.environ["KERAS_HOME"] = f"{_caches.name}/keras"

# Some tests import Keras when they are collected: it must find what a worker's would.
environment.set_environment(threads=1, use_gpus=False)


# Python waits for servers, not libpq, so that a test can be interrupted when its time is up.
psycopg2.extensions.set_wait_callback(psycopg2.extras.wait_select)

# Fixtures that several tests share, with a connection.
SHARED = ("administrator", "bench", "db", "trained", "root")
FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which server the tests use that need one."""
    parser.addoption(
        "--server",
        choices=(EMBEDDED, SEGMENTS),
        default=EMBEDDED,
        help="the server of tests that need one: the embedded PostgreSQL, or the cluster with"
        " segments that CEREBRO_GREENPLUM_DSN names",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before tests are collected: some tell by what the server can what they expect."""
    if config.getoption("--server") == SEGMENTS:
        limit_partitions()
    # Beside what pytest keeps, where "make clean" finds it.
    hypothesis.configuration.set_hypothesis_home_dir(
        config.rootpath / ".pytest_cache" / "hypothesis"
    )


# Files of these folders share what takes long to make: they run in one process.
TOGETHER = ("tests/docs/",)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which process runs what: a file at a time, or a folder."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folders = (folder for folder in TOGETHER if nodeid.startswith(folder))
            return next(folders, super()._split_scope(nodeid))

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What cannot be on segments is left out there, with its reason; a slow machine has more time for each test."""
    for item in items:
        if item.get_closest_marker("timeout") is None and config.getoption("timeout") is None:
            item.add_marker(pytest.mark.timeout(stretched(float(config.getini("timeout")))))
    if config.getoption("--server") != SEGMENTS:
        return
    for item in items:
        if marker := item.get_closest_marker("not_on_segments"):
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep whether a test has failed, and may have left a server that needs help."""
    report = yield
    if report.failed:
        item.config.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def upkeep() -> Upkeep | None:
    """Who looks after the cluster with segments."""
    return Upkeep(os.environ[VARIABLE]) if VARIABLE in os.environ else None


@pytest.fixture(autouse=True)
def a_server_that_answers(request: pytest.FixtureRequest, upkeep: Upkeep | None) -> None:
    """What a failed test has broken is mended first, or the next one fails at once."""
    if not request.config.stash.get(FAILED, False):
        return
    request.config.stash[FAILED] = False
    if upkeep is not None:
        upkeep.restore()
    shared = [name for name in SHARED if name in request.fixturenames]
    revive(
        holder for holder in map(request.getfixturevalue, shared) if hasattr(holder, "connection")
    )


@pytest.fixture(scope="session")
def tensorflow() -> None:
    """TensorFlow in this process, set up as in a worker with one thread."""
    environment.configure(threads=1)


@pytest.fixture(autouse=True)
def tensorflow_of_slow_tests(request: pytest.FixtureRequest) -> None:
    """Tests marked slow use Keras in this process; its threads can be set only before."""
    if request.node.get_closest_marker("slow"):
        request.getfixturevalue("tensorflow")


@dataclass
class Sql:
    """Runs statements on one autocommit connection and fetches what they return."""

    connection: psycopg2.extensions.connection
    dsn: str

    def run(self, query: str, values: Sequence[Any] | None = None) -> None:
        """Executes statements that return nothing of interest."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)

    def fetch(self, query: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    def row(self, query: str, values: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """The only row of a query."""
        (row,) = self.fetch(query, values)
        return row

    def value(self, query: str, values: Sequence[Any] | None = None) -> Any:
        """The only value of a query."""
        (value,) = self.row(query, values)
        return value

    def column(self, query: str, values: Sequence[Any] | None = None) -> list[Any]:
        """The first column of a query."""
        return [row[0] for row in self.fetch(query, values)]

    def close(self) -> None:
        """End the session, also where another thread is left waiting for it."""
        active = psycopg2.extensions.TRANSACTION_STATUS_ACTIVE
        if self.connection.info.transaction_status == active:
            self.connection.cancel()
        self.connection.close()

    @property
    def notices(self) -> list[str]:
        """What the server has told so far."""
        return list(self.connection.notices)


def _connected(dsn: str) -> Sql:
    return Sql(connected(dsn), dsn)


@pytest.fixture
def connect() -> Iterator[Callable[[str], Sql]]:
    """Makes autocommit connections from DSNs, and closes them after the test."""
    made: list[Sql] = []

    def make(dsn: str) -> Sql:
        made.append(_connected(dsn))
        return made[-1]

    yield make
    for sql in made:
        sql.close()


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder that the server's user can enter, with a path short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="cerebro-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_folder(short_folder: Path) -> Path:
    """A new folder for one test that the server's user can enter, with a short path."""
    folder = Path(tempfile.mkdtemp(dir=short_folder, prefix=""))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def has_segments(pytestconfig: pytest.Config) -> bool:
    """Whether the tests run on a cluster with segments."""
    return bool(pytestconfig.getoption("--server") == SEGMENTS)


@pytest.fixture(scope="session")
def cluster(short_folder: Path, has_segments: bool) -> Iterator[Server]:
    """The server of all tests: an embedded cluster, started by the package's own code."""
    if has_segments:
        yield SegmentServer.named()
        return
    cluster = Cluster(short_folder / "home", settings=FAST)
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="session")
def administrator(cluster: Server) -> Iterator[Sql]:
    """A superuser's connection to the cluster's database postgres."""
    sql = _connected(cluster.dsn("postgres"))
    sql.run("SET statement_timeout = '300s'")  # so that fixtures end, too
    yield sql
    sql.connection.close()


@pytest.fixture(scope="session")
def template(cluster: Server, administrator: Sql) -> Iterator[str]:
    """The name of a database with Cerebro-DB installed, which others are copies of."""
    make_database(administrator, TEMPLATE)
    installer.install(cluster.dsn(TEMPLATE), Script())
    yield TEMPLATE
    drop_database(administrator, TEMPLATE)


@pytest.fixture
def empty_database(cluster: Server, administrator: Sql) -> Iterator[str]:
    """The DSN of a fresh database without Cerebro-DB."""
    with _fresh_database(cluster, administrator, "template1") as dsn:
        yield dsn


@pytest.fixture
def latin_database(cluster: Server, administrator: Sql) -> Iterator[str]:
    """The DSN of a fresh database in the encoding LATIN1."""
    name = f"latin_{os.getpid()}"
    administrator.run(
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    yield cluster.dsn(name)
    drop_database(administrator, name)


@pytest.fixture
def database(cluster: Server, administrator: Sql, template: str) -> Iterator[str]:
    """The DSN of a fresh database with Cerebro-DB, as a superuser."""
    with _fresh_database(cluster, administrator, template) as dsn:
        yield dsn


@pytest.fixture
def sql(database: str) -> Iterator[Sql]:
    """An autocommit connection to ``database``, as a superuser."""
    sql = _connected(database)
    yield sql
    sql.close()


@pytest.fixture
def connection(sql: Sql) -> psycopg2.extensions.connection:
    """The psycopg2 connection of ``sql``."""
    return sql.connection


@contextmanager
def _fresh_database(cluster: Server, administrator: Sql, template: str) -> Iterator[str]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    make_database(administrator, name, template)
    # What ALTER DATABASE has set is no part of a copy.
    for setting in _settings(administrator, template):
        variable, _, value = setting.partition("=")
        administrator.run(f"ALTER DATABASE {name} SET {variable} = {value}")
    try:
        yield cluster.dsn(name)
    finally:
        drop_database(administrator, name)


def _settings(administrator: Sql, database: str) -> list[str]:
    return administrator.column(
        "SELECT unnest(setconfig) FROM pg_db_role_setting s JOIN pg_database d"
        " ON d.oid = s.setdatabase WHERE s.setrole = 0 AND d.datname = %s",
        [database],
    )
