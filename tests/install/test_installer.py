"""Installing is one transaction, can be repeated, and says exactly what is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reasons import EMBEDDED_ONLY
from servers import as_role

import cerebro_db
from cerebro_db.configs import frameworks
from cerebro_db.errors import CerebroError, InstallationFailed, MissingPrerequisite
from cerebro_db.install import installer, script, sources
from cerebro_db.install.connection import rows, transaction
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script, Step, sql_array

SCHEMA = """
SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
  FROM pg_depend d JOIN pg_namespace n ON n.oid = d.refobjid
 WHERE n.nspname = 'cerebro' AND d.refclassid = 'pg_namespace'::regclass
 UNION ALL
SELECT oid::regprocedure || ' ' || md5(prosrc) || coalesce(proacl::text, '')
  FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')
 UNION ALL
SELECT name || checksum FROM cerebro.catalog_migrations
 ORDER BY 1
"""


@pytest.fixture
def empty(empty_database: str, connect: Any) -> Any:
    return connect(empty_database)


def test_names_work_unqualified(sql: Any) -> None:
    assert sql.value("SELECT cerebro_version()") == cerebro_db.__version__


def test_every_function_has_a_comment(sql: Any) -> None:
    silent = sql.column(
        "SELECT oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro') AND proname NOT LIKE E'\\\\_%%'"
        " AND obj_description(oid, 'pg_proc') IS NULL"
    )
    assert silent == []


def test_again_is_the_same(database: str, sql: Any) -> None:
    before = sql.column(SCHEMA)
    installer.install(database, Script())
    assert sql.column(SCHEMA) == before


def test_functions_are_for_members_of_cerebro_user(database: str, sql: Any, connect: Any) -> None:
    sql.run("CREATE ROLE member LOGIN IN ROLE cerebro_user; CREATE ROLE stranger LOGIN")
    try:
        member, stranger = (connect(as_role(database, role)) for role in ("member", "stranger"))
        assert member.value("SELECT cerebro_version()") == cerebro_db.__version__
        with pytest.raises(Exception, match="permission denied for schema cerebro"):
            stranger.value("SELECT cerebro.cerebro_version()")
    finally:
        sql.run("DROP ROLE member, stranger")


def test_search_path_keeps_what_was_set(empty_database: str, empty: Any, connect: Any) -> None:
    name = empty.value("SELECT current_database()")
    empty.run(
        f'CREATE SCHEMA "My, data"; ALTER DATABASE {name} SET search_path = "My, data", public'
    )
    installer.install(empty_database, Script())
    installer.install(empty_database, Script())
    assert connect(empty_database).value("SHOW search_path") == '"My, data", public, cerebro'
    installer.uninstall(empty_database)
    assert connect(empty_database).value("SHOW search_path") == '"My, data", public'


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_printed_script_applies(
    empty_database: str, sql: Any, connect: Any, cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "install.sql"
    file.write_text(Script().text())
    command = [cluster.psql(), "-X", "-q", "-1", "-d", empty_database, "-f", str(file)]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert connect(empty_database).column(SCHEMA) == sql.column(SCHEMA)


def test_failure_changes_nothing(
    empty_database: str, empty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*Script().steps(), Step("the last", "SELECT 1/0")]
    monkeypatch.setattr(Script, "steps", lambda _: iter(steps))
    with pytest.raises(InstallationFailed, match="the last: division by zero") as caught:
        installer.install(empty_database, Script())
    assert caught.value.sqlstate == "22012"
    assert not empty.value("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'cerebro')")
    assert not empty.value("SELECT EXISTS (SELECT 1 FROM pg_language WHERE lanname = 'plpython3u')")


def test_functions_of_an_earlier_version_go(database: str, sql: Any) -> None:
    sql.run(
        "CREATE FUNCTION cerebro.cerebro_version(int) RETURNS int LANGUAGE sql AS 'SELECT 1';"
        "CREATE AGGREGATE cerebro.old_one(int) (SFUNC = int4pl, STYPE = int)"
    )
    installer.upgrade(database, Script())
    assert sql.value("SELECT count(*) FROM pg_proc WHERE proname = 'cerebro_version'") == 1
    assert sql.value("SELECT count(*) FROM pg_proc WHERE proname = 'old_one'") == 0


def test_two_at_once_wait_for_each_other(empty_database: str, empty: Any) -> None:
    failures: list[Exception] = []

    def run() -> None:
        try:
            installer.install(empty_database, Script())
        except CerebroError as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


class TestMigrations:
    """Each runs once; a changed one and an unknown one are refused."""

    @pytest.fixture
    def script(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        folder = tmp_path / "sql"
        shutil.copytree(sources.sql_directory(), folder)
        monkeypatch.setattr(sources, "sql_directory", lambda: folder)
        return folder / "migrations" / "9999_more.sql"

    def test_runs_once(self, script: Path, database: str, sql: Any) -> None:
        script.write_text("CREATE TABLE cerebro.more (a int); INSERT INTO cerebro.more VALUES (1)")
        for _ in range(2):
            installer.install(database, Script())
        assert sql.value("SELECT count(*) FROM cerebro.more") == 1

    def test_refuses_a_changed_one(self, script: Path, database: str) -> None:
        script.write_text("CREATE TABLE cerebro.more (a int)")
        installer.install(database, Script())
        script.write_text("CREATE TABLE cerebro.more (b int)")
        with pytest.raises(MissingPrerequisite, match='migration "9999_more" differs'):
            installer.install(database, Script())

    def test_refuses_an_older_version(self, script: Path, database: str) -> None:
        script.write_text("CREATE TABLE cerebro.more (a int)")
        installer.install(database, Script())
        script.unlink()
        with pytest.raises(MissingPrerequisite, match="does not know: 9999_more"):
            installer.install(database, Script())

    def test_rows_with_control_characters_can_change(
        self, empty_database: str, connect: Any
    ) -> None:
        """As an earlier version let them in, which had no bounds."""
        installer.install(empty_database, Script())
        sql = connect(empty_database)
        sql.run(
            "DO $$ DECLARE bound record; BEGIN FOR bound IN SELECT conrelid::regclass AS spread, conname "
            "FROM pg_constraint WHERE conname LIKE 'bounded%' LOOP EXECUTE format("
            "'ALTER TABLE %s DROP CONSTRAINT %I', bound.spread, bound.conname); END LOOP; END $$; "
            "DELETE FROM cerebro.catalog_migrations WHERE name = '0017_bounds'"
        )
        values = {
            "name": r"E'a\x1b[2Jb'",
            "description": "repeat('x', 10001)",
            "compile_params": "repeat('x', 65537)",
            "error": r"E'one\ntwo\x07'",
        }
        for relation in ("runs", "configurations"):
            required = sql.fetch(
                "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
                "LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attnum > 0 "
                "AND attrelid = ('cerebro.catalog_' || %s)::regclass AND NOT attisdropped "
                "AND (attname IN ('name', 'description', 'error') OR attnotnull AND adrelid IS NULL)",
                (relation,),
            )
            usual = {"text": "''", "json": "'{}'", "boolean": "false"}
            columns = {name: values.get(name, usual.get(kind, "'1'")) for name, kind in required}
            if relation == "runs":
                columns["run_id"] = "1"
            sql.run(
                f"INSERT INTO cerebro.catalog_{relation} ({', '.join(columns)}) "
                f"VALUES ({', '.join(columns.values())})"
            )
        installer.install(empty_database, Script())
        sql.run("UPDATE cerebro.catalog_runs SET status = 'failed'")
        assert sql.fetch(
            "SELECT r.name, length(r.description), r.error, c.error, length(c.compile_params) "
            "FROM cerebro.catalog_runs r JOIN cerebro.catalog_configurations c USING (run_id)"
        ) == [("a[2Jb", 10000, "one\ntwo", "one\ntwo", 65537)]

    def test_an_event_directory_of_earlier_times_is_removed(
        self, empty_database: str, connect: Any
    ) -> None:
        installer.install(empty_database, Script())
        sql = connect(empty_database)
        sql.run(
            "INSERT INTO cerebro.catalog_settings VALUES ('tensorboard_dir', '/srv/logs'); "
            "DELETE FROM cerebro.catalog_migrations WHERE name = '0036_files_root'"
        )
        (told,) = installer.upgrade(empty_database, Script())
        assert told.startswith("the setting tensorboard_dir was /srv/logs, which a member of")
        assert "cerebro_set('files_root', '/srv/logs')" in told
        assert installer.upgrade(empty_database, Script()) == ()
        assert sql.value("SELECT count(*) FROM cerebro.catalog_settings") == 0

    def test_a_worker_dsn_of_earlier_times_is_reported_once(
        self, empty_database: str, connect: Any
    ) -> None:
        # Everybody may create there before PostgreSQL 15, of which an installation warns.
        connect(empty_database).run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        installer.install(empty_database, Script())
        connect(empty_database).run(
            "INSERT INTO cerebro.catalog_settings VALUES ('worker_dsn', 'host=secret'); "
            "DELETE FROM cerebro.catalog_migrations WHERE name = '0019_worker_dsn'"
        )
        (told,) = installer.upgrade(empty_database, Script())
        assert told.startswith("the setting worker_dsn is set; ")
        assert "cerebro.cerebro_set('worker_dsn', NULL)" in told
        assert "secret" not in told
        assert installer.upgrade(empty_database, Script()) == ()

    def test_peers_that_nobody_but_a_superuser_may_allow_are_forgotten(
        self, empty_database: str, connect: Any
    ) -> None:
        installer.install(empty_database, Script())
        sql = connect(empty_database)
        sql.run(
            "INSERT INTO cerebro.catalog_settings VALUES ('peer_network', '0.0.0.0/0'), ('peer_ports', '1024-65535'), "
            "('cache_mb', '1'); DELETE FROM cerebro.catalog_migrations WHERE name = '0030_peers'"
        )
        installer.upgrade(empty_database, Script())
        kept = "SELECT name FROM cerebro.catalog_settings"
        assert sql.column(kept) == ["cache_mb"]
        sql.run("INSERT INTO cerebro.catalog_settings VALUES ('peer_network', '10.1.0.0/16')")
        installer.upgrade(empty_database, Script())
        assert sorted(sql.column(kept)) == ["cache_mb", "peer_network"]


class TestMissing:
    """What is missing is told before anything is changed."""

    def _message(self, dsn: str, script: Script) -> tuple[str, str | None]:
        with pytest.raises(MissingPrerequisite) as caught:
            installer.install(dsn, script)
        return caught.value.message, caught.value.hint

    def test_superuser(self, empty_database: str, empty: Any) -> None:
        empty.run("CREATE ROLE nobody_special LOGIN")
        try:
            dsn = as_role(empty_database, "nobody_special")
            message, hint = self._message(dsn, Script())
        finally:
            empty.run("DROP ROLE nobody_special")
        assert message == 'this needs a superuser, and role "nobody_special" is not one'
        assert hint is not None
        assert "Connect as a superuser" in hint

    def test_encoding(self, latin_database: str) -> None:
        message, hint = self._message(latin_database, Script())
        assert "has the encoding LATIN1; allowed: UTF8" in message
        assert hint is not None
        assert "ENCODING 'UTF8'" in hint
        with transaction(latin_database) as connection:
            made = "SELECT FROM pg_extension WHERE extname = 'plpython3u'"
            assert rows(connection, made, "") == []
            assert rows(connection, "SELECT FROM pg_namespace WHERE nspname ~ '^cerebro'", "") == []

    def test_plpython(self, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        steps = [
            Step(step.name, step.sql.replace("WHERE name = 'plpython3u'", "WHERE false"))
            for step in Script().steps()
        ]
        monkeypatch.setattr(Script, "steps", lambda _: iter(steps))
        message, hint = self._message(empty_database, Script())
        assert message == "this server has no plpython3u"
        packages = (
            r'On Debian and Ubuntu it is the package "postgresql-plpython3-(\d+)"; '
            r'of PGDG on RHEL and Rocky, "postgresql\1-plpython3"\.'
        )
        assert re.fullmatch(f"Install it on the server. {packages}", hint or "")

    @pytest.mark.not_on_segments(EMBEDDED_ONLY)
    def test_unreadable_package(
        self, empty_database: str, tmp_path: Path, cluster: Cluster
    ) -> None:
        folder = tmp_path / "closed"
        folder.mkdir(mode=0)
        message, hint = self._message(empty_database, Script(package=str(folder)))
        assert message == f'the server cannot read the package "{folder}"'
        assert hint is not None
        assert f'"{cluster.account.name}"' in hint

    def test_no_python(self, empty_database: str) -> None:
        message, hint = self._message(empty_database, Script(python="/nowhere/bin/python"))
        assert message.startswith('the server cannot run the Python "/nowhere/bin/python": ')
        assert hint is not None
        assert "must be allowed to run it" in hint

    @pytest.mark.parametrize(
        ("found", "lacks"),
        [
            ('"cerebro_db": null', "no cerebro-db; needed: cerebro-db "),
            ('"cerebro_db": "0.0.1"', "cerebro-db 0.0.1; needed: cerebro-db "),
            (f'"cerebro_db": "{cerebro_db.__version__}"', "no framework that computes"),
        ],
    )
    def test_python_that_lacks_something(
        self, empty_database: str, own_folder: Path, found: str, lacks: str
    ) -> None:
        """A program that tells what another virtual environment would."""
        python = own_folder / "bin" / "python"
        python.parent.mkdir(exist_ok=True)
        lists = '"installed": [], "extras": ["cpu", "gpu"]'
        told = f'{{"python": [3, 11], {lists}, {found}}}'
        python.write_text(f"#!/bin/sh\necho '{told}'\n")
        python.chmod(0o755)
        message, hint = self._message(empty_database, Script(python=str(python)))
        assert message.startswith(f"{python} has {lacks}")
        assert hint is not None
        assert f'{python.parent}/pip install "cerebro-db[cpu]' in hint

    @pytest.mark.not_on_segments(EMBEDDED_ONLY)
    def test_keeper_directory(self, empty_database: str, own_folder: Path) -> None:
        message, hint = self._message(empty_database, Script(keeper_directory="/nowhere"))
        assert message == 'the server finds no folder "/nowhere" for keepers'
        assert "--keeper-directory" in (hint or "")
        folder = own_folder / "closed"
        folder.mkdir(mode=0o555)
        message, hint = self._message(empty_database, Script(keeper_directory=str(folder)))
        assert message.endswith(f'may not make a folder in "{folder}"')
        assert "--keeper-directory" in (hint or "")

    def test_someone_elses_schema(self, empty_database: str, empty: Any) -> None:
        empty.run("CREATE SCHEMA cerebro")
        message, _ = self._message(empty_database, Script())
        assert message == 'schema "cerebro" exists and is not one of Cerebro-DB'

    def test_relative_path(self) -> None:
        with pytest.raises(CerebroError, match="allowed: an absolute path"):
            Script(package="site-packages")

    def test_connection(self) -> None:
        with pytest.raises(InstallationFailed, match="/nowhere"):
            installer.install("host=/nowhere dbname=x", Script())


class TestVerify:
    """What is installed is whole, and runs."""

    def test_tells_versions(self, database: str) -> None:
        report = installer.verify(database, Script())
        assert report.version == cerebro_db.__version__
        assert "cerebro_version" in report.functions
        of_torch = ["torch"] if "torch" in frameworks.installed() else []
        assert list(report.versions) == ["Python", "numpy", "tensorflow", "keras", *of_torch]

    def test_missing_function(self, database: str, sql: Any) -> None:
        sql.run("DROP FUNCTION cerebro.cerebro_version()")
        with pytest.raises(InstallationFailed, match="missing in schema cerebro: cerebro_version"):
            installer.verify(database, Script())

    @pytest.mark.parametrize("action", [installer.verify, installer.upgrade])
    def test_not_installed(self, empty_database: str, action: Any) -> None:
        with pytest.raises(InstallationFailed, match="is not installed in database"):
            action(empty_database, Script())


HOSTILE = {
    "DateStyle": "'SQL, DMY'",
    "array_nulls": "off",
    "bytea_output": "escape",
    "client_encoding": "'LATIN1'",
    "client_min_messages": "error",
    "default_transaction_read_only": "on",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "statement_timeout": "'200ms'",
    "transform_null_equals": "on",
}


def test_settings_of_the_database_change_nothing(
    empty_database: str, administrator: Any, sql: Any, connect: Any
) -> None:
    name = connect(empty_database).value("SELECT current_database()")
    for setting, value in HOSTILE.items():
        administrator.run(f"ALTER DATABASE {name} SET {setting} = {value}")
    for _ in range(2):
        installer.install(empty_database, Script())
    assert len(installer.verify(empty_database, Script()).functions) > 0
    plain = "-c quote_all_identifiers=off -c statement_timeout=0"
    assert connect(f"{empty_database} options='{plain}'").column(SCHEMA) == sql.column(SCHEMA)
    installer.uninstall(empty_database)


def test_one_installation_at_a_time(
    database: str,
    empty_database: str,
    connect: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a database: each is told of the one that is in its way, whatever goes on in others."""
    monkeypatch.setattr(script, "LOCK_SECONDS", 1)
    holders = {dsn: connect(dsn) for dsn in (database, empty_database)}
    for sql in holders.values():
        sql.run("BEGIN; LOCK TABLE pg_catalog.pg_user_mapping IN SHARE UPDATE EXCLUSIVE MODE")
    for dsn, action in (
        (database, lambda: installer.install(database, Script())),
        (database, lambda: installer.uninstall(database)),
        (empty_database, lambda: installer.install(empty_database, Script())),
    ):
        pid = holders[dsn].connection.info.backend_pid
        told = f"another installation has been under way for 1 seconds: process {pid} of role"
        with pytest.raises(InstallationFailed, match=told) as caught:
            action()
        assert (caught.value.sqlstate, caught.value.hint) == (
            "55P03",
            "try again when it has ended",
        )


class TestUninstall:
    """Leaves nothing, and loses nothing unasked."""

    def test_leaves_nothing(self, empty_database: str, empty: Any) -> None:
        query = """
            SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
             WHERE pg_describe_object(classid, objid, objsubid) ~ 'cerebro'
        """
        settings = (
            "SELECT setconfig FROM pg_db_role_setting s JOIN pg_database d "
            "ON d.oid = s.setdatabase WHERE d.datname = current_database()"
        )
        before = empty.column(settings)
        installer.install(empty_database, Script())
        assert empty.column(query) != []
        assert empty.column(settings) != before
        assert installer.uninstall(empty_database) == ()
        assert empty.column(query) == []
        assert empty.column("SELECT nspname FROM pg_namespace WHERE nspname ~ 'cerebro'") == []
        assert empty.column(settings) == before

    def test_refuses_to_lose_runs(self, database: str, sql: Any) -> None:
        sql.run("ALTER TABLE cerebro.catalog_runs RENAME TO other_runs")
        sql.run("CREATE TABLE cerebro.catalog_runs AS SELECT 1 AS run_id")
        with pytest.raises(InstallationFailed, match=r"states of training runs: 1$"):
            installer.uninstall(database)
        installer.uninstall(database, force=True)

    def test_roles_go_with_the_last_use(self, own_folder: Path) -> None:
        cluster = Cluster(own_folder / "roles", settings={"fsync": "off"})
        cluster.start()
        try:
            installer.install(cluster.dsn(), Script())
            installer.install(cluster.dsn("postgres"), Script())
            installer.uninstall(cluster.dsn())
            assert _roles(cluster) == ["cerebro_admin", "cerebro_owner", "cerebro_user"]
            installer.uninstall(cluster.dsn("postgres"))
            assert _roles(cluster) == []
        finally:
            cluster.destroy()

    def test_tells_of_all_that_depends_whatever_its_name(self, database: str, sql: Any) -> None:
        sql.run("CREATE FUNCTION cerebro.one(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'")
        sql.run(
            'CREATE TABLE public."a for cerebro.b" (v text DEFAULT cerebro.cerebro_version());'
            'CREATE VIEW public."on cerebro.v" AS SELECT cerebro.cerebro_version() AS version;'
            'CREATE VIEW public.second AS SELECT * FROM public."on cerebro.v";'
            "CREATE TABLE public.kept (v int);"
            "CREATE RULE mine AS ON INSERT TO public.kept DO ALSO SELECT cerebro.cerebro_version();"
            "CREATE INDEX quick ON public.kept (cerebro.one(v));"
            "CREATE DOMAIN public.ones AS int CHECK (cerebro.one(value) = 1)"
        )
        expected = (
            'default value for public."a for cerebro.b".v',
            "domain constraint ones_check on public.ones",
            "index public.quick",
            "rule mine on public.kept",
            'view public."on cerebro.v"',
            "view public.second",
        )
        assert installer.uninstall(database, force=True) == expected
        assert sql.value("SELECT count(*) FROM public.kept") == 0

    def test_refuses_to_drop_what_depends(self, database: str, sql: Any) -> None:
        sql.run("CREATE VIEW public.mine AS SELECT cerebro.cerebro_version() AS version")
        sql.run("CREATE TABLE public.kept (v text DEFAULT cerebro.cerebro_version())")
        with pytest.raises(InstallationFailed, match=r"default value for public\.kept\.v, view"):
            installer.uninstall(database)
        dropped = installer.uninstall(database, force=True)
        assert dropped == ("default value for public.kept.v", "view public.mine")
        assert sql.value("SELECT count(*) FROM public.kept") == 0


def _roles(cluster: Cluster) -> list[object]:
    query = "SELECT rolname FROM pg_roles WHERE rolname ~ '^cerebro' ORDER BY 1"
    with transaction(cluster.dsn("postgres")) as connection:
        return [name for (name,) in rows(connection, query, "the roles")]


def test_arrays_of_nothing() -> None:
    assert sql_array([]) == "ARRAY[]::text[]"
