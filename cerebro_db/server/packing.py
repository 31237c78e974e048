"""Entries of the functions that pack, encode and split tables."""

from __future__ import annotations

from typing import Any

from cerebro_db.packing import encoding_rows, splitting
from cerebro_db.packing import pack as packing
from cerebro_db.requests.packing import (
    EncodeRequest,
    EncoderRequest,
    PackColumnsRequest,
    PackImagesRequest,
    PackingRequest,
    PackRequest,
    PackValidationRequest,
    SplitRequest,
)
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


def _pack(plpy: Any, gd: dict[str, Any], request: PackingRequest) -> None:
    """Pack a table."""
    packing.pack(Host.apart(plpy, gd), request)


pack = entry_of(PackRequest)(_pack)
pack_columns = entry_of(PackColumnsRequest)(_pack)
pack_images = entry_of(PackImagesRequest)(_pack)
pack_validation = entry_of(PackValidationRequest)(_pack)


@entry_of(EncodeRequest)
def encode(plpy: Any, gd: dict[str, Any], request: EncodeRequest) -> None:
    """Write the features of the rows of a table."""
    with caller_session(plpy, writes=True) as session:
        encoding_rows.encode(session, request, plpy.notice)


@entry_of(EncoderRequest)
def create_encoder(plpy: Any, gd: dict[str, Any], request: EncoderRequest) -> None:
    """Make a function that gives the features of a row of a table."""
    with caller_session(plpy, writes=True) as session:
        encoding_rows.create_encoder(session, request, plpy.notice)


@entry_of(SplitRequest)
def train_test_split(plpy: Any, gd: dict[str, Any], request: SplitRequest) -> None:
    """Split the rows of a table at random."""
    with caller_session(plpy, writes=True) as session:
        split = splitting.split(session, request)
    plpy.notice(str(split))
