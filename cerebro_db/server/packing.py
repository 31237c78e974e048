"""Entries of the functions that pack, encode and split tables; their arguments are those of the SQL functions."""

from __future__ import annotations

import re
from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.packing import encoding_rows, splitting
from cerebro_db.packing import pack as packing
from cerebro_db.packing.encoding_plan import DEFAULT_COVERAGE, EncodingRequest
from cerebro_db.packing.request import ImageRequest, PackRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.declarations import Scheduled
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host

_NUMBER = re.compile(r"-?[0-9]{1,9}|NULL", re.IGNORECASE | re.ASCII)
_MOST_TEXT = 2000
_SPLIT = Scheduled("output_table", ("", "_train", "_test"), reads=("source_table",))


def _packing(steps: str) -> Scheduled:
    return Scheduled("output_table", reads=("source_table", "encoding_of"), steps=steps)


@entry_of("cerebro_pack", _packing("pack"))
def pack(
    plpy: Any,
    gd: dict[str, Any],
    *,
    normalizing_const: float | None,
    num_classes: int | list[int | None] | str | None,
    **given: Any,
) -> None:
    """Pack a table for training."""
    divisor = 1.0 if normalizing_const is None else normalizing_const
    classes = _listed(num_classes) if isinstance(num_classes, str) else num_classes
    _pack(plpy, gd, normalizing_const=divisor, num_classes=classes, **given)


@entry_of("cerebro_pack_columns", _packing("pack_columns"))
def pack_columns(
    plpy: Any,
    gd: dict[str, Any],
    *,
    numbers: str | None,
    categories: str | None,
    max_categories: int | None,
    encodings: str | None,
    excluded: str | None,
    min_coverage: float | None = DEFAULT_COVERAGE,
    **given: Any,
) -> None:
    """Pack columns of mixed types for training."""
    encoding = EncodingRequest(
        numbers, categories, max_categories, encodings, excluded, min_coverage
    )
    _pack(plpy, gd, encoding=encoding, **given)


@entry_of("cerebro_pack_images", _packing("pack_images"))
def pack_images(
    plpy: Any,
    gd: dict[str, Any],
    *,
    image_shape: list[int | None] | None,
    image_format: str | None,
    **given: Any,
) -> None:
    """Pack images for training."""
    _pack(plpy, gd, image=ImageRequest(image_shape, image_format), **given)


@entry_of(
    "cerebro_pack_validation",
    Scheduled("output_table", reads=("source_table", "training_table"), steps="pack_validation"),
)
def pack_validation(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Pack a table the way a training table was packed."""
    _pack(plpy, gd, is_validation=True, **given)


def _pack(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    host = Host.apart(plpy, gd)
    packing.pack(host, PackRequest(**given))


def _listed(text: str) -> list[int | None]:
    """The text of an array of numbers, such as ``{3,NULL}``."""
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    words = [word.strip() for word in body.split(",")]
    if len(text) > _MOST_TEXT or not all(_NUMBER.fullmatch(word) for word in words):
        raise InvalidArgument(
            f"num_classes: got {shown(text)}; allowed: NULL, a number, or numbers and NULLs such as "
            "{3,NULL}"
        )
    return [None if word.upper() == "NULL" else int(word) for word in words]


@entry_of("cerebro_encode", Scheduled("output_table", reads=("source_table", "training_table")))
def encode(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Write the features of the rows of a table."""
    with caller_session(plpy, writes=True) as session:
        encoding_rows.encode(session, encoding_rows.EncodeRequest(**given), plpy.notice)


@entry_of("cerebro_create_encoder", Scheduled(reads=("source_table", "training_table")))
def create_encoder(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Make a function that gives the features of a row of a table."""
    with caller_session(plpy, writes=True) as session:
        encoding_rows.create_encoder(session, encoding_rows.EncoderRequest(**given), plpy.notice)


@entry_of("cerebro_train_test_split", _SPLIT)
def train_test_split(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Split the rows of a table at random."""
    with caller_session(plpy, writes=True) as session:
        split = splitting.split(session, splitting.SplitRequest(**given))
    plpy.notice(str(split))
