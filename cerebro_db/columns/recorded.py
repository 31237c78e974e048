"""Recorded encodings: JSON in the summary of a packed table, with models, and in the registry."""

from __future__ import annotations

import json

import msgspec

from cerebro_db.columns import (  # noqa: F401  # they register their kinds
    auto,
    categories,
    crosses,
    ids,
    images,
    numbers,
    quantiles,
    times,
)
from cerebro_db.columns.encoded import RECORDED, Recorded
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_VERSION = 1


def recorded_text(encoding: Recorded) -> str:
    """The JSON of an encoding, which ``parse_recorded`` reads."""
    return json.dumps({"version": _VERSION, **encoding.to_json()})


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
        (kind,) = [one for one in RECORDED if one.key in value]
        return kind.from_json(value)
    except _NOT_OURS:
        raise InvalidArgument(
            f"{what}: got the encoding {shown(text)}; allowed: what packing has written"
        ) from None


_NOT_OURS = (
    msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
    InvalidArgument,
)  # fmt: skip
