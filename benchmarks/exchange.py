"""Rows between NumPy and a table (x real[], y integer) in the server's binary COPY format."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_REAL_OID = 700


def write(
    cursor: Any, table: str, features: NDArray[np.float32], labels: NDArray[np.int32]
) -> None:
    """Fill a table that is there."""
    shape = features.shape[1:]
    rows = np.zeros(len(features), _record(shape))
    dimensions = [word for size in shape for word in (size, 1)]
    rows["fields"] = 2
    rows["x_bytes"] = 4 * (3 + 2 * len(shape)) + 8 * math.prod(shape)
    rows["head"] = [len(shape), 0, _REAL_OID, *dimensions]
    rows["x"]["bytes"] = 4
    rows["x"]["value"] = features.reshape(len(features), -1)
    rows["y_bytes"] = 4
    rows["y"] = labels
    file = io.BytesIO(_HEADER + rows.tobytes() + _TRAILER)
    cursor.copy_expert(f"COPY {table} (x, y) FROM STDIN (FORMAT binary)", file)


def read(
    cursor: Any, table: str, shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """All rows of a table; there are no NULLs, so that every row takes as many bytes."""
    file = io.BytesIO()
    cursor.copy_expert(f"COPY (SELECT x, y FROM {table}) TO STDOUT (FORMAT binary)", file)
    data = file.getbuffer()[len(_HEADER) : -len(_TRAILER)]
    rows = np.frombuffer(data, _record(shape))
    features = rows["x"]["value"].astype(np.float32).reshape(-1, *shape)
    return features, rows["y"].astype(np.int32)


def _record(shape: tuple[int, ...]) -> np.dtype[Any]:
    element = np.dtype([("bytes", ">i4"), ("value", ">f4")])
    return np.dtype(
        [
            ("fields", ">i2"),
            ("x_bytes", ">i4"),
            ("head", ">i4", (3 + 2 * len(shape),)),
            ("x", element, (math.prod(shape),)),
            ("y_bytes", ">i4"),
            ("y", ">i4"),
        ]
    )
