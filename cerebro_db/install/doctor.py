"""Findings about a machine and a database: what Cerebro-DB needs there, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

import cerebro_db
from cerebro_db.configs.frameworks import Framework, frameworks
from cerebro_db.errors import CerebroError, MissingPrerequisite
from cerebro_db.install import installer, postgres, queries
from cerebro_db.install.connection import rows, transaction
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.places import installed_script
from cerebro_db.install.script import Script
from cerebro_db.postgres.sessions.blocking import BlockingSession
from cerebro_db.relay.machine import cores, memory_mb

DISTRIBUTION = "cerebro-db"
# Pythons for which there are frameworks.
_FIRST, _LAST = (3, 11), (3, 13)
# A framework is needed, and its extra with it; the others are for what their names say.
_OPTIONAL = {
    "images": "packing of JPEG and PNG",
    "onnx": "export as ONNX",
    "gp": "search method gp",
    "report": "pictures of runs: cerebro report",
    "pandas": "tables of the Python client as frames",
    "mlflow": "runs for MLflow: cerebro mlflow",
    "wandb": "runs for Weights & Biases: cerebro wandb",
}
_LEAST_MB = 2048
_FIRST_OF_PACKAGES = 10
_UTF8 = "UTF8"

State = Literal["ok", "warning", "missing", "optional"]


class Finding(NamedTuple):
    """Line of the doctor's page.

    Attributes:
        name: of what was looked for.
        state: ``missing`` where nothing works without it, ``optional`` where something does not.
        value: what is there.
        advice: what to do, None where nothing is to be done.
    """

    name: str
    state: State
    value: str
    advice: str | None = None

    def row(self) -> dict[str, str | None]:
        """Names and values, for JSON."""
        return self._asdict()


def examine(dsn: str | None, cluster: Cluster | None) -> list[Finding]:
    """All findings.

    Args:
        dsn: of a database, None where none is named.
        cluster: the embedded server, which is asked where no database is named and it runs; or None.
    """
    found = [*_of_machine(), *_of_package()]
    if dsn is None and cluster is not None and cluster.data.exists():
        if cluster.pid() is None:
            return [*found, _stopped(cluster)]
        dsn = cluster.dsn()
    if dsn is None:
        advice = '--dsn "..." examines a database, and what runs beside its server'
        return [*found, Finding("database", "optional", "none was named", advice)]
    return [*found, *_of_database(dsn)]


def _stopped(cluster: Cluster) -> Finding:
    """An embedded server that does not run, and may not be able to: its data may be of another version."""
    try:
        cluster.psql()
    except CerebroError as error:
        return Finding("server", "missing", error.message, error.hint)
    advice = 'start it, or name a database: --dsn "..."'
    return Finding("server", "optional", f"none runs in {cluster.home}", advice)


# -- this machine ----------------------------------------------------------------------------------
def _of_machine() -> Iterator[Finding]:
    try:
        server = postgres.find()
        yield Finding("PostgreSQL of this machine", "ok", f"{server.major}, {server.programs}")
    except MissingPrerequisite as error:
        # A server on another machine may be the one that counts.
        yield Finding("PostgreSQL of this machine", "optional", error.message, error.hint)
    usable, memory = cores(), memory_mb()
    yield Finding("processors", "ok", f"{usable} of {os.cpu_count()}")
    if memory < _LEAST_MB:
        advice = f"a trainer takes 0.7 GB and the data that it reads: have {_LEAST_MB} MB"
        yield Finding("memory", "warning", f"{memory} MB", advice)
    else:
        yield Finding("memory", "ok", f"{memory} MB")


def _of_package() -> Iterator[Finding]:
    yield Finding("package", "ok", f"{DISTRIBUTION} {cerebro_db.__version__}")
    python, name = sys.version_info[:2], f"{platform.python_version()}, {sys.executable}"
    if _FIRST <= python <= _LAST:
        yield Finding("Python of trainers", "ok", name)
    else:
        allowed = " to ".join(".".join(map(str, one)) for one in (_FIRST, _LAST))
        advice = f"make a virtual environment with a Python from {allowed}"
        yield Finding("Python of trainers", "missing", name, advice)
    wanted = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    yield _libraries(wanted)
    yield from _frameworks(wanted)
    for extra, purpose in _OPTIONAL.items():
        yield _extra(wanted, extra, purpose)


def _libraries(wanted: list[Requirement]) -> Finding:
    lacking = _lacking(wanted, "")
    if lacking:
        return Finding("libraries", "missing", ", ".join(lacking), _install(*lacking))
    return Finding("libraries", "ok", "all that the package needs")


def _frameworks(wanted: list[Requirement]) -> Iterator[Finding]:
    """A line about each framework; one of them is needed."""
    found = [_framework(wanted, one) for one in frameworks().values()]
    some = any(one.state == "ok" for one in found)
    for one in found:
        yield one._replace(state="optional") if some and one.state == "missing" else one


def _framework(wanted: list[Requirement], framework: Framework) -> Finding:
    for extra in framework.extras:
        if _of_extra(wanted, extra) and not _lacking(wanted, extra):
            versions = ", ".join(_shown_requirement(one) for one in _of_extra(wanted, extra))
            return Finding(framework.title, "ok", f"{versions} (extra {extra})")
    first, *others = framework.extras
    advice = _install(f"{DISTRIBUTION}[{first}]")
    more = f" (or {', '.join(f'[{one}]' for one in others)})" if others else ""
    return Finding(framework.title, "missing", "none", advice + more)


def _extra(wanted: list[Requirement], extra: str, purpose: str) -> Finding:
    lacking, name = _lacking(wanted, extra), f"extra {extra}"
    if lacking:
        value = f"not there: {', '.join(lacking)}; for {purpose}"
        return Finding(name, "optional", value, _install(*lacking))
    return Finding(
        name, "ok", ", ".join(_shown_requirement(one) for one in _of_extra(wanted, extra))
    )


def _of_extra(wanted: list[Requirement], extra: str) -> list[Requirement]:
    """Requirements of an extra on this machine; of none for an empty name."""
    return [
        one
        for one in wanted
        if ("extra ==" in str(one.marker)) == bool(extra)
        and (one.marker is None or one.marker.evaluate({"extra": extra}))
    ]


def _lacking(wanted: list[Requirement], extra: str) -> list[str]:
    """Requirements that are not there in a version that is allowed, as pip takes them."""
    return [
        f"{one.name}{one.specifier}"
        for one in _of_extra(wanted, extra)
        if (version := _version(one)) is None
        or not one.specifier.contains(version, prereleases=True)
    ]


def _version(wanted: Requirement) -> str | None:
    try:
        return metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return None


def _shown_requirement(wanted: Requirement) -> str:
    return f"{wanted.name} {_version(wanted)}"


def _install(*packages: str) -> str:
    quoted = " ".join(f'"{name}"' for name in packages)
    return f"{sys.executable} -m pip install {quoted}"


# -- a database ------------------------------------------------------------------------------------
def _of_database(dsn: str) -> Iterator[Finding]:
    try:
        with transaction(dsn) as connection:
            server = list(_of_server(connection))
            ((name, installed),) = rows(connection, queries.INSTALLED, "the schema")
            script = installed_script(connection, Script())
            ((role, superuser),) = rows(connection, queries.SUPERUSER, "the role")
    except CerebroError as error:
        yield Finding("database", "missing", error.message, error.hint or "name another: --dsn")
        return
    yield from server
    if any(one.name == "pg_cron" and one.state == "ok" for one in server):
        yield from _timers(dsn)
    if not installed:
        advice = f"cerebro install --dsn {_quoted(dsn)}"
        yield Finding("Cerebro-DB", "missing", f'not in database "{name}"', advice)
        return
    yield Finding("interpreter", "ok", script.python)
    if superuser != "on":
        value = (
            f'in database "{name}"; whether it works was not tried: role "{role}" is no superuser'
        )
        yield Finding("Cerebro-DB", "warning", value, 'connect as one, for example as "postgres"')
        return
    yield from _of_installation(dsn)


def _of_server(connection: BlockingSession) -> Iterator[Finding]:
    facts = rows(connection, queries.SERVER_FACTS, "the server")
    ((version, plpython, cron, cron_made, name, encoding),) = facts
    yield Finding("server", "ok", str(version))
    yield _encoding(str(name), str(encoding))
    major = str(version).partition(".")[0].partition(" ")[0]
    # Servers with segments are older ones, and have packages of their own.
    has_packages = not major.isdigit() or int(major) >= _FIRST_OF_PACKAGES
    if plpython is None:
        advice = "install the one of the server's own packages, of its very version"
        if has_packages:
            advice = postgres.packages_of(major, server=False)
        yield Finding("plpython3u", "missing", "not on the server's machine", advice)
    else:
        yield Finding("plpython3u", "ok", str(plpython))
    yield _pg_cron(cron, bool(cron_made), major if has_packages else None)


def _encoding(name: str, encoding: str) -> Finding:
    """The encoding of a database: PL/Python damages texts in all but one."""
    if encoding == _UTF8:
        return Finding("encoding", "ok", encoding)
    return Finding(
        "encoding",
        "missing",
        f'{encoding} of database "{name}"; allowed: {_UTF8}, as PL/Python damages texts in any other one',
        "CREATE DATABASE new TEMPLATE template0 ENCODING 'UTF8', move the tables by pg_dump and psql "
        "(from SQL_ASCII with pg_dump --encoding), and install there",
    )


def _pg_cron(version: object, is_made: bool, major: str | None) -> Finding:
    """State of pg_cron, which starts runs at fixed times; without a major version it names no package."""
    if is_made:
        return Finding("pg_cron", "ok", str(version))
    advice = "docs/jobs.md tells how to set it up, and what does without it"
    if version is not None:
        value = f"{version}; this database has no CREATE EXTENSION pg_cron"
    else:
        value = "not on the server's machine; for runs at fixed times"
        if major is None:
            advice = "docs/jobs.md tells what does without it"
        else:
            advice = f"apt-get install postgresql-{major}-cron; {advice}"
    return Finding("pg_cron", "optional", value, advice)


def _timers(dsn: str) -> Iterator[Finding]:
    """Findings about pg_cron's own tables: whether it runs, for whom, and how its last starts of ours ended."""
    try:
        with transaction(dsn) as connection:
            orphans = rows(connection, queries.CRON_ORPHANS, "the jobs of pg_cron")
            ((launchers,),) = rows(connection, queries.CRON_LAUNCHER, "the launcher of pg_cron")
    except CerebroError as error:
        yield Finding("timers of pg_cron", "warning", error.message, "connect as a superuser")
        return
    for number, job, role in orphans:
        yield Finding(
            "timers of pg_cron",
            "missing",
            f'job {number} ("{job}") is of role "{role}", which does not exist: pg_cron ends at it, and starts nothing more',
            f"SELECT cron.alter_job({number}, username := 'ROLE') gives it to another role, SELECT cron.unschedule({number}) "
            "drops it; pg_cron is started again with the server",
        )
    if not launchers:
        yield Finding(
            "launcher of pg_cron",
            "missing",
            "does not run, so that nothing is started; the server's log tells why",
            "remove the cause, and restart the server",
        )
    yield from _last_starts(dsn)


def _last_starts(dsn: str) -> Iterator[Finding]:
    try:
        with transaction(dsn) as connection:
            found = rows(connection, queries.CRON_RUNS, "the last starts of pg_cron")
    except CerebroError:  # an earlier pg_cron, which does not write them down
        return
    for job, status, message, start, is_late in found:
        if status == "failed":
            advice = "mend what the message says; cerebro.schedules shows when it starts next"
            yield Finding(f'timer "{job}"', "warning", f"failed at {start}: {message}", advice)
        elif is_late:
            advice = (
                "the server's log tells what pg_cron does; restart the server where it does nothing"
            )
            yield Finding(
                f'timer "{job}"', "missing", f"is due each minute; last start {start}", advice
            )


def _schedules(dsn: str) -> Iterator[Finding]:
    """Schedules that no timer has started when they were due."""
    advice = {
        "daemon": "start the program cerebro daemon (docs/jobs.md has a unit for systemd)",
        "crontab": "look into the crontab or the systemd timer: cerebro schedule --print writes the line",
        "pg_cron": "look at the lines about pg_cron here, and at cron.job_run_details",
    }
    with transaction(dsn) as connection:
        found = rows(connection, queries.OVERDUE, "the schedules")
    for owner, name, timer, due in found:
        value = f"of {owner} was to start at {due}; its timer {timer} has not started it"
        yield Finding(f'schedule "{name}"', "warning", value, advice[str(timer)])


def _of_installation(dsn: str) -> Iterator[Finding]:
    try:
        report = installer.verify(dsn, Script())
    except CerebroError as error:
        yield Finding("Cerebro-DB", "missing", error.message, error.hint)
        return
    yield Finding("Cerebro-DB", "ok", f"{report.version}, {len(report.functions)} functions")
    for name, value in [*report.versions.items(), *report.limits.items()]:
        yield Finding(f"{name} of trainers" if name in report.versions else name, "ok", value)
    if report.segments:
        yield Finding("segments", "ok", f"the same on {report.segments}")
    for text in report.warnings:
        yield Finding("warning", "warning", text)
    yield from _schedules(dsn)
    yield from _unowned(dsn)


def _unowned(dsn: str) -> Iterator[Finding]:
    """Find rows of the catalog whose roles were dropped, or are not in this cluster."""
    try:
        with transaction(dsn) as connection:
            rows(connection, queries.ADOPT, "the roles of the catalog")
            found = rows(connection, queries.UNOWNED, "the roles of the catalog")
    except CerebroError as error:
        yield Finding("owners", "warning", error.message, error.hint)
        return
    for name, what in found:
        text = str(name).replace("'", "''")
        yield Finding(
            "owners",
            "warning",
            f'{what} of role "{name}", which is not in this cluster',
            f"SELECT cerebro.cerebro_reassign_owned('{text}', 'new_owner') gives them to another role, "
            "also to one of the same name that was made since",
        )
    if not found:
        yield Finding("owners", "ok", "each run, model, job and schedule has a role")


def _quoted(dsn: str) -> str:
    """A connection string without its password, for a command line."""
    if "password" in dsn or re.search(r"://[^/@]*:[^/@]*@", dsn):
        return '"..."'
    return f'"{dsn}"'
