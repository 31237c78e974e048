"""Body of cerebro_drop_outputs."""

from __future__ import annotations

from typing import Any

from cerebro_db.postgres.outputs import drop_outputs
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of


@entry_of("cerebro_drop_outputs")
def drop(plpy: Any, gd: dict[str, Any], output_table: str | None) -> list[str]:
    """Drop an output table and what is beside it."""
    with caller_session(plpy, writes=True) as session:
        return drop_outputs(session, output_table)
