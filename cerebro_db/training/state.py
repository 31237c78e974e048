"""A configuration's whole state as bytes, and back as arrays."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from cerebro_db.errors import InvalidState
from cerebro_db.training.state_layout import DTYPES, Part, head, parts_of

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
