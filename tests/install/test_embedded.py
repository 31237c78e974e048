"""The embedded server: starts, stops, recovers, and keeps to its folder."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import until

from cerebro_db.errors import ClusterFailed, MissingPrerequisite
from cerebro_db.install import account, embedded, postgres
from cerebro_db.install.account import Account, server_account
from cerebro_db.install.embedded import Cluster

FAST = {"fsync": "off", "shared_buffers": "16MB"}


@pytest.fixture(scope="module")
def own(short_folder: Path) -> Iterator[Cluster]:
    """A cluster that these tests may stop."""
    cluster = Cluster(short_folder / "own home", settings=FAST)
    cluster.start()
    yield cluster
    cluster.destroy()


@pytest.fixture
def running(own: Cluster) -> Cluster:
    own.start()
    return own


def test_start_again_keeps_it(running: Cluster) -> None:
    pid = running.pid()
    running.start()
    assert running.pid() == pid


def test_only_the_socket(running: Cluster, connect: Any) -> None:
    sql = connect(running.dsn())
    assert sql.row("SELECT current_setting('listen_addresses'), current_database()") == (
        "",
        "cerebro",
    )
    assert (running.home / "socket").stat().st_mode & 0o777 == 0o700
    assert running.data.stat().st_mode & 0o777 == 0o700


def test_settings(running: Cluster, connect: Any) -> None:
    sql = connect(running.dsn())
    assert sql.value("SHOW shared_buffers") == "16MB"
    assert sql.value("SHOW jit") == "off"
    assert sql.row("SHOW server_encoding") == ("UTF8",)
    assert sql.value("SELECT datcollate FROM pg_database WHERE datname = 'cerebro'") == "C.UTF-8"


def test_stop(running: Cluster) -> None:
    assert running.stop() is True
    assert running.pid() is None
    assert running.stop() is False
    with pytest.raises(ClusterFailed, match="no server runs in"):
        running.require_running()


def test_recovers_from_a_kill(running: Cluster, connect: Any) -> None:
    pid = running.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _wait_for_end(running)
    running.start()
    assert running.pid() not in (None, pid)
    assert connect(running.dsn()).value("SELECT 1") == 1


def test_recovers_where_the_process_id_is_someone_elses(running: Cluster) -> None:
    """As after a restart of a container, where ids begin again."""
    lock = running.data / "postmaster.pid"
    socket_lock = running.socket_directory / ".s.PGSQL.5432.lock"
    old = (lock.read_text(), socket_lock.read_text())
    running.stop()
    with subprocess.Popen(
        ["/bin/sleep", "60"], **({} if running.account.is_self else {"user": running.account.uid})
    ) as other:
        for file, text in zip((lock, socket_lock), old, strict=True):
            file.write_text("\n".join([str(other.pid), *text.splitlines()[1:]]))
            running.account.own(file)
        assert running.pid() is None
        running.start()
        assert running.pid() not in (None, other.pid)
        other.kill()


def test_starts_at_once_from_two_sides(own: Cluster) -> None:
    own.stop()
    failures: list[Exception] = []

    def start() -> None:
        try:
            own.start()
        except ClusterFailed as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert own.pid() is not None


def test_environment_does_not_leak(own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    own.stop()
    for name in ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PGDATA"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PATH", f"/elsewhere/bin:{os.environ['PATH']}")
    own.start()
    environment = Path(f"/proc/{own.pid()}/environ").read_bytes()
    assert b"elsewhere" not in environment
    assert b"PATH=/usr/local/sbin:" in environment


def test_a_setting_that_stops_the_start_is_reported(own: Cluster) -> None:
    own.stop()
    wrong = Cluster(own.home, settings={**FAST, "shared_buffers": "nonsense"})
    with pytest.raises(ClusterFailed, match=r"(?s)starting failed.*shared_buffers"):
        wrong.start()


def test_long_path(own_folder: Path, connect: Any) -> None:
    cluster = Cluster(own_folder / ("long" * 25), settings=FAST)
    assert str(cluster.socket_directory).startswith("/tmp/cerebro-")
    cluster.start()
    try:
        assert connect(cluster.dsn()).value("SELECT 1") == 1
    finally:
        cluster.destroy()
    assert not cluster.home.exists()
    assert not cluster.socket_directory.exists()


def test_destroy_leaves_other_files(own_folder: Path) -> None:
    home = own_folder / "mine"
    (home / "data").mkdir(parents=True)
    (home / "data" / "precious").touch()
    with pytest.raises(ClusterFailed, match="nothing was removed"):
        Cluster(home).destroy()
    assert (home / "data" / "precious").exists()


def test_closed_home(own_folder: Path) -> None:
    closed = own_folder / "closed"
    closed.mkdir(mode=0o700)
    if server_account().is_self:
        pytest.skip("only root runs the server as someone else")
    with pytest.raises(ClusterFailed, match='user "postgres", who runs the server, cannot enter'):
        Cluster(closed / "home").start()


def test_folder_of_someone_else(own_folder: Path) -> None:
    if server_account().is_self:
        pytest.skip("only root can make one")
    home = own_folder / "taken"
    (home / "socket").mkdir(parents=True)
    os.chown(home / "socket", 1, 1)
    with pytest.raises(ClusterFailed, match="does not belong to user postgres"):
        Cluster(home).start()


def test_default_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEREBRO_HOME", "/a/b")
    assert embedded.default_home() == Path("/a/b")
    monkeypatch.delenv("CEREBRO_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert embedded.default_home() == Path("/var/lib/cerebro-db")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert embedded.default_home() == Path("/data/cerebro-db")


class TestAccount:
    """Who runs the server."""

    def test_root_without_postgres(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(account, "DEFAULT_NAME", "no_such_user")
        with pytest.raises(MissingPrerequisite, match='there is no user "no_such_user"'):
            server_account()

    def test_root_as_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        with pytest.raises(ClusterFailed, match="refuses to run as root"):
            server_account("root")

    def test_user_as_someone_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1)
        with pytest.raises(ClusterFailed, match='only root can run the server as "postgres"'):
            server_account("postgres")
        assert isinstance(server_account(), Account)


def test_data_of_a_version_that_the_machine_no_longer_has(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "home")
    cluster.data.mkdir(parents=True)
    (cluster.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(ClusterFailed) as caught:
        cluster.start()
    assert caught.value.message.startswith(
        f"{cluster.data} is of PostgreSQL 9, and this machine has PostgreSQL "
    )
    assert "pg_upgrade" in (caught.value.hint or "")
    assert "cerebro server destroy" in (caught.value.hint or "")
    assert sorted(cluster.home.iterdir()) == [cluster.data]


class TestPostgres:
    """Finds the newest server that has plpython3u."""

    def _install(self, prefix: Path, major: str, plpython: bool, *, red_hat: bool = False) -> None:
        programs = prefix / (f"pgsql-{major}/bin" if red_hat else f"lib/postgresql/{major}/bin")
        programs.mkdir(parents=True)
        (programs / "initdb").touch()
        share = f"pgsql-{major}/share" if red_hat else f"share/postgresql/{major}"
        extensions = prefix / share / "extension"
        extensions.mkdir(parents=True)
        if plpython:
            (extensions / "plpython3u.control").touch()

    def test_newest(self, tmp_path: Path) -> None:
        for major, plpython in (("9", True), ("15", True), ("16", True), ("17", False)):
            self._install(tmp_path, major, plpython)
        assert postgres.find(prefix=tmp_path).major == "16"
        assert postgres.find("15", prefix=tmp_path).major == "15"

    def test_of_pgdg_on_red_hat(self, tmp_path: Path) -> None:
        (tmp_path / "pgsql-old" / "bin").mkdir(parents=True)
        self._install(tmp_path, "16", True, red_hat=True)
        self._install(tmp_path, "17", False, red_hat=True)
        found = postgres.find(prefix=tmp_path)
        assert (found.major, found.program("psql")) == ("16", f"{tmp_path}/pgsql-16/bin/psql")
        self._install(tmp_path, "9", True)
        assert postgres.find(prefix=tmp_path).major == "16"
        with pytest.raises(MissingPrerequisite) as caught:
            postgres.find("17", prefix=tmp_path)
        assert "dnf install postgresql17-plpython3" in (caught.value.hint or "")

    def test_none(self, tmp_path: Path) -> None:
        with pytest.raises(MissingPrerequisite) as caught:
            postgres.find(prefix=tmp_path)
        assert caught.value.message == "this machine has no PostgreSQL server with plpython3u"
        major = postgres.offered() or "<version>"
        assert caught.value.hint == (
            f"On Debian and Ubuntu: apt-get install postgresql-{major} postgresql-plpython3-{major}; with the packages of "
            f"PGDG on RHEL and Rocky: dnf install postgresql{major}-server postgresql{major}-plpython3"
        )

    def test_none_of_a_version(self, tmp_path: Path) -> None:
        self._install(tmp_path, "17", True)
        with pytest.raises(MissingPrerequisite) as caught:
            postgres.find("15", prefix=tmp_path)
        assert caught.value.message == "this machine has no PostgreSQL 15 with plpython3u"
        assert "postgresql-plpython3-15" in (caught.value.hint or "")

    def test_without_plpython(self, tmp_path: Path) -> None:
        self._install(tmp_path, "16", False)
        with pytest.raises(MissingPrerequisite) as caught:
            postgres.find(prefix=tmp_path)
        assert caught.value.message == "PostgreSQL 16 of this machine has no plpython3u"
        assert caught.value.hint == (
            "On Debian and Ubuntu: apt-get install postgresql-plpython3-16; with the packages of PGDG on RHEL and Rocky: "
            "dnf install postgresql16-plpython3"
        )


def _wait_for_end(cluster: Cluster) -> None:
    until(lambda: not embedded.processes_in(cluster.data), 10)
