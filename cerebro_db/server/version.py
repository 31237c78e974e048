"""Versions of the package and of the libraries that it runs on."""

from __future__ import annotations

import json
import os
import platform
import resource
from typing import Any

import cerebro_db
from cerebro_db.configs.settings import Settings
from cerebro_db.relay.machine import memory_mb
from cerebro_db.server import network
from cerebro_db.server.entry import entry
from cerebro_db.server.limits import bind
from cerebro_db.training.environment import versions


@entry
def installed(plpy: Any, gd: dict[str, Any]) -> str:
    """The package's version, for example ``0.1.0``."""
    return cerebro_db.__version__


@entry
def libraries(plpy: Any, gd: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and version of Python and of the libraries that compute."""
    return [("Python", platform.python_version()), *versions().items()]


@entry
def limits(plpy: Any, gd: dict[str, Any], settings: str) -> list[tuple[str, str, str | None]]:
    """Limits that this trainer has by the settings of the database, as the kernel tells.

    Args:
        settings: JSON of names and values.

    Returns:
        Name, value, and a warning or None.
    """
    known = Settings.of(json.loads(settings))
    bind(known)
    memory = resource.getrlimit(resource.RLIMIT_DATA)[1] // 2**20
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    warning = None
    if known.trainer_network == "off" and not network.is_refused():
        warning = "this system cannot refuse trainers the network (seccomp): they have it"
    return [
        ("memory of a trainer", f"{memory} MB of {memory_mb()} MB", None),
        ("processors of a trainer", f"{cpus}; nice {nice}", None),
        ("network of a trainer", "none" if network.is_refused() else "that of the host", warning),
    ]
