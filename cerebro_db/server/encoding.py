"""Entries of cerebro_encode and cerebro_create_encoder."""

from __future__ import annotations

from typing import Any

from cerebro_db.packing import encoding_rows
from cerebro_db.packing.encoding_rows import EncodeRequest, EncoderRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of


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
    request = EncodeRequest(source_table, training_table, output_table, id_col, replace)
    with caller_session(plpy, writes=True) as session:
        encoding_rows.encode(session, request)


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
    request = EncoderRequest(source_table, training_table, function_name, replace)
    with caller_session(plpy, writes=True) as session:
        encoding_rows.create_encoder(session, request)
