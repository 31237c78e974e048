"""Folders of the package, its SQL and the bodies of its functions on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cerebro_db
from cerebro_db.errors import InvalidArgument

_PACKAGE = Path(cerebro_db.__file__).resolve().parent


def sql_directory() -> Path:
    """The folder of the SQL: of the wheel, or of the checkout where the package runs from one."""
    return _first_directory(_PACKAGE / "_sql", _PACKAGE.parent / "sql")


def udfs_directory() -> Path:
    """The folder of the bodies of the PL/Python functions, likewise."""
    return _first_directory(_PACKAGE / "_udfs", _PACKAGE.parent / "udfs")


def package_directory() -> str:
    """The folder of this very package."""
    return str(_PACKAGE)


def package_of(python: str) -> str:
    """The folder of the package that a Python of this machine has.

    Raises:
        InvalidArgument: it is on another machine, or has none.
    """
    found = _told_by(python, "cerebro_db.__path__[0]")
    if found is None:
        raise InvalidArgument(
            f"python: got {python}, which cannot be asked here for the folder of its cerebro_db",
            hint="name that folder too: --package /path/to/site-packages/cerebro_db",
        )
    return found


def version_of(python: str) -> str | None:
    """The version of the package that a Python of this machine has; None where it has none."""
    return _told_by(python, "cerebro_db.__version__")


def _told_by(python: str, what: str) -> str | None:
    """Ask a Python of this machine for a fact of its package; None where it cannot be asked."""
    code = f"import cerebro_db; print({what})"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _first_directory(*candidates: Path) -> Path:
    return next(path for path in candidates if path.is_dir())
