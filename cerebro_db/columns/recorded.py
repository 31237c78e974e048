"""Recorded encodings: JSON in the summary of a packed table, with models, and in the registry."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cerebro_db.columns import categories, numbers  # noqa: F401  # they register their kinds
from cerebro_db.columns.encoded import MAX_FEATURES, METHODS, EncodedColumn, Encoding, is_text
from cerebro_db.columns.images import ImageEncoding, image_encoding
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

Recorded = Encoding | ImageEncoding
_VERSION = 1


def recorded_text(encoding: Recorded) -> str:
    """The JSON of an encoding, which ``parse_recorded`` reads."""
    if isinstance(encoding, ImageEncoding):
        return json.dumps({"version": _VERSION, "image": encoding.to_fields()})
    fields = [column.to_fields() for column in encoding.columns]
    more = {"session": dict(encoding.styles)} if encoding.styles else {}
    return json.dumps({"version": _VERSION, "columns": fields, **more})


def parse_recorded(text: str, what: str) -> Recorded:
    """The encoding that a text describes, written by this or an earlier version.

    Args:
        text: JSON.
        what: names it in messages.

    Raises:
        InvalidArgument: it was not made by ``recorded_text``.
    """
    try:
        value = msgspec.json.decode(text)
        if value["version"] != _VERSION:
            raise ValueError(value["version"])
        return _image(value["image"]) if "image" in value else _columns(value)
    except _NOT_OURS:
        raise InvalidArgument(
            f"{what}: got the encoding {shown(text)}; allowed: what packing has written"
        ) from None


_NOT_OURS = (
    msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
    InvalidArgument,
)  # fmt: skip


def _image(fields: Any) -> ImageEncoding:
    found = image_encoding(fields["name"], fields["format"], fields["shape"])
    if not found.name or not is_text(found.name):
        raise ValueError(found.name)
    return found


def _columns(value: Any) -> Encoding:
    columns = tuple(map(_column, value["columns"]))
    found = Encoding(columns, msgspec.convert(value.get("session", {}), dict[str, str]))
    texts = [text for pair in found.styles.items() for text in pair]
    if not 1 <= found.width <= MAX_FEATURES or len(set(found.names)) != len(columns):
        raise ValueError(found.width)
    if not all(map(is_text, texts)) or not all(column.is_fitted for column in columns):
        raise ValueError(value)
    return found


def _column(fields: Any) -> EncodedColumn:
    return msgspec.convert(fields, METHODS[fields["method"]])
