"""Versions of the package and of the libraries that it runs on."""

from __future__ import annotations

import platform
from typing import Any

import cerebro_db
from cerebro_db.server.entry import entry
from cerebro_db.training.environment import versions


@entry
def installed(plpy: Any, gd: dict[str, Any]) -> str:
    """The package's version, for example ``0.1.0``."""
    return cerebro_db.__version__


@entry
def libraries(plpy: Any, gd: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and version of Python and of the libraries that compute."""
    return [("Python", platform.python_version()), *versions().items()]
