"""The command line: what it prints, and the exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reasons import EMBEDDED_ONLY

import cerebro_db
import cerebro_db.errors
from cerebro_db.configs.frameworks import installed

PACKAGE = str(Path(cerebro_db.__file__).parent)
LIMITS = [
    "memory of a trainer",
    "processors of a trainer",
    "network of a trainer",
    "files outside of the database",
]
# Everybody may create there before PostgreSQL 15, of which an installation warns.
CLOSED = "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
# By default a cluster has limits that verify tells.
OF_SEGMENTS = re.compile(
    r"cerebro: warning: (resource queue pg_default allows 20 active statements|segments train at nice 19)\b"
)
LIGHT = ("sqlalchemy", "psycopg2", "jinja2", "numpy", "tensorflow", "keras")


def cerebro(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program as a user does."""
    code = "from cerebro_db.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "COLUMNS": "200", **environment},
        cwd="/",  # not the clone: the package that is installed counts
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_version() -> None:
    done = cerebro("--version")
    assert (done.returncode, done.stdout) == (0, f"{cerebro_db.__version__}\n")


def test_life_of_an_installation(empty_database: str, connect: Any) -> None:
    connect(empty_database).run(CLOSED)
    for command in ("install", "install", "upgrade"):
        done = cerebro(command, "--dsn", empty_database)
        assert (done.returncode, done.stderr) == (0, "")
        first, paths = done.stdout.splitlines()
        assert first == f"Cerebro-DB {cerebro_db.__version__} is installed."
        assert paths == f"Python {sys.executable}, package {PACKAGE}, keepers in /tmp"
    assert connect(empty_database).value("SELECT cerebro_version()") == cerebro_db.__version__
    done = cerebro("uninstall", "--dsn", empty_database)
    assert (done.returncode, done.stderr) == (0, "")
    done = cerebro("uninstall", "--dsn", empty_database)
    assert done.returncode == 1


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_an_upgrade_keeps_the_paths(empty_database: str, own_folder: Path, connect: Any) -> None:
    folder, other = own_folder / "kept", own_folder / "other"
    for one in (folder, other):
        one.mkdir()
        one.chmod(0o777)
    python = own_folder / "python"  # of this very environment, by another name
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    def upgraded(command: str = "upgrade", *arguments: str) -> str:
        done = cerebro(command, "--dsn", empty_database, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert connect(empty_database).value("SELECT cerebro_version()") == cerebro_db.__version__
        return done.stdout.splitlines()[1]

    named = ("--python", str(python), "--package", PACKAGE, "--keeper-directory", str(folder))
    first = f"Python {python}, package {PACKAGE}, keepers in {folder}"
    assert [upgraded("install", *named), upgraded(), upgraded("install")] == [first] * 3
    assert [path.name for path in folder.iterdir()] == [f"cerebro-{folder_owner(folder)}"]
    second = first.replace(str(folder), str(other))
    assert [upgraded("upgrade", "--keeper-directory", str(other)), upgraded()] == [second] * 2
    # One with another version of the package is one that nobody has upgraded.
    python.write_text("#!/bin/sh\necho 0.0.1\n")
    assert upgraded() == second.replace(str(python), sys.executable)


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_who_installs_names_the_root_of_files(
    empty_database: str, own_folder: Path, connect: Any
) -> None:
    root = own_folder / "files"
    root.mkdir(mode=0o700)
    data = Path(connect(empty_database).value("SHOW data_directory"))
    os.chown(root, data.stat().st_uid, data.stat().st_gid)

    def refused(*arguments: str) -> str:
        done = cerebro(*arguments, "--dsn", empty_database)
        assert done.returncode == 1
        return done.stderr

    assert "holds a database" in refused("install", "--files-root", str(data / "base"))
    assert connect(empty_database).value("SELECT to_regnamespace('cerebro')") is None
    assert cerebro("install", "--dsn", empty_database, "--files-root", str(root)).returncode == 0
    value = "SELECT value FROM cerebro.settings WHERE name = 'files_root'"
    assert connect(empty_database).value(value) == str(root)
    assert cerebro("upgrade", "--dsn", empty_database).returncode == 0  # keeps it
    assert connect(empty_database).value(value) == str(root)
    assert (
        f"files outside of the database: {root}"
        in cerebro("verify", "--dsn", empty_database).stdout
    )
    root.chmod(0o777)
    assert "everyone may write to" in cerebro("verify", "--dsn", empty_database).stderr
    assert cerebro("upgrade", "--dsn", empty_database, "--files-root", "").returncode == 0
    assert connect(empty_database).value(value) == ""


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_an_upgrade_keeps_a_python_of_another_machine(empty_database: str, connect: Any) -> None:
    assert cerebro("install", "--dsn", empty_database).returncode == 0
    connect(empty_database).run(
        "UPDATE pg_proc SET prosrc = replace(prosrc, %s, %s) WHERE proname = 'cerebro_version'",
        [sys.executable, "/elsewhere/bin/python"],
    )
    done = cerebro("upgrade", "--dsn", empty_database)
    assert done.returncode == 1
    assert 'the server cannot run the Python "/elsewhere/bin/python"' in done.stderr


def folder_owner(folder: Path) -> int:
    """The user of what is in there."""
    return next(folder.iterdir()).stat().st_uid


def test_verify(database: str, has_segments: bool, connect: Any) -> None:
    connect(database).run(CLOSED)
    done = cerebro("verify", "--dsn", database)
    warnings = done.stderr.splitlines()
    if has_segments:
        warnings = [line for line in warnings if not OF_SEGMENTS.match(line)]
    assert (done.returncode, warnings) == (0, [])
    first, *others = done.stdout.splitlines()
    assert first.startswith(f"Cerebro-DB {cerebro_db.__version__}, ")
    if has_segments:
        assert re.fullmatch(r"the same on \d+ segments", others.pop())
    names = ["Python", "numpy", "tensorflow", "keras", *installed()[1:]]
    versions, limits = (
        others[: len(names)],
        dict(line.split(": ", 1) for line in others[len(names) :]),
    )
    assert [line.split()[0] for line in versions] == names
    python, folder, processes, *trainer = limits
    assert [python, folder, *trainer] == ["Python of plpython3u", "folder of keepers", *LIMITS]
    assert re.fullmatch(r"3\.\d+\.\d+", limits[python])
    assert re.fullmatch(
        r"/tmp/cerebro-\d+, \d+ MB free, \d+ keepers, \d+ of them .*", limits[folder]
    )
    assert re.fullmatch(r"\d+; allowed: (\d+|any number)", limits[processes])
    assert re.fullmatch(r"\d+ MB of \d+ MB", limits[LIMITS[0]])
    assert re.fullmatch(r"[\d,]+; nice \d+", limits[LIMITS[1]])
    assert limits[LIMITS[2]] == limits[LIMITS[3]] == "none"


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_url(cluster: Any, empty_database: str) -> None:
    name = dict(part.split("=", 1) for part in empty_database.split())["dbname"]
    socket = str(cluster.socket_directory).replace("/", "%2F")
    done = cerebro("install", "--dsn", f"postgresql://postgres@{socket}/{name}")
    assert (done.returncode, done.stderr) == (0, "")


def test_print() -> None:
    named = {"--python": "/opt/bin/python", "--package": "/opt/p", "--keeper-directory": "/run/x"}
    done = cerebro("print", *(part for option in named.items() for part in option))
    assert done.returncode == 0
    for path in named.values():
        assert f": '{path}'" in done.stdout


def test_a_script_for_another_server_is_refused(empty_database: str, has_segments: bool) -> None:
    other = "postgresql" if has_segments else "greenplum6"
    script = cerebro("print", "--dialect", other)
    assert script.returncode == 0
    done = subprocess.run(
        ["psql", "-X", "-1", "-d", empty_database],
        input=script.stdout,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 3
    assert f"this script is for {other}, and the server is " in done.stderr
    assert "cerebro print --dialect" in done.stderr


def test_an_unknown_dialect_is_refused() -> None:
    done = cerebro("print", "--dialect", "oracle")
    assert done.returncode != 0
    assert "dialect: got 'oracle'; allowed: " in done.stderr


def test_error_has_a_hint_and_no_traceback(empty_database: str) -> None:
    done = cerebro("verify", "--dsn", empty_database)
    assert (done.returncode, done.stdout) == (1, "")
    message, hint = done.stderr.splitlines()
    assert message.startswith('cerebro: Cerebro-DB is not installed in database "')
    assert hint == 'HINT: Run "cerebro install" first.'


def test_wrong_usage() -> None:
    assert cerebro("frobnicate").returncode == 2


def test_server(own_folder: Path) -> None:
    home = own_folder / "cli"

    def server(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return cerebro("server", command, *arguments, CEREBRO_HOME=str(home))

    assert server("status").returncode == 3
    assert server("dsn").returncode == 1
    assert server("start").returncode == 0
    try:
        assert server("status").returncode == 0
        dsn = f"host={home}/socket port=5432 dbname=cerebro user=postgres"
        assert server("dsn").stdout == f"{dsn}\n"
        assert server("psql", "-Atc", "SELECT 1 + 1").stdout == "2\n"
        assert server("stop").stdout == "The server is stopped.\n"
        assert server("status").returncode == 3
        assert server("psql").returncode == 1
        assert server("destroy").returncode == 1  # unconfirmed
        assert home.exists()
    finally:
        assert server("destroy", "--yes").returncode == 0
    assert not home.exists()


@pytest.mark.parametrize("arguments", [("--version",), ("server", "status", "--home", "/nowhere")])
def test_starts_light(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom cerebro_db.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"sys.exit(str([name for name in {LIGHT} if name in sys.modules] or ''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""


def test_schedules_for_other_timers() -> None:
    from datetime import UTC, datetime

    from cerebro_db.cli.jobs import calendar_of, crontab_line, is_due, units

    line = crontab_line("night's 100%", "0 3 * * *", "service=sales")
    assert line.startswith("0 3 * * * ")
    assert line.endswith("""/cerebro schedule 'night'"'"'s 100\\%' --start --dsn service=sales""")
    assert calendar_of("*/15 3-5 1,15 * *") == "*-*-1,15 3..5:0/15:00"
    assert calendar_of("0 3 * */2 1-5") == "Mon,Tue,Wed,Thu,Fri *-1/2-* 3:0:00"
    assert "OnCalendar=*-*-* 3:30:00" in units("nightly", "30 3 * * *", "")
    for cron in ("0 3 1 * 1", "0 3 * jan *"):
        with pytest.raises(cerebro_db.errors.InvalidArgument, match="--systemd"):
            calendar_of(cron)
    since, now = (
        datetime(2026, 1, 1, 2, 59, 50, tzinfo=UTC),
        datetime(2026, 1, 1, 3, 0, 5, tzinfo=UTC),
    )
    assert is_due("0 3 * * *", since, now)
    assert not is_due("0 3 * * *", now, now.replace(second=20))
    assert not is_due("1 3 * * *", since, now)
