"""Keepers of several versions on one server, and of a package that is upgraded while they run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY

import cerebro_db
from cerebro_db.install import installer, sources
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from tests.server.conftest import Caller, make_tables_at
from tests.trainers.test_no_keeper import VERSION, _keepers

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)


class Environment:
    """A virtual environment with a copy of the package, and the libraries of this one.

    Args:
        folder: of it.
    """

    def __init__(self, folder: Path) -> None:
        base = [os.path.realpath(sys.executable), "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(base, check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.python, self.package = str(folder / "bin" / "python"), site / "cerebro_db"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(sources.package_directory(), self.package, ignore=ignored)

    def upgrade(self, version: str) -> None:
        """Put another version in the place of the package."""
        file = self.package / "__init__.py"
        file.write_text(file.read_text().replace(cerebro_db.__version__, version))


@pytest.fixture
def directory(own_folder: Path, cluster: Cluster) -> Iterator[Path]:
    """Where keepers are to have their folder; they end with the test."""
    folder = own_folder / "u"
    folder.mkdir()
    os.chown(folder, cluster.account.uid, -1)
    yield folder
    for pid in _keepers(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)


@pytest.fixture
def environment(own_folder: Path) -> Iterator[Environment]:
    """One with a package of its own."""
    folder = own_folder / "environment"
    yield Environment(folder)
    shutil.rmtree(folder)


def test_two_databases_with_different_versions(
    sql: Any, empty_database: str, environment: Environment, directory: Path, connect: Any
) -> None:
    other = connect(empty_database)
    ours = Script(keeper_directory=str(directory))
    installer.install(
        empty_database,
        Script(environment.python, str(environment.package), str(directory)),
    )
    sql.run(ours.function("cerebro_version"))
    environment.upgrade("0.0.9")
    body = other.value("SELECT prosrc FROM pg_proc WHERE proname = 'cerebro_version'")
    other.run(VERSION + f"$x${body.replace(cerebro_db.__version__, '0.0.9')}$x$")
    for _ in range(2):
        assert sql.value("SELECT cerebro_version()") == cerebro_db.__version__
        assert other.value("SELECT cerebro.cerebro_version()") == "0.0.9"
    assert len(_keepers(directory)) == 2


@pytest.mark.slow
def test_a_package_that_is_upgraded_under_a_running_keeper(
    empty_database: str, environment: Environment, directory: Path, connect: Callable[[str], Any]
) -> None:
    script = Script(environment.python, str(environment.package), str(directory))
    installer.install(empty_database, script)
    make_tables_at(empty_database)
    caller = Caller(empty_database)
    try:
        caller.prepare()
        before = _keepers(directory)
        environment.upgrade("9.9.9")
        # Nothing of the new version reaches processes of the old one, not even where it is needed first.
        for name in ("program", "keras_file"):
            file = environment.package / "training" / f"{name}.py"
            file.write_text("raise ImportError('of another version')")
        caller.hop()
        with pytest.raises(psycopg2.errors.InvalidParameterValue):
            caller.sql.run(
                "SELECT cerebro._read_model_file(cerebro._join_state(NULL, 'no such file'))"
            )
        assert connect(empty_database).value("SELECT cerebro_version()") == "9.9.9"
        after = _keepers(directory)
        assert set(before) < set(after)
        assert len(after) == len(before) + 1
    finally:
        caller.close()
