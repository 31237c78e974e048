"""Entries of cerebro_load_model and its like."""

from __future__ import annotations

from typing import Any

from cerebro_db.models import deletion, loading
from cerebro_db.models.loading import FileRequest, LoadRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of("cerebro_load_model")
def load_model(
    plpy: Any,
    gd: dict[str, Any],
    model_arch_table: str | None,
    model_arch: str | None,
    model_weights: bytes | None,
    name: str | None,
    description: str | None,
) -> int:
    """Put a model into an architecture table."""
    host = Host.of(plpy, gd)
    request = LoadRequest(model_arch_table, model_arch, model_weights, name, description)
    with host.callers() as session:
        return loading.load_model(session, host.pool, request)


@entry_of("cerebro_load_model_file")
def load_model_file(
    plpy: Any,
    gd: dict[str, Any],
    model_arch_table: str | None,
    file: bytes | None,
    name: str | None,
    description: str | None,
) -> int:
    """Put the model of a file into an architecture table."""
    host = Host.of(plpy, gd)
    request = FileRequest(model_arch_table, file, name, description)
    with host.callers() as session:
        return loading.load_model_file(session, host.pool, request)


@entry_of("cerebro_delete_model")
def delete_model(
    plpy: Any, gd: dict[str, Any], model_arch_table: str | None, model_id: int | None
) -> None:
    """Take a model out of an architecture table."""
    with caller_session(plpy, writes=True) as session:
        done = deletion.delete_model(session, model_arch_table, model_id)
    plpy.notice(done)
