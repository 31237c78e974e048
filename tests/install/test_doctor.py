"""cerebro doctor: what is there, what is missing, and how to get it."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import cerebro_db
from cerebro_db.configs.frameworks import frameworks
from cerebro_db.install import doctor, postgres
from cerebro_db.install.doctor import examine
from cerebro_db.install.embedded import Cluster
from tests.install.test_cli import cerebro

MACHINE = ["PostgreSQL of this machine", "processors", "memory", "package", "Python of trainers"]


def by_name(findings: list[doctor.Finding]) -> dict[str, doctor.Finding]:
    """Findings by what was looked for."""
    return {one.name: one for one in findings}


def test_a_database_that_is_well(database: str, has_segments: bool) -> None:
    done = cerebro("doctor", "--dsn", database, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["ok"] is True
    found = {one["name"]: one for one in told["findings"]}
    assert list(found)[: len(MACHINE)] == MACHINE
    assert found["package"]["value"] == f"cerebro-db {cerebro_db.__version__}"
    assert found["Cerebro-DB"]["value"].startswith(f"{cerebro_db.__version__}, ")
    assert found["interpreter"]["value"] == sys.executable
    needed = {"server", "plpython3u", "Python of plpython3u", "libraries", "TensorFlow", "pg_cron"}
    assert needed <= found.keys()
    assert {"memory of a trainer", "folder of keepers", "keras of trainers"} <= found.keys()
    assert ("segments" in found) == has_segments
    assert found["libraries"]["state"] == found["server"]["state"] == "ok"


def test_a_database_without_it(empty_database: str) -> None:
    done = cerebro("doctor", "--dsn", empty_database)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    (place,) = [place for place, line in enumerate(lines) if line.startswith("missing ")]
    assert "not in database" in lines[place]
    assert lines[place + 1].strip() == f'-> cerebro install --dsn "{empty_database}"'


def test_a_database_in_another_encoding(latin_database: str) -> None:
    found = by_name(examine(latin_database, None))
    assert found["encoding"].state == "missing"
    assert found["encoding"].value.startswith('LATIN1 of database "')
    assert "ENCODING 'UTF8'" in (found["encoding"].advice or "")
    assert cerebro("doctor", "--dsn", latin_database).returncode == 1


def test_a_server_that_does_not_answer() -> None:
    (*_, last) = examine("host=/nowhere dbname=x", None)
    assert (last.name, last.state) == ("database", "missing")
    assert "/nowhere" in last.value


def test_a_function_that_is_missing(database: str, sql: Any) -> None:
    sql.run("DROP FUNCTION cerebro.cerebro_pause(bigint)")
    (*_, last) = examine(database, None)
    assert (last.name, last.state) == ("Cerebro-DB", "missing")
    assert last.value.endswith("missing in schema cerebro: cerebro_pause")
    assert last.advice == 'Run "cerebro upgrade".'


def test_a_role_that_may_not_look(database: str, administrator: Any) -> None:
    administrator.run("CREATE ROLE looks_on LOGIN IN ROLE cerebro_user")
    try:
        (*_, last) = examine(f"{database} user=looks_on", None)
    finally:
        administrator.run("DROP ROLE looks_on")
    assert (last.name, last.state) == ("Cerebro-DB", "warning")
    assert 'role "looks_on" is no superuser' in last.value


def test_data_of_another_version(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.data.mkdir()
    (cluster.data / "PG_VERSION").write_text("9\n")
    (*_, last) = examine(None, cluster)
    assert (last.name, last.state) == ("server", "missing")
    assert "is of PostgreSQL 9, and this machine has" in last.value
    assert "docs/install.md" in (last.advice or "")


def test_a_package_that_was_upgraded_and_a_database_that_was_not(database: str, sql: Any) -> None:
    body = sql.value(
        "SELECT prosrc FROM pg_proc WHERE oid = 'cerebro.cerebro_version()'::regprocedure"
    )
    earlier = body.replace(f"'version': '{cerebro_db.__version__}'", "'version': '0.0.9'")
    assert earlier != body
    sql.run(
        f"CREATE OR REPLACE FUNCTION cerebro.cerebro_version() RETURNS text LANGUAGE plpython3u AS $x${earlier}$x$"
    )
    (*_, last) = examine(database, None)
    assert (last.name, last.state) == ("Cerebro-DB", "missing")
    assert last.value == (
        f"the database has version 0.0.9 of Cerebro-DB, this is {cerebro_db.__version__}"
    )
    assert "cerebro upgrade" in (last.advice or "")


def test_no_database_and_no_server(tmp_path: Path) -> None:
    (*_, last) = examine(None, None)
    assert (last.name, last.state) == ("database", "optional")


def test_what_is_not_installed_is_reported_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = [
        "no-such-library>=2",
        "numpy>=1",
        'no-such-tensorflow; extra == "cpu"',
        'no-such-tensorflow-either; extra == "gpu"',
        'no-such-onnx<3; extra == "onnx"',
        'numpy>=999; extra == "images"',
        'numpy>=1; extra == "gp"',
        'no-such-thing; sys_platform == "win32"',
    ]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: wanted)
    found = by_name(examine(None, None))
    install = f"{sys.executable} -m pip install"
    assert found["libraries"].state == found["TensorFlow"].state == "missing"
    assert found["libraries"].advice == f'{install} "no-such-library>=2"'
    assert found["TensorFlow"].advice == f'{install} "cerebro-db[cpu]" (or [gpu])'
    assert found["extra onnx"].advice == f'{install} "no-such-onnx<3"'
    assert found["extra images"].advice == f'{install} "numpy>=999"'
    assert found["extra onnx"].state == found["extra images"].state == "optional"
    assert (found["extra gp"].state, found["extra gp"].value) == (
        "ok",
        f"numpy {metadata.version('numpy')}",
    )


def test_it_knows_the_extras_of_the_package() -> None:
    extras = {
        str(Requirement(text).marker).rpartition("extra == ")[2].strip('"')
        for text in metadata.requires("cerebro-db") or ()
        if "extra ==" in text
    }
    of_frameworks = {extra for one in frameworks().values() for extra in one.extras}
    told = {*of_frameworks, *doctor._OPTIONAL}
    assert extras - {"demo", "dev", "docs", "test"} == told


def test_a_python_without_a_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LAST", (3, 10))
    monkeypatch.setattr(doctor, "_FIRST", (3, 9))
    found = by_name(examine(None, None))["Python of trainers"]
    assert found.state == "missing"
    assert found.advice == "make a virtual environment with a Python from 3.9 to 3.10"


def test_a_machine_without_postgresql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = postgres.find
    monkeypatch.setattr(postgres, "find", lambda: find(prefix=tmp_path))
    found = by_name(examine(None, None))["PostgreSQL of this machine"]
    assert found.state == "optional"  # the server may be elsewhere
    assert "apt-get install postgresql-" in (found.advice or "")


def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory_mb", lambda: 512)
    found = by_name(examine(None, None))["memory"]
    assert (found.state, found.value) == ("warning", "512 MB")


@pytest.mark.parametrize(
    "dsn", ["dbname=x password=secret", "postgresql://me:secret@host/x", "postgresql://me@host/x"]
)
def test_no_password_is_shown(dsn: str) -> None:
    assert "secret" not in doctor._quoted(dsn)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("15.4 (Debian 15.4-1)", "apt-get install postgresql-plpython3-15"),
        ("9.4.26", "the server's own packages"),
    ],
)
def test_a_server_without_plpython(
    monkeypatch: pytest.MonkeyPatch, version: str, advice: str
) -> None:
    monkeypatch.setattr(doctor, "rows", lambda *_: [(version, None, None, False, "x", "UTF8")])
    found = {one.name: one for one in doctor._of_server(None)}  # type: ignore[arg-type]
    assert found["plpython3u"].state == "missing"
    assert advice in (found["plpython3u"].advice or "")
    assert found["pg_cron"].state == "optional"
    package = "apt-get install postgresql-15-cron; " if version.startswith("15") else ""
    assert (found["pg_cron"].advice or "").startswith(f"{package}docs/jobs.md tells")


def test_pg_cron_that_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [("15.4", "1.0", "1.6", False, "x", "UTF8")]
    monkeypatch.setattr(doctor, "rows", lambda *_: facts)
    (*_, found) = doctor._of_server(None)  # type: ignore[arg-type]
    assert (found.name, found.state) == ("pg_cron", "optional")
    assert "no CREATE EXTENSION" in found.value
    assert "docs/jobs.md" in (found.advice or "")
    facts[:] = [("15.4", "1.0", "1.6", True, "x", "UTF8")]
    (*_, found) = doctor._of_server(None)  # type: ignore[arg-type]
    assert (found.state, found.advice) == ("ok", None)
