"""Installs, upgrades, verifies and removes Cerebro-DB in one database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg2
import sqlalchemy
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import cerebro_db
from cerebro_db.errors import CerebroError, InstallationFailed, MissingPrerequisite
from cerebro_db.install import queries
from cerebro_db.install.script import Script, pinned, sql_array
from cerebro_db.postgres.dialects.greenplum_install import (
    PRIORITY,
    SEGMENT_VERSIONS,
    SEGMENTS,
    SLOTS,
    STATEMENTS_BESIDE_WORKERS,
    VERSION_HERE,
)

_FEATURE_NOT_SUPPORTED = "0A000"
# Before anything is looked up by a name: the database may have a search_path with schemas of others, who
# would be run as the superuser that connects. The last one is Greenplum's, and means nothing elsewhere.
_FIRST = f"""
SET search_path = pg_catalog, pg_temp;
SET standard_conforming_strings = on;
SET client_encoding = 'UTF8';
SET plpython3.python_path = '';
{pinned("SET")}
"""


class Warnings:
    """Warnings of the server, each with its hint; in the place of a connection's list of notices."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def append(self, notice: str) -> None:
        """Keep a message of the server, without its severity, which it tells in its own language."""
        self.texts.append(notice.partition(":")[2].strip())


@contextmanager
def transaction(dsn: str, warnings: Warnings | None = None) -> Iterator[sqlalchemy.Connection]:
    """One transaction on the database that ``dsn`` names, as a libpq string or as a URL.

    Args:
        dsn: of the database.
        warnings: gets those of the server.

    Raises:
        InstallationFailed: no connection, or the transaction cannot be committed.
    """
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg2://",
        creator=lambda: _connected(dsn, warnings or Warnings()),
        poolclass=NullPool,
        # Our statements hold percent signs, and no parameters.
        execution_options={"no_parameters": True},
    )
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise _translated(error, None) from error


def _connected(dsn: str, warnings: Warnings) -> psycopg2.extensions.connection:
    connection = psycopg2.connect(dsn, application_name="cerebro install")
    connection.notices = warnings
    with connection.cursor() as cursor:
        cursor.execute(_FIRST)
    connection.commit()
    return connection


def execute(connection: sqlalchemy.Connection, sql: str, what: str) -> None:
    """Executes one or more statements; ``what`` names them where they fail.

    Raises:
        MissingPrerequisite: the statements told what an installation lacks.
        InstallationFailed: any other error of the server.
    """
    _run(connection, sql, what).close()


def rows(connection: sqlalchemy.Connection, sql: str, what: str) -> list[tuple[object, ...]]:
    """The rows of a query; errors as in :func:`execute`."""
    return [tuple(row) for row in _run(connection, sql, what)]


def _run(
    connection: sqlalchemy.Connection, sql: str, what: str
) -> sqlalchemy.CursorResult[tuple[object, ...]]:
    try:
        return connection.exec_driver_sql(sql)
    except DBAPIError as error:
        raise _translated(error, what) from error


def _translated(error: DBAPIError, what: str | None) -> CerebroError:
    original = error.orig
    diagnosis = getattr(original, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or str(original).strip()
    hint = getattr(diagnosis, "message_hint", None)
    sqlstate = getattr(original, "pgcode", None)
    if sqlstate == _FEATURE_NOT_SUPPORTED and hint:
        return MissingPrerequisite(message, hint)
    failed = InstallationFailed(f"{what}: {message}" if what else message, hint)
    failed.sqlstate = sqlstate or failed.sqlstate
    return failed


@dataclass(frozen=True)
class Report:
    """Findings about an installation and about its server.

    Attributes:
        warnings: what an administrator may want to change.
    """

    version: str
    functions: tuple[str, ...]
    versions: Mapping[str, str]
    segments: int = 0
    warnings: tuple[str, ...] = ()


def install(dsn: str, script: Script) -> tuple[str, ...]:
    """Puts this version into the database, over what is there, all or nothing.

    Returns:
        What the server warned of.
    """
    warnings = Warnings()
    with transaction(dsn, warnings) as connection:
        for step in script.steps():
            execute(connection, step.sql, step.name)
    return tuple(warnings.texts)


def upgrade(dsn: str, script: Script) -> tuple[str, ...]:
    """Like :func:`install`, for a database that must have Cerebro-DB already."""
    with transaction(dsn) as connection:
        _require_installed(connection)
    return install(dsn, script)


def verify(dsn: str, script: Script) -> Report:
    """Checks that what is installed is whole, is this version, and runs."""
    warnings = Warnings()
    with transaction(dsn, warnings) as connection:
        _require_installed(connection)
        _require_functions(connection, script.functions())
        _require_superuser(connection)
        version = str(rows(connection, queries.VERSION, "the version")[0][0])
        if version != cerebro_db.__version__:
            raise InstallationFailed(
                f"the server runs version {version} of Cerebro-DB, this is {cerebro_db.__version__}",
                'Run "cerebro upgrade" with the version that the server shall run.',
            )
        # After a function of the installation, which has loaded the relay.
        execute(connection, script.render("verify/versions.sql"), "the versions")
        versions = rows(connection, queries.LIBRARY_VERSIONS, "the versions in a trainer")
        libraries = {str(name): str(value) for name, value in versions}
        segments = _verify_segments(connection, {"Cerebro-DB": version, **libraries})
        execute(connection, script.render("finish/020_earlier_schemas.sql"), "the search_path")
        told = [*warnings.texts]
        if segments:
            told += _bounds_of_segments(connection, segments)
        connection.rollback()
    return Report(version, script.functions(), libraries, segments, tuple(told))


def _verify_segments(connection: sqlalchemy.Connection, expected: Mapping[str, str]) -> int:
    """How many segments there are; raises where one runs on something else than the coordinator."""
    if not rows(connection, SEGMENTS, "the segments")[0][0]:
        return 0
    execute(connection, VERSION_HERE, "the versions")
    found = rows(connection, SEGMENT_VERSIONS, "the versions beside every segment")
    for host, segment, package, name, version in found:
        for what, got in (("Cerebro-DB", package), (str(name), version)):
            if got != expected[what]:
                raise InstallationFailed(
                    f'segment {segment} on host "{host}" has {what} {got}, '
                    f"the coordinator has {expected[what]}",
                    "Install the same versions at the same place on every host.",
                )
    return len({segment for _, segment, *_ in found})


def _bounds_of_segments(connection: sqlalchemy.Connection, segments: int) -> Iterator[str]:
    """Limits that hold runs up there; raises where copies of the catalog differ."""
    for row in rows(connection, queries.CATALOG_DIFFERENCES, "the copies of the catalog"):
        message, hint = map(str, row)
        raise InstallationFailed(message, hint)
    statements = segments + STATEMENTS_BESIDE_WORKERS
    for kind, name, limit in rows(connection, SLOTS, "the resource queues and groups"):
        yield (
            f"{kind} {name} allows {limit} active statements; a run on {segments} segments takes "
            f"{statements}, so {int(str(limit)) // statements} runs of its roles at a time"
        )
    ((priority,),) = rows(connection, PRIORITY, "the priority of segments")
    if priority:
        yield (
            f"segments train at nice {min(int(str(priority)), 19)} (gp_segworker_relative_priority); "
            'with "gpconfig -c gp_segworker_relative_priority -v 0" and a restart they do not give way'
        )


def uninstall(dsn: str, force: bool = False) -> tuple[str, ...]:
    """Removes Cerebro-DB, and with ``force`` its runs and what depends on it too.

    Returns:
        What was dropped besides: objects outside the schema that depended on it.
    """
    with transaction(dsn) as connection:
        _require_superuser(connection)
        execute(connection, Script().render("prepare/010_begin.sql"), "the lock")
        _require_installed(connection)
        dependent = tuple(
            f"{kind} {name}" for kind, name in rows(connection, queries.DEPENDENT, "dependencies")
        )
        if not force:
            _refuse_loss(connection, dependent)
        execute(connection, queries.UNINSTALL, "the removal")
    return dependent


def _refuse_loss(connection: sqlalchemy.Connection, dependent: tuple[str, ...]) -> None:
    if dependent:
        raise InstallationFailed(
            f"uninstalling would also drop what depends on Cerebro-DB: {', '.join(dependent)}",
            "Drop these yourself, or uninstall with --force.",
        )
    if runs := _number_of_runs(connection):
        raise InstallationFailed(
            f"uninstalling would lose the record and the states of training runs: {runs}",
            "Uninstall with --force to lose them. The result tables stay in any case.",
        )


def _number_of_runs(connection: sqlalchemy.Connection) -> int:
    if not rows(connection, queries.RUNS_TABLE, "the runs"):
        return 0
    return int(str(rows(connection, queries.NUMBER_OF_RUNS, "the runs")[0][0]))


def _require_installed(connection: sqlalchemy.Connection) -> None:
    """Raises where the database has no Cerebro-DB, or one in which others have put something."""
    execute(connection, Script().render("prepare/035_owners.sql"), "the owners")
    ((database, installed),) = rows(connection, queries.INSTALLED, "the schema")
    if not installed:
        raise InstallationFailed(
            f'Cerebro-DB is not installed in database "{database}"', 'Run "cerebro install" first.'
        )


def _require_superuser(connection: sqlalchemy.Connection) -> None:
    ((role, superuser),) = rows(connection, queries.SUPERUSER, "the role")
    if superuser != "on":
        raise InstallationFailed(
            f'this needs a superuser, and role "{role}" is not one',
            'Connect as a superuser, for example as "postgres".',
        )


def _require_functions(connection: sqlalchemy.Connection, names: tuple[str, ...]) -> None:
    query = queries.MISSING_FUNCTIONS.format(names=sql_array(list(names)))
    missing = [str(name) for (name,) in rows(connection, query, "the functions")]
    if missing:
        raise InstallationFailed(
            f"functions are missing in schema cerebro: {', '.join(missing)}",
            'Run "cerebro upgrade".',
        )
