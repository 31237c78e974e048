"""Installs, upgrades, verifies and removes Cerebro-DB in one database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import cerebro_db
from cerebro_db.errors import InstallationFailed
from cerebro_db.install import queries
from cerebro_db.install.connection import Warnings, execute, rows, transaction
from cerebro_db.install.places import installed_script, installed_version
from cerebro_db.install.script import Script, sql_array, sql_string
from cerebro_db.postgres.dialects.choice import IDENTITY, dialect_of
from cerebro_db.postgres.sessions.blocking import BlockingSession

# For runs that are to pause before an upgrade; a hop is cancelled at once, what compiles is killed.
PAUSE_SECONDS = 120.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class InstallReport:
    """Findings about an installation and about its server.

    Attributes:
        versions: of what runs beside the server, by name.
        limits: of these processes, by name.
        warnings: what an administrator may want to change.
    """

    version: str
    functions: tuple[str, ...]
    versions: Mapping[str, str]
    limits: Mapping[str, str] = field(default_factory=dict)
    segments: int = 0
    warnings: tuple[str, ...] = ()


def install(dsn: str, script: Script) -> tuple[str, ...]:
    """Puts this version into the database, over what is there, all or nothing.

    Returns:
        What the server warned of.
    """
    warnings = Warnings()
    with transaction(dsn, warnings) as connection:
        ((dialect,),) = rows(connection, f"SELECT {IDENTITY}", "the dialect")
        for step in replace(script, dialect=str(dialect)).steps():
            execute(connection, step.sql, step.name)
    return tuple(warnings.texts)


def upgrade(dsn: str, script: Script) -> tuple[str, ...]:
    """Like :func:`install`, for a database that must have Cerebro-DB already."""
    with transaction(dsn) as connection:
        _require_installed(connection)
    return install(dsn, script)


def pause_runs(dsn: str, seconds: float = PAUSE_SECONDS) -> tuple[int, ...]:
    """Pause the runs that somebody drives, wait until nobody does, and return their numbers.

    Args:
        dsn: of a database that has Cerebro-DB, which may be an earlier version.
        seconds: to wait, at most.

    Raises:
        InstallationFailed: one goes on for longer.
    """
    until, paused = time.monotonic() + seconds, dict.fromkeys(_alive(dsn))
    for run_id in paused:
        with transaction(dsn) as connection:
            rows(connection, queries.PAUSE.format(run_id=run_id), f"pausing run {run_id}")
    while alive := _alive(dsn):
        if time.monotonic() > until:
            listed = ", ".join(map(str, alive))
            raise InstallationFailed(
                f"runs go on {seconds:g} seconds after they were to pause: {listed}",
                f"SELECT cerebro.cerebro_cancel({alive[0]}) ends one",
            )
        time.sleep(_LOOK_SECONDS)
    return tuple(paused)


def _alive(dsn: str) -> list[int]:
    with transaction(dsn) as connection:
        _require_installed(connection)
        held = rows(connection, queries.HELD_LOCKS, "the locks")
        if not held:
            return []
        query = queries.ALIVE.format(
            locks=", ".join(f"({key}::bigint, {pid})" for key, pid in held)
        )
        return [int(str(row[0])) for row in rows(connection, query, "the runs")]


def verify(dsn: str, script: Script) -> InstallReport:
    """Checks that what is installed is whole, is this version, and runs."""
    warnings = Warnings()
    with transaction(dsn, warnings) as connection:
        _require_installed(connection)
        _require_version(installed_version(connection))
        _require_functions(connection, script.functions())
        _require_superuser(connection)
        version = str(rows(connection, queries.VERSION, "the version")[0][0])
        if version != cerebro_db.__version__:
            raise InstallationFailed(
                f"the server runs version {version} of Cerebro-DB, this is {cerebro_db.__version__}",
                'Run "cerebro upgrade" with the version that the server shall run.',
            )
        # With the paths of the installation, whatever those of this program are.
        script = installed_script(connection, script)
        execute(connection, script.render("verify/versions.sql"), "the versions")
        versions = rows(connection, queries.LIBRARY_VERSIONS, "the versions in a trainer")
        libraries = {str(name): str(value) for name, value in versions}
        limits = rows(connection, queries.SURROUNDINGS, "the limits of a trainer")
        warned = [str(warning) for _, _, warning in limits if warning]
        ask = partial(rows, connection)
        ((dialect,),) = ask(f"SELECT {IDENTITY}", "the dialect")
        hosts = dialect_of(0, str(dialect)).hosts
        segments = hosts.check_versions(ask, {"Cerebro-DB": version, **libraries})
        execute(connection, script.render("finish/020_earlier_schemas.sql"), "the search_path")
        warned += warnings.texts
        ((settings,),) = ask(queries.SETTINGS, "the settings")
        warned += hosts.warnings(ask, segments, sql_string(str(settings)))
        connection.run("ROLLBACK")
    known = {str(name): str(value) for name, value, _ in limits}
    return InstallReport(version, script.functions(), libraries, known, segments, tuple(warned))


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


def _refuse_loss(connection: BlockingSession, dependent: tuple[str, ...]) -> None:
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


def _number_of_runs(connection: BlockingSession) -> int:
    if not rows(connection, queries.RUNS_TABLE, "the runs"):
        return 0
    return int(str(rows(connection, queries.NUMBER_OF_RUNS, "the runs")[0][0]))


def _require_installed(connection: BlockingSession) -> None:
    """Raises where the database has no Cerebro-DB, or one in which others have put something."""
    execute(connection, Script().render("prepare/035_owners.sql"), "the owners")
    ((database, installed),) = rows(connection, queries.INSTALLED, "the schema")
    if not installed:
        raise InstallationFailed(
            f'Cerebro-DB is not installed in database "{database}"', 'Run "cerebro install" first.'
        )


def _require_superuser(connection: BlockingSession) -> None:
    ((role, superuser),) = rows(connection, queries.SUPERUSER, "the role")
    if superuser != "on":
        raise InstallationFailed(
            f'this needs a superuser, and role "{role}" is not one',
            'Connect as a superuser, for example as "postgres".',
        )


def _require_version(installed: str | None) -> None:
    """Raises InstallationFailed where another version has made what is in the database.

    A package that was upgraded in its place is not: its functions work with tables of the version before.
    """
    if installed not in (None, cerebro_db.__version__):
        raise InstallationFailed(
            f"the database has version {installed} of Cerebro-DB, this is {cerebro_db.__version__}",
            'Run "cerebro upgrade" with the version that the server shall run.',
        )


def _require_functions(connection: BlockingSession, names: tuple[str, ...]) -> None:
    query = queries.MISSING_FUNCTIONS.format(names=sql_array(list(names)))
    missing = [str(name) for (name,) in rows(connection, query, "the functions")]
    if missing:
        raise InstallationFailed(
            f"functions are missing in schema cerebro: {', '.join(missing)}",
            'Run "cerebro upgrade".',
        )
