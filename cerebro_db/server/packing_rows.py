"""Entries of the worker's helper functions: the rows of one buffer into its bytes."""

from __future__ import annotations

from typing import Any

from cerebro_db.server.entry import entry
from cerebro_db.training import buffers


@entry
def arrays(
    plpy: Any,
    gd: dict[str, Any],
    rows: bytes | None,
    keys: bytes | None,
    positions: bytes | None,
    shape: list[int] | None,
    divisor: float | None,
) -> bytes:
    """Arrays as float32; see the comment of ``cerebro._pack_arrays``."""
    order = buffers.row_order(keys or b"", positions)
    count = len(keys or b"") // buffers.KEY_BYTES
    parsed = buffers.parse_arrays(rows or b"", count, buffers.checked_shape(shape))
    return buffers.encode(buffers.to_float32(parsed, 1.0 if divisor is None else divisor), order)


@entry
def labels(
    plpy: Any,
    gd: dict[str, Any],
    ids: bytes | None,
    keys: bytes | None,
    positions: bytes | None,
) -> bytes:
    """Class ids as int32; see the comment of ``cerebro._pack_labels``."""
    order = buffers.row_order(keys or b"", positions)
    count = len(keys or b"") // buffers.KEY_BYTES
    return buffers.encode(buffers.parse_labels(ids or b"", count), order)


@entry
def weights(
    plpy: Any,
    gd: dict[str, Any],
    targets: bytes | None,
    weights: bytes | None,
    rows: int | None,
) -> bytes:
    """Targets with their weights; see the comment of ``cerebro._pack_weights``."""
    return buffers.with_weights(targets or b"", weights or b"", rows or 0)
