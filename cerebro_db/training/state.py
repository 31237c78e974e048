"""A configuration's whole state as bytes: a JSON header and raw arrays, no pickle.

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
from typing import Any

import numpy as np

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidState

# What the names of arrays begin with. An average has the rest of its name from its weight.
WEIGHTS, OPTIMIZER, AVERAGES = "weights/", "optimizer/", "averages/"
MAGIC = b"CRBS"
VERSION = 1
_PREFIX = struct.Struct("<4sHI")
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_MAX_DIMENSIONS = 32
_MAX_SIZE = 2**40
_DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64", "bool", "uint8")

State = dict[str, np.ndarray]


def of_model(state: Mapping[str, np.ndarray]) -> State:
    """The model as it predicts: nothing of the optimizer, averages in the place of their weights."""
    model = {n: array for n, array in state.items() if not n.startswith((OPTIMIZER, AVERAGES))}
    averages = {
        WEIGHTS + name.removeprefix(AVERAGES): array
        for name, array in state.items()
        if name.startswith(AVERAGES)
    }
    return model | averages


def to_bytes(state: Mapping[str, np.ndarray]) -> bytes:
    """Arrays by name as bytes; equal states give equal bytes."""
    arrays = {name: np.asarray(array, order="C") for name, array in state.items()}
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES:
            raise InvalidState(
                f"got the dtype {array.dtype} for {name!r}; allowed: {', '.join(_DTYPES)}"
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
    header = json.dumps({"arrays": described, "crc32": checksum}, separators=(",", ":")).encode()
    return b"".join([_PREFIX.pack(MAGIC, VERSION, len(header)), header, *payload])


def from_bytes(data: bytes) -> State:
    """The arrays of a state, as read-only views of ``data``.

    Raises:
        InvalidState: not a state, another version, wrong sizes, wrong checksum.
    """
    described, start, checksum = _header(data)
    sizes = [_declared_bytes(entry) for entry in described]
    if start + sum(sizes) != len(data):
        raise InvalidState(
            f"got a state of {len(data)} bytes whose header declares {start + sum(sizes)}"
        )
    if zlib.crc32(memoryview(data)[start:]) != checksum:
        raise InvalidState("got a state whose checksum does not match its bytes")
    state: State = {}
    for entry, size in zip(described, sizes, strict=True):
        view = np.frombuffer(data, np.dtype(entry["dtype"]), offset=start, count=_count(entry))
        state[entry["name"]] = view.reshape(entry["shape"])
        start += size
    return state


def _header(data: bytes) -> tuple[list[dict[str, Any]], int, int]:
    if len(data) < _PREFIX.size or data[:4] != MAGIC:
        raise InvalidState(f"got {len(data)} bytes that are no state of Cerebro-DB")
    _, version, length = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise InvalidState(f"got a state of format version {version}; allowed: {VERSION}")
    start = _PREFIX.size + length
    if length > _MAX_HEADER_BYTES or start > len(data):
        raise InvalidState(f"got a state whose header of {length} bytes does not fit {len(data)}")
    try:
        header = json.loads(data[_PREFIX.size : start])
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
    if not isinstance(entry["name"], str) or entry["dtype"] not in _DTYPES:
        raise ValueError(f"array {shown(entry['name'])} of dtype {shown(entry['dtype'])}")
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS or not all(map(_is_size, shape)):
        raise ValueError(f"array {shown(entry['name'])} of shape {shown(shape)}")


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _MAX_SIZE


def _count(entry: dict[str, Any]) -> int:
    return math.prod(entry["shape"])


def _declared_bytes(entry: dict[str, Any]) -> int:
    return _count(entry) * np.dtype(entry["dtype"]).itemsize
