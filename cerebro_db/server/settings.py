"""Entries about the installation: settings, versions, GPUs."""

from __future__ import annotations

import ipaddress
import json
import os
import platform
import resource
from typing import Any

import cerebro_db
from cerebro_db.configs.settings import OF_SUPERUSERS, Settings, parse_setting
from cerebro_db.errors import InvalidArgument, NotPermitted, PeersApart
from cerebro_db.postgres.calls import gpus
from cerebro_db.postgres.sessions.dsn import check_dsn
from cerebro_db.relay.machine import memory_mb
from cerebro_db.requests.administration import GpuRequest, SettingRequest, VersionRequest
from cerebro_db.server import network
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.server.files import check_root, fault_of_root
from cerebro_db.server.host import Host
from cerebro_db.server.limits import bind
from cerebro_db.training.devices import described
from cerebro_db.training.environment import versions
from cerebro_db.training.peers.listeners import address_in


def settings_of(plpy: Any) -> Settings:
    """Settings of administrators, as the caller of a function may see them."""
    rows = plpy.execute("SELECT name, value FROM cerebro.settings")
    return Settings.of({row["name"]: row["value"] for row in rows})


@entry_of(SettingRequest)
def set_value(plpy: Any, gd: dict[str, Any], request: SettingRequest) -> None:
    """Set a setting, or bring its default back where ``value`` is NULL.

    Raises:
        NotPermitted: the caller is no administrator, or no superuser where it takes one.
        InvalidArgument: the name is not known, or the value not allowed.
    """
    require_administrator(plpy)
    name, value = request.name, request.value
    if name is None:
        raise InvalidArgument("name: got NULL; allowed: the name of a setting")
    text = None if value is None else str(parse_setting(name, value))
    if text is None:
        parse_setting(name, str(getattr(Settings(), name, "")))
    if name in OF_SUPERUSERS:
        _require_superuser(plpy, name)
    if name == "worker_dsn" and text is not None:
        check_dsn(text)
    if name == "files_root" and text is not None:
        check_root(plpy, text)
    with caller_session(plpy, writes=True) as session:
        session.write("_set_setting", name, text)


def require_administrator(plpy: Any) -> None:
    """Refuse a caller who is no administrator.

    Raises:
        NotPermitted: that is so.
    """
    if not plpy.execute(_IS_ADMINISTRATOR)[0]["allowed"]:
        raise NotPermitted(
            "permission denied to set what holds for the whole database",
            hint="members of cerebro_admin may",
        )


def _require_superuser(plpy: Any, name: str) -> None:
    if not plpy.execute(_IS_SUPERUSER)[0]["allowed"]:
        raise NotPermitted(
            f"permission denied to set {name}, which decides {OF_SUPERUSERS[name]}",
            hint="superusers may",
        )


_IS_ADMINISTRATOR = "SELECT pg_catalog.pg_has_role('cerebro_admin', 'USAGE') AS allowed"
_IS_SUPERUSER = (
    "SELECT r.rolsuper AS allowed FROM pg_catalog.pg_roles r "
    "WHERE r.rolname OPERATOR(pg_catalog.=) current_user"
)


@entry_of(VersionRequest)
def installed(plpy: Any, gd: dict[str, Any], request: VersionRequest) -> str:
    """The package's version, for example ``0.1.0``."""
    return cerebro_db.__version__


@entry
def libraries(plpy: Any, gd: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and version of Python and of the libraries that compute."""
    return [("Python", platform.python_version()), *versions().items()]


@entry_of(GpuRequest)
def gpu_configuration(plpy: Any, gd: dict[str, Any], request: GpuRequest) -> None:
    """Write down the GPUs of each host."""
    host = Host.of(plpy, gd)
    with host.callers() as session:
        gpus.write_configuration(session, host.pool, host.dialect, request)


@entry
def gpus_here(plpy: Any, gd: dict[str, Any], source: str | None) -> list[str]:
    """The GPUs of the host on which this process runs."""
    return described(source, plpy.listen)


@entry
def limits(plpy: Any, gd: dict[str, Any], settings: str) -> list[tuple[str, str, str | None]]:
    """Limits of this trainer by the settings of the database, as the kernel reports them.

    Args:
        settings: JSON of names and values.

    Returns:
        Name, value, and a warning or None.
    """
    known = Settings.of(json.loads(settings))
    peers = _peers(known) if known.peer_network else []
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
        ("files outside of the database", known.files_root or "none", fault_of_root(known)),
        *peers,
    ]


def _peers(settings: Settings) -> list[tuple[str, str, str | None]]:
    """Address where this trainer listens for trainers of other hosts."""
    network.require(only_tcp=True)  # to ask for addresses takes a socket
    try:
        address, warning = address_in(ipaddress.ip_network(settings.peer_network)), None
    except PeersApart as error:
        address, warning = "no address", error.message
    return [("peers of other hosts", f"{address} in {settings.peer_network}", warning)]
