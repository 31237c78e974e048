"""Entries of cerebro_export, and of the worker that writes the file."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.exports import export_format
from cerebro_db.models import export as driver
from cerebro_db.models.export import ExportRequest
from cerebro_db.server.computing import Tick, computing
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.server.host import Host
from cerebro_db.server.joining import take_joined
from cerebro_db.server.memory import recall


@entry_of("cerebro_export")
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
    return driver.export(host.pool, request)


@entry
@computing
def export_model(
    tick: Tick, gd: dict[str, Any], task: str | None, wanted: str | None, state: int | None
) -> bytes:
    """Write the file of a model whose state is joined in this worker."""
    known = recall(gd).architectures
    from cerebro_db.training import export

    return export.export(task or "", take_joined(gd, state), export_format(wanted), known, tick)
