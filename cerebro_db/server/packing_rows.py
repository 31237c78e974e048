"""What the worker's helper functions call: the rows of one buffer into its bytes."""

from __future__ import annotations

from typing import Any

from cerebro_db.server.entry import entry
from cerebro_db.training import buffers


@entry
def arrays(
    plpy: Any,
    rows: bytes,
    keys: bytes,
    positions: bytes | None,
    shape: list[int],
    divisor: float,
) -> bytes:
    """Arrays as float32; see the comment of ``cerebro._pack_arrays``."""
    order = buffers.row_order(keys, positions)
    parsed = buffers.parse_arrays(rows, len(keys) // buffers.KEY_BYTES, shape)
    return buffers.encode(buffers.to_float32(parsed, divisor), order)


@entry
def labels(plpy: Any, ids: bytes, keys: bytes, positions: bytes | None) -> bytes:
    """Class ids as int32; see the comment of ``cerebro._pack_labels``."""
    order = buffers.row_order(keys, positions)
    return buffers.encode(buffers.parse_labels(ids, len(keys) // buffers.KEY_BYTES), order)
