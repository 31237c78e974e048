"""Entries of the functions of the model registry, and of cerebro_export."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.registry import export_format
from cerebro_db.models import registered, registry
from cerebro_db.models.registered import ExportRequest
from cerebro_db.models.registry import RegisterRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.computing import Tick, computing
from cerebro_db.server.declarations import CHANGES, READS
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.server.host import Host
from cerebro_db.server.joined import take_joined
from cerebro_db.server.memory import recall


@entry_of("cerebro_register_model", CHANGES)
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
    request = RegisterRequest(run_id, mst_key, name, description, tags)
    with caller_session(plpy, writes=True) as session:
        return registry.register(session, request)


@entry_of("cerebro_set_alias", CHANGES)
def set_alias(
    plpy: Any, gd: dict[str, Any], name: str | None, alias: str | None, version: int | None
) -> None:
    """Let an alias mean a version."""
    with caller_session(plpy, writes=True) as session:
        registry.set_alias(session, name, alias, version)


@entry_of("cerebro_rollback_alias", CHANGES)
def rollback_alias(
    plpy: Any, gd: dict[str, Any], name: str | None, alias: str | None
) -> int | None:
    """Let an alias mean what it meant before."""
    with caller_session(plpy, writes=True) as session:
        return registry.rollback_alias(session, name, alias)


@entry_of("cerebro_describe_model", CHANGES)
def describe(
    plpy: Any, gd: dict[str, Any], name: str | None, description: str | None, tags: str | None
) -> None:
    """Set the description and the tags of a model or of a version."""
    with caller_session(plpy, writes=True) as session:
        registry.describe(session, name, description, tags)


@entry_of("cerebro_grant_model", CHANGES)
def grant(plpy: Any, gd: dict[str, Any], name: str | None, role: str | None) -> None:
    """Let a role use a model."""
    with caller_session(plpy, writes=True) as session:
        registry.grant(session, name, role)


@entry_of("cerebro_revoke_model", CHANGES)
def revoke(plpy: Any, gd: dict[str, Any], name: str | None, role: str | None) -> None:
    """Take a grant back."""
    with caller_session(plpy, writes=True) as session:
        registry.revoke(session, name, role)


@entry_of("cerebro_drop_model", CHANGES)
def drop(plpy: Any, gd: dict[str, Any], name: str | None, version: int | None) -> None:
    """Remove a version or a model."""
    with caller_session(plpy, writes=True) as session:
        registry.drop(session, name, version)


@entry_of("cerebro_export", READS)
def export(
    plpy: Any,
    gd: dict[str, Any],
    model_table: str | None,
    mst_key: int | None,
    wanted: str | None,
) -> bytes:
    """A model as the bytes of a file."""
    host = Host.apart(plpy, gd, writes=False)
    request = ExportRequest(model_table, mst_key, wanted, search_path=host.search_path)
    return registered.export(host.pool, request)


@entry
@computing
def export_model(
    tick: Tick, gd: dict[str, Any], task: str | None, wanted: str | None, state: int | None
) -> bytes:
    """Write the file of a model whose state is joined in this worker."""
    known = recall(gd).architectures
    from cerebro_db.training.architectures import export

    return export.export(task or "", take_joined(gd, state), export_format(wanted), known, tick)
