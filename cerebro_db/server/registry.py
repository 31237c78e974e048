"""What the functions of the model registry call."""

from __future__ import annotations

from typing import Any

from cerebro_db.driver import registry
from cerebro_db.driver.registry import RegisterRequest
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of("cerebro_register_model")
def register(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    mst_key: int | None,
    name: str | None,
    description: str | None,
    tags: str | None,
) -> int:
    """Copy a model of a run into the registry."""
    host = Host.of(plpy, gd)
    request = RegisterRequest(run_id, mst_key, name, description, tags)
    return registry.register(host.pool, request, host.tick)


@entry_of("cerebro_set_alias")
def set_alias(
    plpy: Any, gd: dict[str, Any], name: str | None, alias: str | None, version: int | None
) -> None:
    """Let an alias mean a version."""
    host = Host.of(plpy, gd)
    registry.set_alias(host.pool, name, alias, version, host.tick)


@entry_of("cerebro_rollback_alias")
def rollback_alias(
    plpy: Any, gd: dict[str, Any], name: str | None, alias: str | None
) -> int | None:
    """Let an alias mean what it meant before."""
    host = Host.of(plpy, gd)
    return registry.rollback_alias(host.pool, name, alias, host.tick)


@entry_of("cerebro_describe_model")
def describe(
    plpy: Any, gd: dict[str, Any], name: str | None, description: str | None, tags: str | None
) -> None:
    """Set the description and the tags of a model or of a version."""
    host = Host.of(plpy, gd)
    registry.describe(host.pool, name, description, tags, host.tick)


@entry_of("cerebro_grant_model")
def grant(plpy: Any, gd: dict[str, Any], name: str | None, role: str | None) -> None:
    """Let a role use a model."""
    host = Host.of(plpy, gd)
    registry.grant(host.pool, name, role, host.tick)


@entry_of("cerebro_revoke_model")
def revoke(plpy: Any, gd: dict[str, Any], name: str | None, role: str | None) -> None:
    """Take a grant back."""
    host = Host.of(plpy, gd)
    registry.revoke(host.pool, name, role, host.tick)


@entry_of("cerebro_drop_model")
def drop(plpy: Any, gd: dict[str, Any], name: str | None, version: int | None) -> None:
    """Remove a version or a model."""
    host = Host.of(plpy, gd)
    registry.drop(host.pool, name, version, host.tick)
