"""The commands that put Cerebro-DB into a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

import cerebro_db
from cerebro_db.cli.commands import Dsn
from cerebro_db.cli.output import print_json, show, show_text, to_stderr
from cerebro_db.errors import CerebroError

if TYPE_CHECKING:
    from cerebro_db.install.embedded import Cluster
    from cerebro_db.install.script import Script

# psycopg2 and Jinja2 are imported by the commands: the others start without them.

Python = Annotated[
    str | None,
    typer.Option(
        help="The Python of the virtual environment on the server's machine. Default: that of an"
        " earlier installation, where it has this version; or the one that runs this program.",
        show_default=False,
    ),
]
Package = Annotated[
    str | None,
    typer.Option(
        help="The folder of the package cerebro_db on the server's machine. Default: that of --python.",
        show_default=False,
    ),
]
KeeperDirectory = Annotated[
    str | None,
    typer.Option(
        help="The folder on the server's machine in which the processes beside the server have a folder of"
        " their own, for their sockets. Default: that of an earlier installation, or /tmp.",
        show_default=False,
    ),
]
FilesRoot = Annotated[
    str | None,
    typer.Option(
        help="The directory on the server's machine below which all files lie that are written outside of the"
        " database, such as event files; '' for none. Default: that of an earlier installation, or none.",
        show_default=False,
    ),
]
MadlibNames = Annotated[
    bool,
    typer.Option(
        "--madlib",
        help="Also make the schema madlib with MADlib's names of the functions. Later upgrades keep it.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (install, upgrade, verify, doctor, uninstall, print_script):
        name = "print" if command is print_script else command.__name__
        app.command(name)(command)


def install(
    dsn: Dsn = "",
    python: Python = None,
    package: Package = None,
    keeper_directory: KeeperDirectory = None,
    files_root: FilesRoot = None,
    madlib: MadlibNames = False,
) -> None:
    """Installs into a database, in one transaction; repeating it does no harm."""
    from cerebro_db.install import installer
    from cerebro_db.install.places import script_for

    _installed(
        installer.install,
        dsn,
        script_for(dsn, python, package, keeper_directory, files_root, madlib),
    )


def upgrade(
    dsn: Dsn = "",
    python: Python = None,
    package: Package = None,
    keeper_directory: KeeperDirectory = None,
    files_root: FilesRoot = None,
    madlib: MadlibNames = False,
    pause: Annotated[
        bool, typer.Option("--pause", help="Pause runs that go on; their owners resume them.")
    ] = False,
) -> None:
    """Brings an installation to this version; sessions that are open keep the old one."""
    from cerebro_db.install import installer
    from cerebro_db.install.places import script_for

    if pause:
        for run_id in installer.pause_runs(dsn):
            show(
                f"run {run_id} is paused: SELECT cerebro.cerebro_resume({run_id}, any_version := true)"
            )

    _installed(
        installer.upgrade,
        dsn,
        script_for(dsn, python, package, keeper_directory, files_root, madlib),
    )


def verify(dsn: Dsn = "") -> None:
    """Checks an installation and that its processes start beside the server; tells versions and limits."""
    from cerebro_db.install import installer
    from cerebro_db.install.script import Script

    report = installer.verify(dsn, Script())
    show(f"Cerebro-DB {report.version}, {len(report.functions)} functions")
    for name, version in report.versions.items():
        show(f"{name} {version}")
    for name, value in report.limits.items():
        show(f"{name}: {value}")
    if report.segments:
        show(f"the same on {report.segments} segments")
    _warn(report.warnings)


def doctor(
    dsn: Annotated[
        str | None,
        typer.Option(
            help="The database to examine. Default: that of the embedded server, where it runs.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Tells what is there, what is missing and how to get it; exit code 1 where something is missing."""
    from cerebro_db.install.doctor import examine

    findings = examine(dsn, _embedded())
    is_well = all(one.state != "missing" for one in findings)
    if as_json:
        print_json({"ok": is_well, "findings": [one.row() for one in findings]})
    else:
        width = max(len(one.name) for one in findings)
        for one in findings:
            show(f"{one.state:8}  {one.name:{width}}  {one.value}")
            if one.advice:
                show(f"{'':8}  {'':{width}}  -> {one.advice}")
    if not is_well:
        raise typer.Exit(1)


def _embedded() -> Cluster | None:
    """The embedded server of this user; None where this user cannot run one."""
    from cerebro_db.install.embedded import Cluster, default_home

    try:
        return Cluster(default_home())
    except CerebroError:
        return None


def uninstall(
    dsn: Dsn = "",
    force: Annotated[
        bool, typer.Option("--force", help="Also where runs, or what depends on it, are lost.")
    ] = False,
) -> None:
    """Removes schema cerebro; the tables of users stay."""
    from cerebro_db.install import installer

    for dropped in installer.uninstall(dsn, force):
        show(f"dropped too: {dropped}")
    show("Cerebro-DB is removed. The extension plpython3u stays.")


def print_script(
    python: Python = None,
    package: Package = None,
    keeper_directory: KeeperDirectory = None,
    files_root: FilesRoot = None,
    madlib: MadlibNames = False,
    dialect: Annotated[
        str, typer.Option(help="The server: postgresql or greenplum6.")
    ] = "postgresql",
) -> None:
    """Prints the SQL of an installation, for psql -1 -f."""
    from cerebro_db.install.places import script_of

    script = script_of(python, package, keeper_directory, files_root, madlib)
    show_text(replace(script, dialect=dialect).text())


def _installed(how: Callable[[str, Script], tuple[str, ...]], dsn: str, script: Script) -> None:
    """Install, and print the paths that are written into the database."""
    _warn(how(dsn, script))
    show(f"Cerebro-DB {cerebro_db.__version__} is installed.")
    show(f"Python {script.python}, package {script.package}, keepers in {script.keeper_directory}")


def _warn(texts: tuple[str, ...]) -> None:
    for text in texts:
        to_stderr(f"cerebro: warning: {text}")
