"""Where the package, its SQL and the bodies of its functions lie on this machine."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import cerebro_db

_PACKAGE = Path(cerebro_db.__file__).resolve().parent
_VERSION_IN_PATH = re.compile(r"/python(\d+\.\d+)(?=/|$)")


def sql_directory() -> Path:
    """The folder of the SQL: of the wheel, or of the checkout where the package runs from one."""
    return _first_directory(_PACKAGE / "_sql", _PACKAGE.parent / "sql")


def udfs_directory() -> Path:
    """The folder of the bodies of the PL/Python functions, likewise."""
    return _first_directory(_PACKAGE / "_udfs", _PACKAGE.parent / "udfs")


def default_python_paths() -> tuple[str, ...]:
    """What a server on this machine needs on its Python path to find this very package."""
    site_packages = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    home = str(_PACKAGE.parent)
    return tuple(dict.fromkeys((*site_packages, home)))


def python_version_of(paths: tuple[str, ...]) -> str | None:
    """The Python that ``paths`` belong to, such as ``3.11``; None where they do not tell."""
    for path in paths:
        if found := _VERSION_IN_PATH.search(path):
            return found[1]
    return None


def _first_directory(*candidates: Path) -> Path:
    return next(path for path in candidates if path.is_dir())
