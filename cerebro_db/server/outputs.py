"""What cerebro_drop_outputs calls."""

from __future__ import annotations

from typing import Any

from cerebro_db.database.dialects.capabilities import interrupts_python
from cerebro_db.driver.control import control_session, transaction
from cerebro_db.driver.outputs import drop_outputs
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of("cerebro_drop_outputs")
def drop(plpy: Any, gd: dict[str, Any], output_table: str | None) -> list[str]:
    """Drop an output table and what is beside it, in the caller's transaction where that can be."""
    if not interrupts_python():
        with caller_session(plpy) as own:
            return drop_outputs(own, output_table)
    host = Host.of(plpy, gd)
    with (
        control_session(host.pool, host.search_path, host.tick) as session,
        transaction(session, host.tick),
    ):
        return drop_outputs(session, output_table, host.tick)
