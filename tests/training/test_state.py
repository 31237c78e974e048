"""States survive the way through bytes; damaged ones are told apart before anything is allocated."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from cerebro_db.errors import InvalidState
from cerebro_db.training.state import from_bytes, to_bytes

STATE = {
    "weights/0/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/iteration": np.array(7, dtype=np.int64),
    "others/0/seed": np.array([1, 2], dtype=np.uint32),
    "empty": np.zeros((0, 4), np.float32),
}


def test_round_trip_keeps_names_shapes_dtypes_and_values() -> None:
    back = from_bytes(to_bytes(STATE))
    assert list(back) == list(STATE)
    for name, array in STATE.items():
        assert back[name].shape == array.shape
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_equal_states_give_equal_bytes_whatever_their_layout() -> None:
    turned = {"a": np.arange(6, dtype=np.float32).reshape(3, 2).T}
    straight = {"a": np.ascontiguousarray(turned["a"])}
    assert to_bytes(turned) == to_bytes(straight)


def test_the_header_is_json_with_a_version() -> None:
    data = to_bytes(STATE)
    magic, version, length = struct.unpack_from("<4sHI", data)
    assert (magic, version) == (b"CRBS", 1)
    header = json.loads(data[10 : 10 + length])
    assert header["arrays"][0] == {"name": "weights/0/kernel", "dtype": "float32", "shape": [2, 3]}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: b"", "no state"),
        (lambda d: b"PICKLE" + d[6:], "no state"),
        (lambda d: d[:4] + b"\x09\x00" + d[6:], "version 9"),
        (lambda d: d[:6] + b"\xff\xff\xff\xff" + d[10:], "header of"),
        (lambda d: d[:-1], "declares"),
        (lambda d: d + b"x", "declares"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "checksum"),
        (lambda d: d[:10] + b"[" + d[11:], "damaged header"),
        (lambda d: d.replace(b'"float32"', b'"object_"'), "damaged header"),
        (lambda d: d.replace(b"[2,3]", b"[-2,3]"[:5]), "declares|damaged"),
    ],
)
def test_damage_is_reported(damage: object, message: str) -> None:
    with pytest.raises(InvalidState, match=message):
        from_bytes(damage(to_bytes(STATE)))  # type: ignore[operator]


def test_a_huge_declared_shape_allocates_nothing() -> None:
    header = json.dumps(
        {"arrays": [{"name": "a", "dtype": "float32", "shape": [2**40, 2**20]}], "crc32": 0}
    ).encode()
    with pytest.raises(InvalidState, match="declares"):
        from_bytes(struct.pack("<4sHI", b"CRBS", 1, len(header)) + header)


def test_a_dtype_that_is_not_listed_is_refused() -> None:
    with pytest.raises(InvalidState, match="complex64"):
        to_bytes({"a": np.zeros(1, np.complex64)})
