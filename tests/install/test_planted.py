"""Nothing that others have made in a database is run by those who install, verify and uninstall."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY
from servers import Server, connected, drop_database, make_database

import cerebro_db
from cerebro_db.errors import MissingPrerequisite
from cerebro_db.install import installer, queries
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from cerebro_db.postgres.dialects.choice import DIALECTS
from cerebro_db.postgres.dialects.segments import hosts
from conftest import Sql
from tests.install.plants import SCHEMA, WORD, Plants, calls
from tests.install.test_cli import cerebro

OWNER = f"mallory_{os.getpid()}"
PATH = f"{SCHEMA}, public, pg_catalog"

_numbers = itertools.count(1)


def statements() -> str:
    """All that a superuser's session runs for us, and what the functions do in sessions of users."""
    texts = [value for value in vars(queries).values() if isinstance(value, str)]
    texts += [value for value in vars(hosts).values() if isinstance(value, str)]
    texts += [path.read_text() for path in Path(cerebro_db.__file__).parent.rglob("*.py")]
    scripts = [Script(dialect=name).text() for name in DIALECTS]
    return "\n".join([*scripts, Script().render("verify/versions.sql"), *texts])


@contextmanager
def owned(cluster: Server, administrator: Any, template: str = "template1") -> Iterator[str]:
    """The DSN of a database whose owner is no superuser."""
    name = f"hostile_{os.getpid()}_{next(_numbers)}"
    make_database(administrator, name, template)
    administrator.run(f"ALTER DATABASE {name} OWNER TO {OWNER}")
    yield cluster.dsn(name)
    drop_database(administrator, name)


@pytest.fixture(scope="module", autouse=True)
def _owner(administrator: Any) -> Iterator[None]:
    administrator.run(f"CREATE ROLE {OWNER} LOGIN")
    yield
    administrator.run(f"DROP ROLE {OWNER}")


@pytest.fixture(scope="module")
def planted_template(cluster: Server, administrator: Any) -> Iterator[tuple[str, set[str]]]:
    """A database with overloads of all that our statements call, and the names of these."""
    with owned(cluster, administrator) as dsn:
        connection = connected(psycopg2.extensions.make_dsn(dsn, user=OWNER))
        plants = Plants(Sql(connection, dsn))
        plants.grow(statements())
        connection.close()
        yield psycopg2.extensions.parse_dsn(dsn)["dbname"], plants.planted


@pytest.fixture
def planted(
    cluster: Server, administrator: Any, planted_template: tuple[str, set[str]]
) -> Iterator[str]:
    """The DSN of a copy; what is planted there is searched before what the server has."""
    with owned(cluster, administrator, planted_template[0]) as dsn:
        name = psycopg2.extensions.parse_dsn(dsn)["dbname"]
        administrator.run(f"ALTER DATABASE {name} SET search_path = {PATH}")
        administrator.run(f"ALTER DATABASE {name} SET standard_conforming_strings = off")
        yield dsn


@pytest.fixture
def hostile(cluster: Server, administrator: Any) -> Iterator[str]:
    """The DSN of a database in which nothing is yet."""
    with owned(cluster, administrator) as dsn:
        yield dsn


@pytest.fixture
def mallory(hostile: str, connect: Any) -> Any:
    """The owner of that database."""
    return connect(psycopg2.extensions.make_dsn(hostile, user=OWNER))


def test_what_is_planted_would_be_run(
    planted: str, planted_template: tuple[str, set[str]], connect: Any
) -> None:
    needed = {"concat_ws", "format", "unnest", "count", "pg_has_role", "current_setting", "string_agg",
              "=", "<>", "||", "~", "pg_roles", "pg_proc", "pg_settings"}  # fmt: skip
    assert needed <= planted_template[1]
    superuser = connect(planted)
    for query in (
        "SELECT concat_ws(', ', 'a'::pg_catalog.text, 'b')",
        "SELECT format('%%I', 'a'::pg_catalog.text)",
        "SELECT * FROM unnest(ARRAY['a']::pg_catalog.text[])",
        "SELECT current_database() = 'x'",
        "SELECT * FROM pg_settings",
        "SELECT 'x'::text",
    ):
        before = calls(superuser)
        with pytest.raises(psycopg2.Error, match=f"{WORD}: .* was run by "):
            superuser.fetch(query, ())
        assert calls(superuser) == before + 1


def test_nothing_planted_is_run(planted: str, connect: Any) -> None:
    for _ in range(2):
        installer.install(planted, Script())
    installer.upgrade(planted, Script())
    installer.verify(planted, Script())
    assert connect(planted).value("SHOW search_path") == f"{PATH}, cerebro"
    installer.uninstall(planted)
    assert connect(planted).value("SHOW search_path") == PATH
    assert calls(connect(planted)) == 0


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_nor_by_the_printed_script(
    planted: str, connect: Any, cluster: Cluster, tmp_path: Path
) -> None:
    for _ in range(2):
        done = apply_printed(planted, cluster, tmp_path, "-1")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "ERROR" not in done.stderr
    assert calls(connect(planted)) == 0


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_the_printed_script_does_nothing_outside_of_a_transaction(
    database: str, sql: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """It would take all functions for those of an earlier version, and drop them."""
    functions = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'cerebro%%'"
    before = sql.value(functions, ())
    done = apply_printed(database, cluster, tmp_path)
    assert done.returncode == 3
    assert "can only be used in transaction blocks" in done.stderr
    assert sql.value(functions, ()) == before > 0


# What a member of cerebro_admin calls; an error that follows from an argument is as good as an answer.
CALLS = [
    "SELECT cerebro.cerebro_version()",
    "SELECT cerebro.cerebro_set('cache_mb', '64')",
    "SELECT cerebro.cerebro_set('cache_mb', NULL)",
    "SELECT cerebro.cerebro_register_function('mine', 'no_such_package:function')",
    "SELECT cerebro.cerebro_register_expression('mine', 'x * x')",
    "SELECT cerebro.cerebro_unregister_function('mine')",
    "SELECT cerebro.cerebro_cancel(1)",
    "SELECT cerebro.cerebro_pause(1)",
    "SELECT cerebro.cerebro_resume(1)",
    "SELECT cerebro.cerebro_drop_run(1)",
    "SELECT cerebro.cerebro_drop_model('x')",
    "SELECT cerebro.cerebro_describe_model('x', 'y')",
    "SELECT cerebro.cerebro_grant_model('x', 'y')",
    "SELECT cerebro.cerebro_set_alias('x', 'y', 1)",
    "SELECT cerebro.cerebro_predict_row('model:x', ARRAY[1.0])",
    "SELECT cerebro.cerebro_predict_row('public.nothing', ARRAY[1.0])",
    "SELECT cerebro.cerebro_gpu_configuration('public.gpus', 'nvidia')",
    "SELECT cerebro.cerebro_export('model:x')",
    "SELECT * FROM cerebro.cerebro_vacuum()",
    "SELECT * FROM cerebro.settings",
    "SELECT * FROM cerebro.runs",
    "SELECT * FROM cerebro.progress",
    "SELECT * FROM cerebro.leaderboard",
    "SELECT * FROM cerebro.registered_models",
    "SELECT * FROM cerebro.registered_versions",
    "SELECT * FROM cerebro.registered_functions",
]


def error_of(person: Any, call: str) -> str | None:
    """The error that a call ends with, if any."""
    try:
        person.fetch(call)
    except psycopg2.Error as error:
        return str(error)
    return None


def test_nothing_planted_is_run_by_what_administrators_call(
    planted: str, administrator: Any, connect: Any
) -> None:
    """Their search_path is the database's, which its owner decides."""
    installer.install(planted, Script())
    dave = f"dave_{os.getpid()}"
    administrator.run(f"CREATE ROLE {dave} LOGIN IN ROLE cerebro_admin")
    try:
        person = connect(psycopg2.extensions.make_dsn(planted, user=dave))
        assert person.value("SHOW search_path") == f"{PATH}, cerebro"
        for call in CALLS:
            told = error_of(person, call)
            assert told is None or 'PL/Python function "' in told, (call, told)
        assert calls(person) == 0
    finally:
        connect(planted).run(f"DROP OWNED BY {dave}")  # where everybody may create in public
        administrator.run(f"DROP ROLE {dave}")


ACTIONS = [
    lambda dsn: installer.install(dsn, Script()),
    lambda dsn: installer.upgrade(dsn, Script()),
    lambda dsn: installer.verify(dsn, Script()),
    lambda dsn: installer.uninstall(dsn, force=True),
]


def refused(dsn: str) -> set[str]:
    """Messages of all commands."""
    told = set()
    for action in ACTIONS:
        with pytest.raises(MissingPrerequisite) as caught:
            action(dsn)
        told.add(caught.value.message)
    return told


def test_a_schema_of_another_is_no_installation(hostile: str, mallory: Any) -> None:
    mallory.run(
        "CREATE SCHEMA cerebro; CREATE SEQUENCE cerebro.ran; "
        "CREATE FUNCTION cerebro.trap() RETURNS bigint LANGUAGE sql AS $$SELECT nextval('cerebro.ran')$$; "
        "CREATE FUNCTION cerebro.cerebro_version() RETURNS text LANGUAGE sql AS $$SELECT cerebro.trap()::text$$; "
        "CREATE VIEW cerebro.catalog_runs AS SELECT cerebro.trap() AS run_id; "
        "CREATE TABLE cerebro.catalog_migrations (name text, checksum text, ran bigint DEFAULT cerebro.trap())"
    )
    expected = f'schema cerebro belongs to role "{OWNER}"; allowed there: what superusers and cerebro_owner own'
    assert refused(hostile) == {expected}
    assert mallory.value("SELECT is_called FROM cerebro.ran") is False


def test_nor_is_a_schema_of_states(hostile: str, mallory: Any) -> None:
    mallory.run("CREATE SCHEMA cerebro_states")
    with pytest.raises(MissingPrerequisite, match=f'cerebro_states belongs to role "{OWNER}"'):
        installer.install(hostile, Script())
    mallory.run("DROP SCHEMA cerebro_states")


def test_what_others_have_put_into_the_schema_is_refused(
    hostile: str, mallory: Any, connect: Any
) -> None:
    installer.install(hostile, Script())
    superuser = connect(hostile)
    superuser.run(f"GRANT USAGE, CREATE ON SCHEMA cerebro TO {OWNER}")
    superuser.run(f"GRANT TRIGGER ON cerebro.catalog_migrations TO {OWNER}")
    mallory.run(
        "CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'trapped'; END$$; "
        "CREATE TRIGGER planted BEFORE INSERT ON cerebro.catalog_migrations FOR EACH ROW "
        "EXECUTE PROCEDURE public.trap()"
    )
    (told,) = refused(hostile)
    assert "function public.trap() of trigger planted on cerebro.catalog_migrations belongs" in told
    superuser.run("DROP FUNCTION public.trap() CASCADE")
    mallory.run("CREATE TABLE cerebro.own (a int)")
    (told,) = refused(hostile)
    assert told.startswith("relation cerebro.own belongs to role")
    mallory.run(
        "DROP TABLE cerebro.own; CREATE FUNCTION cerebro.own() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    )
    (told,) = refused(hostile)
    assert told.startswith("function cerebro.own() belongs to role")
    superuser.run("DROP FUNCTION cerebro.own()")
    # The next installation takes rights back that are not of its own roles.
    installer.install(hostile, Script())
    assert rights(superuser) == set()


def test_default_privileges_give_nothing(hostile: str, mallory: Any, connect: Any) -> None:
    superuser = connect(hostile)
    kinds = ["TABLES", "SEQUENCES", "FUNCTIONS"]
    if superuser.connection.server_version >= 100000:
        kinds.append("SCHEMAS")
    for kind in kinds:
        superuser.run(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON {kind} TO PUBLIC, {OWNER}")
    installer.install(hostile, Script())
    assert rights(superuser) == set()
    superuser.run(f"DROP OWNED BY {OWNER}")


def test_privileges_on_columns_do_not_last(hostile: str, connect: Any) -> None:
    superuser = connect(hostile)
    installer.install(hostile, Script())
    superuser.run(f"GRANT UPDATE (status), REFERENCES (run_id) ON cerebro.catalog_runs TO {OWNER}")
    superuser.run("GRANT SELECT (run_id) ON cerebro.catalog_runs TO PUBLIC")
    installer.install(hostile, Script())
    assert superuser.fetch(
        "SELECT attname, aclexplode(attacl) FROM pg_attribute WHERE attacl IS NOT NULL "
        "AND attrelid = 'cerebro.catalog_runs'::regclass"
    ) == []  # fmt: skip
    superuser.run(f"DROP OWNED BY {OWNER}")


def rights(superuser: Any) -> set[str]:
    """The objects of Cerebro-DB on which others than its roles have any privilege."""
    return set(
        superuser.column(
            # A join with what is in the list of an acl is more than Greenplum can do here.
            "SELECT what FROM (SELECT what, owner, (aclexplode(acl)).grantee FROM ("
            "SELECT nspname::text AS what, nspowner AS owner, nspacl AS acl "
            "FROM pg_namespace WHERE nspname ~ '^cerebro' UNION ALL "
            "SELECT oid::regclass::text, relowner, relacl FROM pg_class "
            "WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^cerebro') UNION ALL "
            "SELECT oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc "
            "WHERE pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^cerebro')) o) a "
            "WHERE a.grantee <> a.owner AND a.grantee NOT IN "
            "(SELECT oid FROM pg_roles WHERE rolname ~ '^cerebro_(user|admin|owner)$')"
        )
    )


@pytest.mark.parametrize(
    ("before", "message", "hint", "after"),
    [
        ("ALTER ROLE cerebro_owner LOGIN CREATEDB", 'role "cerebro_owner" has the attributes LOGIN, CREATEDB',
         "ALTER ROLE cerebro_owner NOLOGIN NOCREATEDB;", "ALTER ROLE cerebro_owner NOLOGIN NOCREATEDB"),
        ("ALTER ROLE cerebro_user SUPERUSER", 'role "cerebro_user" has the attributes SUPERUSER',
         "ALTER ROLE cerebro_user NOSUPERUSER;", "ALTER ROLE cerebro_user NOSUPERUSER"),
        ("ALTER ROLE cerebro_admin BYPASSRLS", 'role "cerebro_admin" has the attributes BYPASSRLS',
         "ALTER ROLE cerebro_admin NOBYPASSRLS;", "ALTER ROLE cerebro_admin NOBYPASSRLS"),
        ("GRANT cerebro_owner TO {}", 'role "{}" is a member of role "cerebro_owner"',
         "REVOKE cerebro_owner FROM {};", "REVOKE cerebro_owner FROM {}"),
        ("GRANT {} TO cerebro_owner", 'role "cerebro_owner" is a member of role "{}"',
         "REVOKE {} FROM cerebro_owner;", "REVOKE {} FROM cerebro_owner"),
    ],
)  # fmt: skip
@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_roles_with_more_than_an_installation_gives_are_refused(
    before: str,
    message: str,
    hint: str,
    after: str,
    hostile: str,
    administrator: Any,
    template: str,
) -> None:
    administrator.run(before.format(OWNER))
    try:
        with pytest.raises(MissingPrerequisite) as caught:
            installer.install(hostile, Script())
    finally:
        administrator.run(after.format(OWNER))
    assert caught.value.message.startswith(message.format(OWNER))
    assert caught.value.hint == hint.format(OWNER)


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("''", '"", cerebro'),
        ("""'Data , "a""b","c, d"'""", '"Data , ""a""""b"",""c, d""", cerebro'),
        ("\"$user\", Mixed, 'My Data'", '"$user", mixed, "My Data", cerebro'),
        ("public, CEREBRO", "public, cerebro"),
        ("cerebro, public", "cerebro, public"),
        ("'it''s', E'a\\\\b'", '"it\'s", "a\\b", cerebro'),
    ],
)
def test_the_search_path_is_a_list_of_names(
    hostile: str, mallory: Any, connect: Any, path: str, names: str
) -> None:
    name = mallory.value("SELECT current_database()")
    mallory.run(f"ALTER DATABASE {name} SET search_path = {path}")
    before = connect(hostile).value("SHOW search_path")
    installer.install(hostile, Script())
    assert connect(hostile).value("SHOW search_path") == names
    installer.install(hostile, Script())
    assert connect(hostile).value("SHOW search_path") == names
    installer.uninstall(hostile)
    left_over = connect(hostile).value("SHOW search_path")
    assert left_over == before if "cerebro" not in before else "cerebro" not in left_over


def test_a_search_path_that_is_stored_as_it_was_written(
    hostile: str, mallory: Any, connect: Any
) -> None:
    name = mallory.value("SELECT current_database()")
    mallory.value('SELECT set_config(\'search_path\', \' Data ,"a""b","My, data" \', false)')
    mallory.run(f"ALTER DATABASE {name} SET search_path FROM CURRENT")
    installer.install(hostile, Script())
    assert connect(hostile).value("SHOW search_path") == 'data, "a""b", "My, data", cerebro'


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_the_search_path_of_the_configuration_counts(own_folder: Path, connect: Any) -> None:
    cluster = Cluster(
        own_folder / "configured",
        settings={"fsync": "off", "search_path": 'Data, "$user", public'},
    )
    cluster.start()
    try:
        installer.install(cluster.dsn(), Script())
        path = connect(cluster.dsn()).value("SHOW search_path")
        assert path == 'data, "$user", public, cerebro'
    finally:
        cluster.destroy()


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_nor_by_the_embedded_server(own_folder: Path, connect: Any) -> None:
    cluster = Cluster(own_folder / "planted", settings={"fsync": "off"})
    cluster.start()
    try:
        superuser = connect(cluster.dsn("postgres"))
        superuser.run(f"CREATE ROLE {OWNER} LOGIN; ALTER DATABASE postgres OWNER TO {OWNER}")
        mallory = connect(psycopg2.extensions.make_dsn(cluster.dsn("postgres"), user=OWNER))
        Plants(mallory).grow("SELECT 1 FROM pg_database WHERE datname = 'x'")
        mallory.run(f"ALTER DATABASE postgres SET search_path = {PATH}")
        cluster.start()  # looks for its database again
        assert calls(mallory) == 0
    finally:
        cluster.destroy()


def test_who_may_create_in_earlier_schemas_is_reported(
    hostile: str, connect: Any, administrator: Any, template: str, has_segments: bool
) -> None:
    superuser = connect(hostile)
    name = superuser.value("SELECT current_database()")
    superuser.run(
        f'CREATE SCHEMA "Data" AUTHORIZATION {OWNER}; CREATE SCHEMA calm; CREATE SCHEMA late'
    )
    superuser.run(
        'GRANT CREATE ON SCHEMA public, late TO PUBLIC; GRANT CREATE ON SCHEMA "Data" TO cerebro_user'
    )
    superuser.run(
        f'ALTER DATABASE {name} SET search_path = calm, "Data", public, cerebro, late, "$user"'
    )
    warnings = installer.install(hostile, Script())
    first, second = warnings
    assert first.startswith(
        'schema cerebro comes last in the search_path, and these roles may create in SCHEMA "Data", '
        f"which comes before: cerebro_user, {OWNER}\n"
    )
    assert "Call functions as cerebro.<name>" in first
    # Since PostgreSQL 15 it belongs to who owns the database.
    owners = f", {OWNER}" if superuser.connection.server_version >= 150000 else ""
    assert f"in SCHEMA public, which comes before: PUBLIC{owners}\n" in second
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC" in second
    verified = installer.verify(hostile, Script()).warnings
    assert verified[: len(warnings)] == warnings
    assert has_segments or verified == warnings  # there are limits, too
    # A schema with the name of the caller may be made by who may make any.
    superuser.run(f'ALTER DATABASE {name} SET search_path = "$user", calm, cerebro')
    (only,) = installer.upgrade(hostile, Script())
    assert f"may create in DATABASE {name}, which comes before: {OWNER}\n" in only
    owner = administrator.value("SELECT quote_ident(current_user)")
    administrator.run(f"ALTER DATABASE {name} OWNER TO {owner}")
    assert installer.install(hostile, Script()) == ()


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_the_printed_script_and_the_commands_warn(
    hostile: str, cluster: Cluster, tmp_path: Path
) -> None:
    told = f"which comes before: {OWNER}\n"
    done = apply_printed(hostile, cluster, tmp_path, "-1")
    assert (done.returncode, told in done.stderr) == (0, True)
    for command in ("install", "upgrade", "verify"):
        done = cerebro(command, "--dsn", hostile)
        assert done.returncode == 0
        assert done.stderr.startswith("cerebro: warning: schema cerebro comes last")
        assert told in done.stderr


def apply_printed(
    dsn: str, cluster: Cluster, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run what "cerebro print" prints in psql."""
    file = folder / "install.sql"
    file.write_text(Script().text())
    command = [cluster.psql(), "-X", "-q", *options, "-d", dsn, "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
