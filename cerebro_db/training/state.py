"""A configuration's whole state as bytes, and back as arrays: a JSON header and raw arrays, no pickle.

Layout, little-endian::

    4 bytes   magic  b"CRBS"
    uint16    version of the format
    uint32    length of the header
    header    JSON: {"arrays": [{"name", "dtype", "shape"}, ...], "crc32": n}
    payload   the arrays one after another, C order
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidState

T = TypeVar("T")
# What the names of arrays begin with. An average has the rest of its name from its weight.
WEIGHTS, OPTIMIZER, AVERAGES = "weights/", "optimizer/", "averages/"
LEARNING_RATE = f"{OPTIMIZER}learning_rate"
# Bytes of a number.
DTYPES = {
    "float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint32": 4, "uint64": 8,
    "bool": 1, "uint8": 1,
}  # fmt: skip
_MAGIC = b"CRBS"
_VERSION = 1
_PREFIX = struct.Struct("<4sHI")
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_MAX_DIMENSIONS = 32
_MAX_SIZE = 2**40


class Part(NamedTuple):
    """Place of an array of a state in its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Count of its numbers."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """The place after its last byte."""
        return self.start + self.size * DTYPES[self.dtype]


def of_model(state: Mapping[str, T]) -> dict[str, T]:
    """The model as it predicts: nothing of the optimizer, averages in the place of their weights."""
    model = {n: array for n, array in state.items() if not n.startswith((OPTIMIZER, AVERAGES))}
    averages = {
        WEIGHTS + name.removeprefix(AVERAGES): array
        for name, array in state.items()
        if name.startswith(AVERAGES)
    }
    return model | averages


def head(described: list[dict[str, Any]], checksum: int) -> bytes:
    """Bytes that come before the payload.

    Args:
        described: name, dtype and shape of each array.
        checksum: CRC-32 of the payload.
    """
    header = json.dumps({"arrays": described, "crc32": checksum}, separators=(",", ":")).encode()
    return _PREFIX.pack(_MAGIC, _VERSION, len(header)) + header


def parts_of(data: bytes) -> list[Part]:
    """The arrays of a state, in their order.

    Raises:
        InvalidState: not a state, another version, wrong sizes, wrong checksum.
    """
    described, first, checksum = _header(data)
    parts, start = [], first
    for entry in described:
        part = Part(entry["name"], entry["dtype"], tuple(entry["shape"]), start)
        parts.append(part)
        start = part.end
    if start != len(data):
        raise InvalidState(f"got a state of {len(data)} bytes whose header declares {start}")
    if zlib.crc32(memoryview(data)[first:]) != checksum:
        raise InvalidState("got a state whose checksum does not match its bytes")
    return parts


def _header(data: bytes) -> tuple[list[dict[str, Any]], int, int]:
    if len(data) < _PREFIX.size or data[:4] != _MAGIC:
        raise InvalidState(f"got {len(data)} bytes that are no state of Cerebro-DB")
    _, version, length = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise InvalidState(f"got a state of format version {version}; allowed: {_VERSION}")
    start = _PREFIX.size + length
    if length > _MAX_HEADER_BYTES or start > len(data):
        raise InvalidState(f"got a state whose header of {length} bytes does not fit {len(data)}")
    try:
        header = json.loads(str(data[_PREFIX.size : start], "utf-8"))
        described, checksum = header["arrays"], header["crc32"]
        _check_entries(described)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidState(f"got a state with a damaged header: {error}") from None
    return described, start, checksum


def _check_entries(described: Any) -> None:
    if not isinstance(described, list):
        raise ValueError("the arrays are no list")
    for entry in described:
        _check_entry(entry)
    if len({entry["name"] for entry in described}) < len(described):
        raise ValueError("two arrays have one name")


def _check_entry(entry: dict[str, Any]) -> None:
    # A tuple: what was handed in may be of a type that a dictionary cannot look up.
    if not isinstance(entry["name"], str) or entry["dtype"] not in tuple(DTYPES):
        raise ValueError(f"array {shown(entry['name'])} of dtype {shown(entry['dtype'])}")
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise ValueError(f"array {shown(entry['name'])} of shape {shown(shape)}")


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _MAX_SIZE


State = dict[str, np.ndarray]


def to_bytes(state: Mapping[str, np.ndarray]) -> bytes:
    """Arrays by name as bytes; equal states give equal bytes."""
    arrays = {name: np.asarray(array, order="C") for name, array in state.items()}
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES:
            raise InvalidState(
                f"got the dtype {array.dtype} for {name!r}; allowed: {', '.join(DTYPES)}"
            )
    payload = [
        array.reshape(-1).view(np.uint8).data if array.size else b"" for array in arrays.values()
    ]
    checksum = 0
    for part in payload:
        checksum = zlib.crc32(part, checksum)
    described = [
        {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        for name, array in arrays.items()
    ]
    return b"".join([head(described, checksum), *payload])


def from_bytes(data: bytes) -> State:
    """The arrays of a state, as read-only views of ``data``.

    Raises:
        InvalidState: not a state, another version, wrong sizes, wrong checksum.
    """
    return {part.name: array_of(data, part) for part in parts_of(data)}


def array_of(data: bytes, part: Part) -> np.ndarray:
    """One array of a state, as a read-only view of ``data``."""
    numbers = np.frombuffer(data, np.dtype(part.dtype), offset=part.start, count=part.size)
    return numbers.reshape(part.shape)


def check_fits(state: State, expected: State) -> None:
    """Refuse a state whose names, shapes or dtypes are not those expected."""
    if state.keys() != expected.keys():
        missing = sorted(expected.keys() ^ state.keys())
        raise InvalidState(f"got a state of another model: it differs in {missing[:5]}")
    for name, array in state.items():
        want = expected[name]
        if array.shape != want.shape or array.dtype != want.dtype:
            raise InvalidState(
                f"got {array.dtype}{array.shape} for {name!r} of a state; "
                f"allowed: {want.dtype}{want.shape}"
            )
