"""Buffers of a packed table: bytes <-> arrays, and the server's binary arrays into float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerebro_db.configs.messages import shown
from cerebro_db.configs.rounding import Rounding
from cerebro_db.errors import PACK_AGAIN, InvalidData
from cerebro_db.training.scores.targets import TargetFacts

# The server's types of array elements, by their fixed oids, as they lie in binary form.
WIRE_DTYPES = {20: ">i8", 21: ">i2", 23: ">i4", 700: ">f4", 701: ">f8"}
_SMALLINT = 21
_HEADER_WORDS = 3
_DIMENSION_WORDS = 2
_WORD = 4
KEY_BYTES = 6
_MAX_DIMENSIONS = 32
_MAX_SIZE = 2**31


def wire_bytes(shape: Sequence[int], element_oid: int) -> int:
    """Bytes of one array of ``shape`` in the server's binary form."""
    element = _WORD + np.dtype(WIRE_DTYPES[element_oid]).itemsize
    return _header_bytes(len(shape)) + math.prod(shape) * element


def wire_size(data: bytes, shape: Sequence[int]) -> int:
    """Bytes of each array of ``shape`` in what array_send() wrote.

    Args:
        data: what it begins with, at least 12 bytes.
        shape: of every array.

    Raises:
        InvalidData: it begins in another way.
    """
    oid = int(np.frombuffer(data, ">i4", _HEADER_WORDS)[2]) if len(data) >= 12 else 0
    if oid not in WIRE_DTYPES:
        raise InvalidData("a row is NULL, or the shapes of the rows differ")
    return wire_bytes(shape, oid)


def to_wire(values: NDArray[np.uint8]) -> bytes:
    """Bytes that the server's array_send() writes for an array of smallint with these values."""
    header = [values.ndim, 0, _SMALLINT, *(word for size in values.shape for word in (size, 1))]
    element = np.dtype([("length", ">i4"), ("value", WIRE_DTYPES[_SMALLINT])])
    elements = np.empty(values.size, element)
    elements["length"] = element["value"].itemsize
    elements["value"] = values.reshape(-1)
    return np.asarray(header, ">i4").tobytes() + elements.tobytes()


def _header_bytes(dimensions: int) -> int:
    return _WORD * (_HEADER_WORDS + _DIMENSION_WORDS * dimensions)


def parse_bytes(data: bytes, count: int) -> list[bytes]:
    """The elements of an array of ``count`` bytea that the server's array_send() wrote.

    Raises:
        InvalidData: it is none.
    """
    found, start = list[bytes](), _header_bytes(1)
    while start < len(data):
        size = int.from_bytes(data[start : start + _WORD], "big", signed=True)
        start += _WORD
        if not 0 <= size <= len(data) - start:
            break
        found.append(data[start : start + size])
        start += size
    if len(found) != count or start != len(data):
        raise InvalidData(f"got something else than an array of {count} values")
    return found


def parse_arrays(data: bytes, count: int, shape: Sequence[int]) -> NDArray[np.generic]:
    """The elements of ``count`` arrays that the server's array_send() wrote one after another.

    Args:
        data: the concatenation.
        count: number of arrays.
        shape: of every array; lower bounds are of no matter.

    Returns:
        A view of ``data``, big-endian, shape ``(count, product of shape)``.

    Raises:
        InvalidData: an array is NULL, holds a NULL or has another shape.
    """
    header = np.frombuffer(data, ">i4", _HEADER_WORDS) if len(data) >= 12 else np.zeros(3, int)
    dtype = np.dtype(WIRE_DTYPES.get(int(header[2]), "V1"))
    start = _header_bytes(len(shape))
    size = start + math.prod(shape) * (_WORD + dtype.itemsize)
    if dtype.kind == "V" or len(data) != count * size:
        raise InvalidData("a row is NULL, or the shapes of the rows differ")
    heads = np.ndarray((count, start // _WORD), ">i4", data, 0, (size, _WORD))
    _check_heads(heads, shape, int(header[2]))
    elements = np.ndarray(
        (count, math.prod(shape)),
        np.dtype([("length", ">i4"), ("value", dtype)]),
        data,
        start,
        (size, _WORD + dtype.itemsize),
    )
    if not (elements["length"] == dtype.itemsize).all():
        raise InvalidData("a row holds a NULL")
    values: NDArray[np.generic] = elements["value"]
    return values


def _check_heads(heads: NDArray[np.generic], shape: Sequence[int], oid: int) -> None:
    # Word 1 only says that NULLs are possible; the elements' length words tell the truth.
    same = (heads[:, 0] == len(shape)).all() and (heads[:, 2] == oid).all()
    if not same or not (heads[:, 3::2] == np.asarray(shape)).all():
        raise InvalidData("the shapes of the rows differ")


class Losses:
    """Count of the values of one column that float32 does not hold.

    Args:
        column: its name, or what else stands for it in a report.
        is_whole: whether the column is of a type of whole numbers, though its values may come in another.

    Attributes:
        found: the report; None as long as nothing was lost.
    """

    def __init__(self, column: str, is_whole: bool = False) -> None:
        self._column, self._is_whole = column, is_whole
        self.found: Rounding | None = None

    def check(
        self, values: NDArray[np.generic], result: NDArray[np.float32], divisor: float
    ) -> None:
        """Compare values with what became of them.

        Whole numbers must stay distinct afterwards. Of other numbers those are reported whose relative
        error is larger than half a unit in the last place, and whole numbers that were changed.

        Raises:
            InvalidData: a column of whole numbers has one that float32 changes.
        """
        if self._is_whole or values.dtype.kind in "iu":
            self._check_whole(values, result, divisor)
        elif values.dtype.itemsize > result.dtype.itemsize or divisor != 1.0:
            self._report(values, result, divisor)

    def _check_whole(
        self, values: NDArray[np.generic], result: NDArray[np.float32], divisor: float
    ) -> None:
        size = np.abs(result)
        largest = float(size.max(initial=0.0)) * abs(divisor)
        if largest < (_WHOLE if divisor == 1.0 else _WHOLE / 4) and abs(divisor) <= 1 / _SMALLEST:
            return
        lost = _are_lost(values, result, divisor)
        if not lost.any():
            return
        value, got = int(values[lost][0]), float(result[lost][0])
        by = "" if divisor == 1.0 else f" divided by the normalizing constant {divisor!r}"
        raise InvalidData(
            f"column {self._column!r}: got the whole number {value}{by}, which float32 does not hold "
            f"(it would be {got!r}); allowed: whole numbers that stay apart as float32, as all up to "
            f"{int(_WHOLE)} do",
            hint="leave numbers that only name rows out; subtract what all values have in common in a "
            "view; or, where rounding is right, cast to double precision there",
        )

    def _report(
        self, values: NDArray[np.generic], result: NDArray[np.float32], divisor: float
    ) -> None:
        size = np.abs(result)
        candidates = (size < _SMALLEST) & (values != 0)
        # Of the values themselves, whatever they are divided by.
        low, high = 0.99 * _WHOLE / abs(divisor), 1.01 * _ALL_WHOLE / abs(divisor)
        if float(size.max(initial=0.0)) >= low:
            candidates |= (size >= low) & (size <= high)
        if not candidates.any():
            return
        places, given, got = np.argwhere(candidates), values[candidates], result[candidates]
        with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
            exact = np.divide(given, divisor, dtype=np.float64)
            error = np.abs(got.astype(np.float64) - exact) / np.abs(exact)
        error[exact == 0] = 1.0  # too small for double precision even
        is_whole = (np.rint(given) == given) & (np.abs(given) <= _ALL_WHOLE)
        changed = (error > _HALF_UNIT) | (is_whole & _are_lost(given, got, divisor))
        if not changed.any():
            return
        worst = int(np.argmax(np.where(changed, error, -1.0)))
        found = Rounding(
            self._column,
            int(np.count_nonzero(changed)),
            float(error[worst]),
            float(exact[worst]),
            int(places[worst][-1]),
        )
        self.found = found if self.found is None else self.found + found


# From here on float32 does not hold all whole numbers, and double precision neither from the other one.
_WHOLE, _ALL_WHOLE = 2.0**24, 2.0**53
# Smaller numbers have fewer digits.
_SMALLEST = float(np.finfo(np.float32).tiny)
_HALF_UNIT = 2.0**-24


def _are_lost(
    values: NDArray[np.generic], result: NDArray[np.float32], divisor: float
) -> NDArray[np.bool_]:
    """Whether whole numbers cannot be found again from what became of them."""
    is_integer = values.dtype.kind in "iu"
    numbers: NDArray[Any] = values.astype(np.int64 if is_integer else np.float64)
    if is_integer and divisor == 1.0:
        lowest = numbers & -numbers
        # What is left without the zeros at the end of its binary digits has to fit.
        return np.abs(numbers // np.where(lowest == 0, 1, lowest)) > int(_WHOLE)
    most = int(_ALL_WHOLE) if is_integer else _ALL_WHOLE  # compared as what was given
    again = np.rint(result.astype(np.float64) * divisor)
    return (again != numbers.astype(np.float64)) | (numbers > most) | (numbers < -most)


def to_float32(
    values: NDArray[np.generic], divisor: float = 1.0, losses: Losses | None = None
) -> NDArray[np.float32]:
    """Values divided by ``divisor`` (in double precision), rounded to float32, native order.

    Args:
        values: numbers of any type.
        divisor: the normalizing constant.
        losses: of their column; finds what float32 does not hold.

    Raises:
        InvalidData: a value is NaN, infinite, or beyond the range of float32; or ``losses`` refuses it.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if divisor == 1.0:
            result = values.astype(np.float32)
        else:
            result = np.divide(values, divisor, dtype=np.float64).astype(np.float32)
    if not np.isfinite(result).all():
        raise InvalidData("a row holds a value that is not finite as float32")
    if losses is not None:
        losses.check(values, result, divisor)
    return result


def parse_labels(data: bytes, count: int) -> NDArray[np.int32]:
    """Class ids that the server's int4send() wrote; negative ones are of unknown classes."""
    if len(data) != count * _WORD:
        raise InvalidData("a label is missing")
    labels = np.frombuffer(data, ">i4").astype(np.int32)
    if (labels < 0).any():
        raise InvalidData("a label is of no known class")
    return labels


def with_weights(targets: bytes, weights: bytes, rows: int) -> bytes:
    """The bytes of the targets of a buffer, each with its weight, float32, behind it.

    Raises:
        InvalidData: the sizes do not fit the number of rows, or a weight is negative.
    """
    if rows < 1 or len(weights) != rows * _WORD or len(targets) % rows:
        raise InvalidData(f"got {len(weights)} bytes of weights for {rows} rows")
    if (np.frombuffer(weights, "<f4") < 0).any():
        raise InvalidData("a weight is negative")
    parts = [np.frombuffer(part, np.uint8).reshape(rows, -1) for part in (targets, weights)]
    return np.concatenate(parts, axis=1).tobytes()


def row_order(keys: bytes, positions: bytes | None) -> NDArray[np.intp] | None:
    """Order of the rows that have arrived; None if the rows stay as they are.

    Args:
        keys: the row addresses in the order of arrival, ``KEY_BYTES`` each.
        positions: int32, for each row of the buffer its rank among the sorted addresses;
            None for the order of the addresses.
    """
    count = len(keys) // KEY_BYTES
    if len(keys) % KEY_BYTES or (positions is not None and len(positions) % _WORD):
        raise InvalidData("got addresses or positions that are cut off")
    wanted = None if positions is None else np.frombuffer(positions, "<i4")
    if wanted is not None and len(wanted) != count:
        raise InvalidData(f"got {count} rows where {len(wanted)} were expected")
    if wanted is not None and count and not 0 <= wanted.min() <= wanted.max() < count:
        raise InvalidData(f"got positions beyond {count} rows")
    address = np.frombuffer(keys, np.dtype([("block", ">u4"), ("offset", ">u2")]))
    number = (address["block"].astype(np.int64) << 16) | address["offset"]
    if (np.diff(number) > 0).all():
        return None if wanted is None else wanted.astype(np.intp)
    arrival = np.argsort(number, kind="stable")
    return arrival if wanted is None else arrival[wanted]


def encode(rows: NDArray[np.generic], order: NDArray[np.intp] | None = None) -> bytes:
    """The bytes of a buffer: C order, native (little-endian), rows in ``order``."""
    chosen = rows if order is None else rows[order]
    return chosen.astype(chosen.dtype.newbyteorder("<"), copy=False).tobytes()


def checked_shape(shape: Sequence[int] | None) -> Sequence[int]:
    """A shape that may be one of rows, or of a buffer.

    Raises:
        InvalidData: a size is NULL or below 1, or there are too many.
    """
    if shape is None or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise InvalidData(
            f"got a buffer of shape {shown(shape and tuple(shape))}; allowed: up to "
            f"{_MAX_DIMENSIONS} sizes, none of them NULL or below 1",
            PACK_AGAIN,
        )
    return shape


def decode(
    data: bytes | memoryview | None, shape: Sequence[int] | None, dtype: np.dtype | type
) -> NDArray[np.generic]:
    """A buffer as an array; nothing is copied, so it is read-only.

    Args:
        data: the bytes of a packed table's column.
        shape: from the column beside it; the first element is the number of rows.
        dtype: float32 or int32, or the record of a row with its weight.

    Raises:
        InvalidData: a NULL, or the number of bytes does not fit the shape.
    """
    little = np.dtype(dtype).newbyteorder("<")
    if data is None or shape is None:
        raise InvalidData("got a buffer that is NULL", PACK_AGAIN)
    shape = checked_shape(shape)
    if little.names:  # a record is the whole row
        shape = shape[:1]
    expected = math.prod(shape) * little.itemsize
    if len(data) != expected:
        raise InvalidData(
            f"got a buffer of {len(data)} bytes; shape {tuple(shape)} of {little.name} "
            f"takes {expected}",
            PACK_AGAIN,
        )
    return np.frombuffer(data, little).reshape(tuple(shape))


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 1 <= size < _MAX_SIZE


MAX_INPUTS = 100
Shapes = tuple[tuple[int, ...], ...]
_Block = tuple[tuple[int, ...], np.dtype[Any]]


def width(inputs: Shapes) -> int:
    """Count of the numbers of a row of all inputs together."""
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


def parse_rows(
    data: bytes,
    count: int,
    inputs: Shapes,
    divisor: float,
    losses: Sequence[Losses],
) -> np.ndarray:
    """The features of rows that the server's array_send() wrote: of each input all rows.

    Args:
        data: the arrays.
        count: number of rows.
        inputs: the shapes of one row.
        divisor: the normalizing constant.
        losses: of each input.

    Raises:
        InvalidData: an array is NULL, holds a NULL or has another shape, or a number that ``losses`` refuses.
    """
    if len(inputs) == 1:
        found = to_float32(parse_arrays(data, count, inputs[0]), divisor, losses[0])
        return found.reshape(count, *inputs[0])
    blocks, start = [], 0
    for place, shape in enumerate(inputs, 1):
        size = count * wire_size(data[start : start + 12], shape)
        part = data[start:] if place == len(inputs) else data[start : start + size]
        parsed = parse_arrays(part, count, shape)
        blocks.append(to_float32(parsed, divisor, losses[place - 1]))
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
    recorded = [one for row in shapes or [row for row, _ in wanted] for one in (rows, *row)]
    if not all(map(_is_size, shape)) or list(shape) != recorded:
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
