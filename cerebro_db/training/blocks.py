"""Several inputs or targets of a buffer, which come one block after another, as one array of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_db.configs.messages import shown
from cerebro_db.errors import PACK_AGAIN, InvalidData
from cerebro_db.training.buffers import decode, parse_arrays, to_float32, wire_size
from cerebro_db.training.targets import TargetFacts

MAX_INPUTS = 100

Shapes = tuple[tuple[int, ...], ...]
_Block = tuple[tuple[int, ...], np.dtype[Any]]


def width(inputs: Shapes) -> int:
    """How many numbers of a row all inputs have together."""
    return sum(map(math.prod, inputs))


def decode_features(data: bytes | None, shape: Sequence[int] | None, inputs: Shapes) -> np.ndarray:
    """The features of a buffer.

    Args:
        data: of each input the rows one after another, float32, C order.
        shape: the shapes of the inputs' arrays one after another, each with the number of rows first.
        inputs: the shapes of one row; none where there is one input of whatever shape it is.

    Returns:
        ``float32[rows, ...]``, or of several inputs ``float32[rows, numbers]``: theirs side by side.

    Raises:
        InvalidData: bytes or shapes are others than those.
    """
    if len(inputs) < 2:
        return decode(data, shape, np.float32)
    blocks = _blocks(data, shape, [(row, np.dtype(np.float32)) for row in inputs])
    return side_by_side(blocks)


def decode_targets(
    data: bytes | None, shape: Sequence[int] | None, facts: TargetFacts
) -> np.ndarray:
    """The targets of a buffer, as ``facts.record``; as of features, one target after another.

    The first target has the weights of the rows behind it, if there are any.
    """
    if not facts.more:
        return decode(data, shape, facts.record)
    alone = replace(facts, more=())
    first: _Block = ((), alone.record) if facts.weighted else (facts.shape, facts.dtype)
    wanted = [first, *((one.shape, one.dtype) for one in facts.more)]
    shapes = [one.shape for one in facts.each]
    blocks = _blocks(data, shape, wanted, shapes)
    record = facts.record
    rows = np.empty(len(blocks[0]), record)
    if facts.weighted:
        rows["target"], rows["weight"] = blocks[0]["target"], blocks[0]["weight"]
    else:
        rows["target"] = blocks[0]
    for place, block in enumerate(blocks[1:], 1):
        rows[f"target_{place}"] = block
    return rows


def side_by_side(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Inputs of the same rows as one array, ``float32[rows, numbers]``."""
    return np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1)


def parse_rows(data: bytes, count: int, inputs: Shapes, divisor: float) -> np.ndarray:
    """The features of rows that the server's array_send() wrote: of each input all rows.

    Raises:
        InvalidData: an array is NULL, holds a NULL or has another shape.
    """
    if len(inputs) == 1:
        found = to_float32(parse_arrays(data, count, inputs[0]), divisor)
        return found.reshape(count, *inputs[0])
    blocks, start = [], 0
    for place, shape in enumerate(inputs, 1):
        size = count * wire_size(data[start : start + 12], shape)
        part = data[start:] if place == len(inputs) else data[start : start + size]
        blocks.append(to_float32(parse_arrays(part, count, shape), divisor))
        start += size
    return side_by_side(blocks)


def _blocks(
    data: bytes | None,
    shape: Sequence[int] | None,
    wanted: Sequence[_Block],
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> list[np.ndarray]:
    """The blocks of a buffer, each ``[rows, ...]``.

    Args:
        data: the blocks one after another.
        shape: their shapes one after another.
        wanted: shape and dtype of a row of each.
        shapes: of rows as ``shape`` tells them, where they are others.
    """
    if data is None or not shape:
        raise InvalidData("got a buffer that is NULL", PACK_AGAIN)
    rows = shape[0]
    told = [one for row in shapes or [row for row, _ in wanted] for one in (rows, *row)]
    if not isinstance(rows, int) or rows < 0 or list(shape) != told:
        raise InvalidData(
            f"got a buffer of the shapes {shown(tuple(shape))}; allowed: those of "
            f"{len(wanted)} arrays of as many rows each, one after another",
            PACK_AGAIN,
        )
    sizes = [rows * math.prod(row) * dtype.itemsize for row, dtype in wanted]
    if len(data) != sum(sizes):
        raise InvalidData(
            f"got a buffer of {len(data)} bytes; its shapes take {sum(sizes)}", PACK_AGAIN
        )
    blocks, start = [], 0
    for (row, dtype), size in zip(wanted, sizes, strict=True):
        part = memoryview(data)[start : start + size]
        blocks.append(np.frombuffer(part, dtype.newbyteorder("<")).reshape(rows, *row))
        start += size
    return blocks
