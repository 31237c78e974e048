"""The commands that put Cerebro-DB into a database."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

import cerebro_db

if TYPE_CHECKING:
    from cerebro_db.install.script import Script

# SQLAlchemy and Jinja2 are imported by the commands: the others start without them.

Dsn = Annotated[
    str,
    typer.Option(
        help='The database: "host=... dbname=...", a postgresql:// URL, or empty for libpq\'s'
        " environment variables.",
        show_default=False,
    ),
]
PythonPath = Annotated[
    list[str] | None,
    typer.Option(
        help="Where the server's Python finds the package; may be given several times."
        " Default: the site-packages that this program runs from.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (install, upgrade, verify, uninstall, print_script):
        name = "print" if command is print_script else command.__name__
        app.command(name)(command)


def install(dsn: Dsn = "", python_path: PythonPath = None) -> None:
    """Installs into a database, in one transaction; again is harmless."""
    from cerebro_db.install import installer

    _warn(installer.install(dsn, _script(python_path)))
    print(f"Cerebro-DB {cerebro_db.__version__} is installed.")


def upgrade(dsn: Dsn = "", python_path: PythonPath = None) -> None:
    """Brings an installation to this version; sessions that are open keep the old one."""
    from cerebro_db.install import installer

    _warn(installer.upgrade(dsn, _script(python_path)))
    print(f"Cerebro-DB {cerebro_db.__version__} is installed.")


def verify(dsn: Dsn = "") -> None:
    """Checks an installation, and that TensorFlow works inside the server."""
    from cerebro_db.install import installer

    report = installer.verify(dsn, _script(None))
    print(f"Cerebro-DB {report.version}, {len(report.functions)} functions")
    for name, version in report.versions.items():
        print(f"{name} {version}")
    if report.segments:
        print(f"the same on {report.segments} segments")
    _warn(report.warnings)


def uninstall(
    dsn: Dsn = "",
    force: Annotated[
        bool, typer.Option("--force", help="Also where runs, or what depends on it, are lost.")
    ] = False,
) -> None:
    """Removes schema cerebro; the tables of users stay."""
    from cerebro_db.install import installer

    for dropped in installer.uninstall(dsn, force):
        print(f"dropped too: {dropped}")
    print("Cerebro-DB is removed. The extension plpython3u stays.")


def print_script(python_path: PythonPath = None) -> None:
    """Prints the SQL of an installation, for psql -1 -f."""
    print(_script(python_path).text(), end="")


def _warn(texts: tuple[str, ...]) -> None:
    for text in texts:
        print(f"cerebro: warning: {text}", file=sys.stderr)


def _script(python_path: list[str] | None) -> Script:
    from cerebro_db.install.script import Script

    return Script(tuple(python_path)) if python_path else Script()
