"""What cerebro_encode and cerebro_create_encoder call."""

from __future__ import annotations

from typing import Any

from cerebro_db.driver import encoding_rows
from cerebro_db.driver.encoding_rows import EncodeRequest, EncoderRequest
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of("cerebro_encode")
def encode(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    training_table: str | None,
    output_table: str | None,
    id_col: str | None,
    replace: bool | None,
) -> None:
    """Write the features of the rows of a table."""
    host = Host.of(plpy, gd)
    request = EncodeRequest(
        source_table, training_table, output_table, id_col, replace, search_path=host.search_path
    )
    encoding_rows.encode(host.pool, request, host.tick)


@entry_of("cerebro_create_encoder")
def create_encoder(
    plpy: Any,
    gd: dict[str, Any],
    source_table: str | None,
    training_table: str | None,
    function_name: str | None,
    replace: bool | None,
) -> None:
    """Make a function that gives the features of a row of a table."""
    host = Host.of(plpy, gd)
    request = EncoderRequest(
        source_table, training_table, function_name, replace, search_path=host.search_path
    )
    encoding_rows.create_encoder(host.pool, request, host.tick)
