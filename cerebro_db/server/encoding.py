"""What cerebro_encode calls."""

from __future__ import annotations

from typing import Any

from cerebro_db.driver import encoding_rows
from cerebro_db.driver.encoding_rows import EncodeRequest
from cerebro_db.server.host import Host, entry


@entry
def encode(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    training_table: str | None,
    output_table: str | None,
    id_col: str | None,
) -> None:
    """Write the features of the rows of a table."""
    host = Host.of(plpy, gd)
    request = EncodeRequest(
        source_table, training_table, output_table, id_col, search_path=host.search_path
    )
    encoding_rows.encode(host.pool, request, host.tick)
