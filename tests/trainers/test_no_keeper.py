"""Where no keeper can be started, each caller is told why, and what to do about it."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY

import cerebro_db
from cerebro_db.errors import InstallationFailed
from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)
TWO_USERS = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user than the server's")
VERSION = "CREATE OR REPLACE FUNCTION cerebro.cerebro_version() RETURNS text LANGUAGE plpython3u STABLE AS "
OTHER_PLACE = "cerebro upgrade --keeper-directory /path names another place"


@pytest.fixture
def user(cluster: Cluster) -> int:
    """The server's operating system user."""
    return pwd.getpwnam(cluster.account.name).pw_uid


@pytest.fixture
def directory(own_folder: Path, user: int) -> Iterator[Path]:
    """Where keepers are to have their folder."""
    folder = own_folder / "k"
    folder.mkdir()
    os.chown(folder, user, -1)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def call(sql: Any) -> Any:
    """Calls a function with another installation; the error that comes of it."""

    def call(**told: str) -> psycopg2.Error:
        sql.run(Script(**told).function("cerebro_version"))
        with pytest.raises(psycopg2.Error) as failure:
            sql.run("SELECT cerebro_version()")
        return failure.value

    return call


def check(error: psycopg2.Error, message: str, hint: str) -> None:
    assert error.pgcode == "YC002"
    assert message in (error.diag.message_primary or "")
    assert hint in (error.diag.message_hint or "")


def test_folder_that_is_missing(call: Any) -> None:
    found = call(keeper_directory="/nowhere")
    check(found, "/nowhere/cerebro-", OTHER_PLACE)
    check(found, "No such file or directory", OTHER_PLACE)


def test_folder_that_is_not_writable(call: Any, directory: Path) -> None:
    directory.chmod(0o500)
    check(call(keeper_directory=str(directory)), "Permission denied", OTHER_PLACE)


@pytest.mark.parametrize(
    "how", ["a file", "a link", "others enter", pytest.param("someone else's", marks=TWO_USERS)]
)
def test_folder_that_is_not_private(call: Any, directory: Path, user: int, how: str) -> None:
    folder = directory / f"cerebro-{user}"
    if how == "a file":
        folder.touch()
    elif how == "a link":
        folder.symlink_to("/tmp")
    else:
        folder.mkdir(mode=0o700)
        if how == "others enter":
            os.chown(folder, user, -1)
            folder.chmod(0o750)
    found = call(keeper_directory=str(directory))
    check(
        found, f"{folder}: got something else than a folder of ", "an administrator can remove it"
    )


def test_folder_with_too_long_a_name(call: Any) -> None:
    found = call(keeper_directory="/tmp/" + "x" * 80)
    check(found, "allowed: up to 107", OTHER_PLACE)


@TWO_USERS
def test_socket_that_someone_else_has_taken(
    call: Any, sql: Any, directory: Path, user: int
) -> None:
    sql.run(Script(keeper_directory=str(directory)).function("cerebro_version"))
    sql.value("SELECT cerebro_version()")
    for pid in _keepers(directory):
        os.kill(pid, signal.SIGKILL)
    folder = directory / f"cerebro-{user}"
    (path,) = [one for one in folder.iterdir() if one.is_socket()]
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen()
        path.chmod(0o666)
        os.chown(folder, user, -1)
        found = call(keeper_directory=str(directory))
    check(found, "another user listens there", OTHER_PLACE)


def test_package_that_is_gone(call: Any, sql: Any, own_folder: Path) -> None:
    package = own_folder / "moved"
    subprocess.run(["cp", "-r", Script().package, str(package)], check=True)
    sql.run(Script(package=str(package)).function("cerebro_version"))
    sql.value("SELECT cerebro_version()")
    package.rename(own_folder / "elsewhere")
    with pytest.raises(psycopg2.Error) as failure:
        sql.run("SELECT cerebro_version()")
    check(failure.value, f"{package}/__init__.py: No such file", '"cerebro upgrade"')


def test_interpreter_that_was_moved(call: Any, sql: Any, own_folder: Path) -> None:
    python = own_folder / "moved_python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    sql.run(Script(python=str(python)).function("cerebro_version"))
    sql.value("SELECT cerebro_version()")
    python.unlink()
    found = call(python=str(python))
    check(found, f"{python}: No such file", 'run "cerebro upgrade" with --python and the path')


def test_package_that_may_not_be_read(call: Any, sql: Any, own_folder: Path) -> None:
    package = own_folder / "secret"
    subprocess.run(["cp", "-r", Script().package, str(package)], check=True)
    sql.run(Script(package=str(package)).function("cerebro_version"))
    sql.value("SELECT cerebro_version()")
    package.chmod(0o700 if os.geteuid() == 0 else 0)  # the server is never root
    with pytest.raises(psycopg2.Error) as failure:
        sql.run("SELECT cerebro_version()")
    check(failure.value, f"{package}/__init__.py: Permission denied", "may not read it")
    package.chmod(0o755)


def test_something_else_in_the_place_of_a_socket(
    call: Any, sql: Any, directory: Path, user: int
) -> None:
    sql.run(Script(keeper_directory=str(directory)).function("cerebro_version"))
    sql.value("SELECT cerebro_version()")
    (keeper,) = _keepers(directory)
    os.kill(keeper, signal.SIGKILL)
    (path,) = [one for one in (directory / f"cerebro-{user}").iterdir() if one.is_socket()]
    path.unlink()
    path.mkdir()
    found = call(keeper_directory=str(directory))
    check(found, f"{path}: got something else than a socket", OTHER_PLACE)


@pytest.fixture
def disk(directory: Path, user: int) -> Iterator[Callable[[str], Path]]:
    """Makes a small file system that the server's user may write to."""

    def disk(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"{options},uid={user},mode=755", "none"]
        done = subprocess.run([*command, str(directory)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("needs the right to mount a file system")
        return directory

    yield disk
    for pid in _keepers(directory):
        os.kill(pid, signal.SIGKILL)
    subprocess.run(["umount", "-l", str(directory)], capture_output=True, check=False)


@pytest.mark.parametrize("inodes", [1, 2])
def test_disk_without_room_for_files(call: Any, disk: Any, inodes: int) -> None:
    """For the folder, or for what is in it: the root of a file system is one of its files."""
    folder = disk(f"nr_inodes={inodes}")
    found = call(keeper_directory=str(folder))
    check(found, f"{folder}/cerebro-", "make room on its disk")
    check(found, "No space left on device", "cerebro upgrade --keeper-directory /path")


def test_disk_without_room_for_logs(
    call: Any, sql: Any, disk: Any, user: int, own_folder: Path
) -> None:
    folder = disk("size=64k")
    python = own_folder / "python"
    python.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    python.chmod(0o755)
    (folder / "filler").write_bytes(bytes(2**16))
    found = call(keeper_directory=str(folder), python=str(python))
    check(found, "exit code 3: it has printed nothing", "nothing can be written into ")
    check(found, "exit code 3: it has printed nothing", "make room on its disk")
    # A keeper that has nothing to tell needs none.
    sql.run(Script(keeper_directory=str(folder)).function("cerebro_version"))
    assert sql.value("SELECT cerebro_version()") == cerebro_db.__version__


def test_verify_tells_of_a_full_disk(empty_database: str, disk: Any) -> None:
    folder = disk("size=1m")
    installer.install(empty_database, Script(keeper_directory=str(folder)))
    report = installer.verify(empty_database, Script())
    told = [warning for warning in report.warnings if "MB of room for logs" in warning]
    assert len(told) == 1
    assert told[0].startswith(str(folder))


def test_verify_tells_why_there_is_no_keeper(empty_database: str, directory: Path) -> None:
    installer.install(empty_database, Script(keeper_directory=str(directory)))
    directory.chmod(0o500)
    with pytest.raises(
        InstallationFailed, match=f"{directory}/cerebro-.*: Permission denied"
    ) as no:
        installer.verify(empty_database, Script())
    assert OTHER_PLACE in (no.value.hint or "")
    directory.chmod(0o755)


def test_interpreter_that_cannot_run(call: Any, own_folder: Path) -> None:
    python = own_folder / "python"
    python.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    python.chmod(0o755)
    check(call(python=str(python)), "exit code 3: it is broken", ".log")
    python.chmod(0o644)
    check(call(python=str(python)), "Permission denied", "that the server's user may run")


@TWO_USERS
def test_fork_that_fails(sql: Any, directory: Path, user: int, cluster: Cluster) -> None:
    sql.run(Script(keeper_directory=str(directory)).function("cerebro_version"))
    sql.value("SELECT cerebro_version()")
    (keeper,) = _keepers(directory)
    try:
        # Of its own user, who may lower it in any container.
        limit = ["prlimit", "--pid", str(keeper), "--nproc=1:1"]
        subprocess.run(limit, check=True, user=user, group=cluster.account.gid)
        with pytest.raises(psycopg2.Error) as failure:
            sql.run("SELECT cerebro_version()")
        check(failure.value, "no driver can be started: Resource temporarily", "ulimit -u")
    finally:
        os.kill(keeper, signal.SIGKILL)
    sql.value("SELECT cerebro_version()")
    for pid in _keepers(directory):
        os.kill(pid, signal.SIGKILL)


@TWO_USERS
def test_no_process_for_a_keeper(sql: Any, directory: Path, user: int, cluster: Cluster) -> None:
    sql.run(Script(keeper_directory=str(directory)).function("cerebro_version"))
    backend = sql.value("SELECT pg_backend_pid()")
    limit = ["prlimit", "--pid", str(backend), "--nproc=1:1"]
    subprocess.run(limit, check=True, user=user, group=cluster.account.gid)
    with pytest.raises(psycopg2.Error) as failure:
        sql.run("SELECT cerebro_version()")
    message = "the keeper of drivers cannot be started: "
    check(failure.value, message, "the limits of processes and memory")
    check(failure.value, "Resource temporarily unavailable", "ulimit -u")


def test_a_normal_user_is_informed_in_psql(
    sql: Any, database: str, cluster: Cluster, directory: Path, user: int
) -> None:
    sql.run(Script(keeper_directory="/nowhere").function("cerebro_version"))
    sql.run("CREATE ROLE plain LOGIN IN ROLE cerebro_user")
    try:
        dsn = database.replace("user=postgres", "user=plain")
        command = [cluster.psql(), "-X", "-d", dsn, "-c", "SELECT cerebro_version()"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        sql.run("DROP ROLE plain")
    error, hint, *_ = done.stderr.splitlines()
    assert error == f"ERROR:  /nowhere/cerebro-{user}: No such file or directory"
    assert hint.startswith("HINT:  the server's user must be able to make a folder there")


def _keepers(directory: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            parent = Path(path.parent, "status").read_text().split("PPid:")[1].split()[0]
        except OSError:
            continue
        if os.fsencode(directory) in b" ".join(words) and b"cerebro_db.trainers" in words:
            found.append((int(path.parent.name), int(parent)))
    # Above the keeper there is the process that orphans come to; below it is what it has started.
    above = {pid for pid, parent in found if parent not in dict(found)}
    return [pid for pid, parent in found if parent in above]
