"""Entries of cerebro_gpu_configuration, and of what it asks on each host."""

from __future__ import annotations

from typing import Any

from cerebro_db.postgres import gpus
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.server.host import Host
from cerebro_db.training.devices import described


@entry_of("cerebro_gpu_configuration")
def gpu_configuration(
    plpy: Any,
    gd: dict[str, Any],
    output_table: str | None,
    source: str | None,
    replace: bool | None,
) -> None:
    """Write down the GPUs of each host."""
    host = Host.of(plpy, gd)
    request = gpus.GpuRequest(output_table, source, replace)
    with host.callers() as session:
        gpus.write_configuration(session, host.pool, host.dialect, request)


@entry
def gpus_here(plpy: Any, gd: dict[str, Any], source: str | None) -> list[str]:
    """The GPUs of the host on which this process runs."""
    return described(source, plpy.listen)
