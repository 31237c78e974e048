"""What an administrator sets: names, ranges, who may, and that it counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import cerebro_db
from cerebro_db.configs.settings import DESCRIPTIONS, Settings, parse_setting
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.sessions import dsn as strings
from tests.security.conftest import NET, Person, log_in

PACKAGE = Path(cerebro_db.__file__).resolve().parent


@pytest.fixture(autouse=True)
def _restored(root: Person) -> Iterator[None]:
    yield
    root.rows("DELETE FROM cerebro.catalog_settings")


def test_defaults_are_shown(alice: Person, dave: Person) -> None:
    shown = "SELECT name, value, default_value, description FROM cerebro.settings"
    expected = {
        (name, str(getattr(Settings(), name)), str(getattr(Settings(), name)), text)
        for name, text in DESCRIPTIONS.items()
    }
    assert set(dave.rows(shown)) == expected
    assert set(alice.rows(shown)) == {row for row in expected if row[0] != "worker_dsn"}


def test_set_and_restore(dave: Person, alice: Person) -> None:
    value = "SELECT value, default_value FROM cerebro.settings WHERE name = 'cache_mb'"
    dave.rows("SELECT cerebro_set('cache_mb', ' 64 ')")
    assert alice.rows(value) == [("64", "1024")]
    dave.rows("SELECT cerebro_set('cache_mb', '65')")
    assert alice.rows(value) == [("65", "1024")]
    dave.rows("SELECT cerebro_set('cache_mb', NULL)")
    assert alice.rows(value) == [("1024", "1024")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cache_mb", "-1", "cache_mb: got '-1'; allowed: 0 to"),
        ("cache_mb", "lots", "allowed: 0 to"),
        ("cache_mb", "1.5", "allowed: 0 to"),
        ("cache_mb", "", "allowed: 0 to"),
        ("cache_mb", "9" * 30, "allowed: 0 to"),
        ("cache_mb", "1" + "0" * 5000, "allowed: 0 to"),
        ("cache_mb", "\u0661", "allowed: 0 to"),
        ("max_layers", "0", "allowed: 1 to"),
        ("state_chunk_kb", "0", "allowed: 1 to"),
        ("state_chunk_kb", "1000001", "allowed: 1 to 1000000"),
        ("cahce_mb", "1", "Did you mean 'cache_mb'"),
        ("cahce_mb", None, "Did you mean 'cache_mb'"),
        ("Settings", "1", "setting"),
        ("trainer_nice", "-1", "trainer_nice: got '-1'; allowed: 0 to 19"),
        ("trainer_nice", "20", "allowed: 0 to 19"),
        ("trainer_cpus", "3-1", "allowed: numbers and ranges such as 0-3,8"),
        ("trainer_cpus", "0x1", "allowed: numbers and ranges"),
        ("trainer_cpus", "1,", "allowed: numbers and ranges"),
        ("trainer_cpus", "12345", "allowed: numbers and ranges"),
        ("trainer_network", "yes", "trainer_network: got 'yes'; allowed: off or on"),
        (
            "peer_network",
            "10.1.0.1/16",
            "peer_network: got '10.1.0.1/16': 10.1.0.1/16 has host bits set",
        ),
        ("peer_network", "10.1.0.0/33", "such as 10.1.0.0/16"),
        ("peer_network", "everywhere", "such as 10.1.0.0/16"),
        ("peer_network", "10.1.0.0/16,10.2.0.0/16", "such as 10.1.0.0/16"),
        (
            "peer_ports",
            "80-90",
            "peer_ports: got '80-90'; allowed: a range of ports from 1024 to 65535",
        ),
        ("peer_ports", "40000", "such as 40000-40999"),
        ("peer_ports", "40999-40000", "such as 40000-40999"),
        ("peer_ports", "40000-70000", "such as 40000-40999"),
        ("tensorboard_dir", "/srv/logs", "cerebro_set('files_root', '/srv/cerebro')"),
        ("tensorboard_dir", "..", "allowed: a path below the setting files_root"),
        ("tensorboard_dir", "a/../../b", "allowed: a path below"),
        ("tensorboard_dir", "a//b", "allowed: a path below"),
        ("tensorboard_dir", "./a", "allowed: a path below"),
        ("tensorboard_dir", ".ssh", "allowed: a path below"),
        ("files_root", "logs", "allowed: an absolute path"),
        ("files_root", "/srv/../etc", "allowed: an absolute path"),
        ("files_root", "/srv//logs", "allowed: an absolute path"),
        ("__class__", None, "setting"),
        (None, "1", "name: got NULL"),
        ("worker_dsn", "host=/tmp password=x", "with the keyword 'password'"),
        ("worker_dsn", "host=/tmp PASSWORD = 'x'", "with the keyword"),
        ("worker_dsn", "host=/tmp sslpassword=x", "with the keyword 'sslpassword'"),
        ("worker_dsn", "host=/tmp user=postgres", "with the keyword 'user'"),
        ("worker_dsn", "host=a hostaddr=10.0.0.1", "with the keyword 'hostaddr'"),
        ("worker_dsn", "host=a options='-c search_path=x'", "with the keyword 'options'"),
        ("worker_dsn", "host=a sslkeylogfile=/tmp/keys", "allowed: host, port"),
        ("worker_dsn", "host=a unheard=x", "with the keyword 'unheard'"),
        ("worker_dsn", "postgresql://alice:secret@localhost/sales", "keyword=value"),
        ("worker_dsn", "host='/tmp", "keyword=value"),
        ("worker_dsn", "host", "keyword=value"),
    ],
)
def test_what_is_refused(name: str | None, value: str | None, message: str, dave: Person) -> None:
    error = dave.refused("SELECT cerebro_set(%s, %s)", (name, value))
    assert error.pgcode == "22023"
    assert message in f"{error.diag.message_primary} {error.diag.message_hint}"
    assert "secret" not in str(error)
    assert dave.rows("SELECT 1 FROM cerebro.catalog_settings") == []


@pytest.mark.parametrize(
    "value",
    [
        "service=cerebro dbname=sales",
        "host=localhost port=5433 passfile=/etc/cerebro/passwords",
        r"host='/a b\'c' connect_timeout = 3",
        "host=a require_auth='!password,!md5'",
        "",
    ],
)
def test_connection_strings_without_a_password(value: str) -> None:
    assert parse_setting("worker_dsn", value) == value.strip()


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("peer_network", " 10.1.0.0/16 ", "10.1.0.0/16"),
        ("peer_network", "10.1.2.3", "10.1.2.3/32"),
        ("peer_network", "FD00:0:0:1::/64", "fd00:0:0:1::/64"),
        ("peer_network", "", ""),
        ("peer_ports", "40000 - 40999", "40000-40999"),
        ("peer_ports", "", ""),
    ],
)
def test_networks_and_ports(name: str, value: str, stored: str) -> None:
    assert parse_setting(name, value) == stored


def test_nul_is_refused_by_the_package_too() -> None:
    with pytest.raises(InvalidArgument):
        parse_setting("worker_dsn", "host=\0")


def test_only_superusers_say_where_the_server_sends_passwords(dave: Person, root: Person) -> None:
    given = "host=/tmp passfile=/srv/passwords"
    for value in (given, None):
        error = dave.refused("SELECT cerebro.cerebro_set('worker_dsn', %s)", (value,))
        assert (error.pgcode, "superusers may" in str(error.diag.message_hint)) == ("42501", True)
    # Nor by statements of their own, whatever the function does.
    root.rows("SELECT cerebro.cerebro_set('cache_mb', '64')")
    for statement in (
        "INSERT INTO cerebro.catalog_settings VALUES ('worker_dsn', 'host=/tmp')",
        "UPDATE cerebro.catalog_settings SET name = 'worker_dsn'",
        "SELECT cerebro._set_setting('worker_dsn', 'host=/tmp')",
        "SELECT cerebro._set_setting('worker_dsn', NULL)",
    ):
        assert dave.refused(statement).pgcode == "42501"
    root.rows("SELECT cerebro.cerebro_set('worker_dsn', %s)", (given,))
    assert dave.value("SELECT value FROM cerebro.settings WHERE name = 'worker_dsn'") == given
    assert dave.refused("DELETE FROM cerebro.catalog_settings").pgcode == "42501"
    dave.rows("SELECT cerebro.cerebro_set('cache_mb', NULL)")
    assert root.rows("SELECT name FROM cerebro.catalog_settings") == [("worker_dsn",)]
    root.rows("SELECT cerebro.cerebro_set('worker_dsn', NULL)")
    assert root.rows("SELECT name FROM cerebro.catalog_settings") == []


@pytest.mark.parametrize(
    ("name", "value"), [("peer_network", "10.1.0.0/16"), ("peer_ports", "40000-40999")]
)
def test_only_superusers_say_with_whom_trainers_connect(
    dave: Person, alice: Person, root: Person, name: str, value: str
) -> None:
    for given in (value, None):
        error = dave.refused("SELECT cerebro.cerebro_set(%s, %s)", (name, given))
        assert (error.pgcode, "connections" in str(error)) == ("42501", True)
        assert "superusers may" in str(error.diag.message_hint)
    add = "SELECT cerebro._set_setting(%s, %s)"
    assert dave.refused(add, (name, value)).pgcode == "42501"
    root.rows("SELECT cerebro.cerebro_set(%s, %s)", (name, value))
    # Whoever trains reads it.
    assert alice.value("SELECT value FROM cerebro.settings WHERE name = %s", (name,)) == value


def test_what_an_earlier_version_stored_is_checked_when_it_is_used(
    root: Person, alice: Person
) -> None:
    root.rows(
        "INSERT INTO cerebro.catalog_settings VALUES ('worker_dsn', 'host=a hostaddr=10.0.0.1')"
    )
    again = log_in(alice.connection.dsn, alice.name)  # without sessions of earlier calls
    with closing(again.connection):
        error = again.refused("SELECT cerebro.cerebro_pack('rows', 'again', 'y', 'x')")
    assert (error.pgcode, "with the keyword 'hostaddr'" in str(error)) == ("22023", True)


@pytest.mark.parametrize(
    ("libpq", "dsn", "expected"),
    [
        (170000, "host=a user='x'", "host=a user='x' require_auth='!password'"),
        (170000, "host=a require_auth=password", "host=a require_auth=password"),
        (170000, "service=a", "service=a"),
        (150004, "host=a", "host=a"),
    ],
)
def test_no_password_in_clear_text_unless_configured(
    libpq: int, dsn: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strings.psycopg2.extensions, "libpq_version", lambda: libpq)
    assert strings.without_cleartext(dsn) == expected


def test_a_keyword_that_the_client_library_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r'libpq \d+ cannot use: invalid .* "of_tomorrow"'):
        strings.check_dsn("host=a of_tomorrow=1")


def test_users_may_not(alice: Person) -> None:
    error = alice.refused("SELECT cerebro_set('cache_mb', '1')")
    assert error.pgcode == "42501"
    assert "cerebro_admin" in str(error.diag.message_hint)


def test_it_counts_in_a_run(dave: Person, alice: Person, root: Person) -> None:
    dave.rows("SELECT cerebro_set('max_parameters', '5')")
    error = alice.refused("SELECT cerebro_load_model('models', %s)", (NET,))
    assert "allowed" in str(error)
    dave.rows("SELECT cerebro_set('max_parameters', NULL)")
    run = "SELECT cerebro_fit_multiple('packed', %s, 'configs', 2, num_workers := 1)"
    cached = "SELECT bool_or(cached) FROM cerebro.hops WHERE run_id = %s"
    assert alice.value(cached, (alice.value(run, ("with_cache",)),)) is True
    dave.rows("SELECT cerebro_set('cache_mb', '0')")
    assert alice.value(cached, (alice.value(run, ("without_cache",)),)) is False


@pytest.fixture
def own_directory(root: Person) -> Iterator[Path]:
    """A directory of the server's user."""
    with tempfile.TemporaryDirectory(prefix="cerebro_root") as name:
        data = Path(root.value("SHOW data_directory")).stat()
        os.chown(name, data.st_uid, data.st_gid)
        yield Path(name)


def test_only_superusers_name_the_root_of_files(
    root: Person, dave: Person, own_directory: Path
) -> None:
    for value in (str(own_directory), root.value("SHOW data_directory"), None):
        error = dave.refused("SELECT cerebro.cerebro_set('files_root', %s)", (value,))
        assert (error.pgcode, "superusers may" in str(error.diag.message_hint)) == ("42501", True)
    add = "SELECT cerebro._set_setting('files_root', '/tmp')"
    assert dave.refused(add).pgcode == "42501"
    root.rows("SELECT cerebro.cerebro_set('files_root', %s)", (str(own_directory),))
    dave.rows("SELECT cerebro.cerebro_set('tensorboard_dir', 'events/of.all')")
    dave.rows("SELECT cerebro.cerebro_set('tensorboard_dir', NULL)")
    assert root.rows("SELECT name FROM cerebro.catalog_settings") == [("files_root",)]


def test_no_root_of_files_is_the_servers(root: Person, own_directory: Path) -> None:
    """Not the data directory, what is in it, above it, a link to it, or the package."""
    data = Path(root.value("SHOW data_directory"))
    link = own_directory / "link"
    link.symlink_to(data)
    for place in (data, data / "base", data / "base" / "nowhere", data.parent, link, link / "base",
                  PACKAGE, PACKAGE / "relay", Path("/"), Path("/nowhere")):  # fmt: skip
        error = root.refused("SELECT cerebro.cerebro_set('files_root', %s)", (str(place),))
        assert (error.pgcode, "setting files_root: got" in str(error)) == ("22023", True), place
        assert "install -d" in str(error.diag.message_hint)
    assert root.rows("SELECT name FROM cerebro.catalog_settings") == []


def test_no_root_of_files_is_a_tablespace(root: Person, own_directory: Path) -> None:
    place = own_directory / "space"
    place.mkdir(mode=0o700)
    os.chown(place, own_directory.stat().st_uid, -1)
    root.rows(f"CREATE TABLESPACE of_files LOCATION '{place}'")
    try:
        for one in (place, own_directory):
            error = root.refused("SELECT cerebro.cerebro_set('files_root', %s)", (str(one),))
            assert f"contains or lies in {place}" in str(error)
    finally:
        root.rows("DROP TABLESPACE of_files")
