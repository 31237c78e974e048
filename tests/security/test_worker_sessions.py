"""Worker sessions on a server that asks who comes: each documented way, and none."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from pace import stretched

from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from tests.security.conftest import Person, log_in, quoted

NAME, PASSWORD = "al'ice", "pass word"
MAP = "worker"


class Guarded:
    """A cluster that lets the role in as one of its lines in pg_hba.conf says."""

    def __init__(self, cluster: Cluster, superuser: Person) -> None:
        self.cluster, self.superuser = cluster, superuser

    def admits(self, method: str, idents: str = "") -> None:
        """Change who is let in, and how."""
        self.write(self.cluster.data / "pg_ident.conf", idents)
        self.write(
            self.cluster.data / "pg_hba.conf",
            f"local all postgres trust\nlocal all +cerebro_user {method}\n",
        )
        loaded = self.superuser.value("SELECT pg_conf_load_time()")
        self.superuser.rows("SELECT pg_reload_conf()")
        end = time.monotonic() + stretched(20)
        while self.superuser.value("SELECT pg_conf_load_time()") == loaded:
            assert time.monotonic() < end
            time.sleep(0.02)

    def write(self, path: Path, text: str) -> None:
        """A file of the server's user, which nobody else may read."""
        path.write_text(text)
        path.chmod(0o600)
        self.cluster.account.own(path)

    def sets(self, worker_dsn: str | None) -> None:
        """Tell the server how it reaches itself."""
        self.superuser.rows("SELECT cerebro.cerebro_set('worker_dsn', %s)", (worker_dsn,))


@pytest.fixture(scope="module")
def guarded(short_folder: Path) -> Iterator[Guarded]:
    cluster = Cluster(short_folder / "guarded", settings={"fsync": "off", "shared_buffers": "16MB"})
    cluster.start()
    installer.install(cluster.dsn(), Script())
    superuser = log_in(cluster.dsn(), "postgres")
    superuser.rows(
        f"CREATE ROLE {quoted(NAME)} LOGIN PASSWORD %s IN ROLE cerebro_user", (PASSWORD,)
    )
    superuser.rows(f"CREATE SCHEMA own AUTHORIZATION {quoted(NAME)}")
    yield Guarded(cluster, superuser)
    superuser.connection.close()
    cluster.destroy()


@pytest.fixture
def enter(guarded: Guarded) -> Iterator[Callable[..., Person]]:
    """Logs the role in, and packs a table with worker sessions; nothing is left afterwards."""
    made: list[Person] = []

    def enter(**options: Any) -> Person:
        made.append(log_in(guarded.cluster.dsn(), NAME, **options))
        made[-1].rows(
            "SET search_path = own, public, cerebro; DROP TABLE IF EXISTS x, p, p_summary"
        )
        made[-1].rows(
            "CREATE TABLE x AS SELECT i %% 2 AS y, ARRAY[i] AS x FROM generate_series(1, 9) i", ()
        )
        return made[-1]

    yield enter
    for person in made:
        person.connection.close()
    guarded.sets(None)


PACK = "SELECT cerebro_pack('x', 'p', 'y', 'x', num_partitions := 2)"


def works(person: Person) -> bool:
    """Whether worker sessions do."""
    person.rows(PACK)
    return bool(person.value("SELECT count(*) FROM p") == 2)


def test_over_the_socket_by_a_map_of_names(guarded: Guarded, enter: Any) -> None:
    names = {guarded.cluster.account.name, getpass.getuser()}
    role = f'"{NAME}"'
    guarded.admits(f"peer map={MAP}", "".join(f"{MAP} {name} {role}\n" for name in names))
    assert works(enter())


def test_with_a_file_of_passwords(guarded: Guarded, enter: Any) -> None:
    guarded.admits("scram-sha-256")
    file = guarded.cluster.home / "work" / "passwords"
    guarded.write(file, f"{_of_passwords(guarded)}:{PASSWORD}\n")
    guarded.sets(f"{_address(guarded)} passfile={file}")
    assert works(enter(password=PASSWORD))
    guarded.write(file, f"{_of_passwords(guarded)}:another\n")
    error = enter(password=PASSWORD).refused(PACK)
    assert error.pgcode == "08001"
    assert PASSWORD not in str(error)


def test_with_a_service(guarded: Guarded, enter: Any) -> None:
    guarded.admits("scram-sha-256")
    work = guarded.cluster.home / "work"
    guarded.write(work / "passwords", f"{_of_passwords(guarded)}:{PASSWORD}\n")
    pairs = [*_address(guarded).split(), f"passfile={work / 'passwords'}", "user=postgres"]
    guarded.write(work / ".pg_service.conf", "[workers]\n" + "\n".join(pairs) + "\n")
    guarded.sets("service=workers")
    person = enter(password=PASSWORD)
    # A user in the service does not count: workers have the rights of the caller.
    assert works(person)
    assert person.value("SELECT tableowner FROM pg_tables WHERE tablename = 'p'") == NAME


def test_no_password_in_clear_text(guarded: Guarded, enter: Any) -> None:
    """A server that asks for it, one that passes for ours perhaps, gets it only where that is said."""
    guarded.admits("password")
    file = guarded.cluster.home / "work" / "passwords"
    guarded.write(file, f"{_of_passwords(guarded)}:{PASSWORD}\n")
    guarded.sets(f"{_address(guarded)} passfile={file}")
    error = enter(password=PASSWORD).refused(PACK)
    assert (error.pgcode, "cleartext password" in str(error)) == ("08001", True)
    guarded.sets(f"{_address(guarded)} passfile={file} require_auth=password")
    assert works(enter(password=PASSWORD))


def _of_passwords(guarded: Guarded) -> str:
    """The fields of a line of a file of passwords, but for the password."""
    folder = str(guarded.cluster.socket_directory).replace(":", r"\:")
    return f"{folder}:5432:cerebro:{NAME}"


def _address(guarded: Guarded) -> str:
    return f"host={guarded.cluster.socket_directory} port=5432 dbname=cerebro"


@pytest.mark.parametrize(
    ("method", "worker_dsn"),
    [
        ("scram-sha-256", None),
        ("scram-sha-256", "service=there_is_none"),
        ("scram-sha-256", "host=/nowhere port=5432 dbname=cerebro"),
        ("reject", None),
    ],
)
def test_where_none_works_the_call_says_so_and_leaves_nothing(
    method: str, worker_dsn: str | None, guarded: Guarded, enter: Any
) -> None:
    guarded.admits("scram-sha-256")
    guarded.sets(worker_dsn)
    person = enter(password=PASSWORD)
    guarded.admits(method)
    for call in (
        PACK,
        "SELECT cerebro_fit_multiple('p', 'o', 'c', 1)",
        "SELECT cerebro_cancel(1)",
        "SELECT cerebro_evaluate('o', 'p', 's')",
    ):
        error = person.refused(call)
        assert error.pgcode == "08001", call
        assert "docs/install.md" in error.diag.message_hint
    assert person.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'own'") == [("x",)]
    assert person.rows("SELECT * FROM cerebro.runs") == []


def test_no_password_is_in_any_table(guarded: Guarded) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        guarded.sets("host=localhost password=x")
    assert caught.value.pgcode == "22023"
    assert guarded.superuser.rows("SELECT * FROM cerebro.catalog_settings") == []
