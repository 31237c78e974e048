"""Damaged states and buffers are told as such, before memory is taken for what they declare."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from fuzz.harness import attempt, share
from hypothesis import given
from hypothesis import strategies as st

from cerebro_db.errors import InvalidData, InvalidState
from cerebro_db.training.buffers import (
    Losses,
    decode,
    decode_features,
    decode_targets,
    parse_arrays,
    parse_bytes,
    parse_labels,
    parse_rows,
)
from cerebro_db.training.partitions import Buffers, Partition
from cerebro_db.training.scores.targets import TargetFacts
from cerebro_db.training.state import from_bytes, to_bytes

STATE = {
    "weights/0/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/0/iteration": np.array(7, np.int64),
    "others/0/seed": np.array([1, 2], np.uint32),
}
DATA = to_bytes(STATE)
PAYLOAD = b"".join(array.tobytes() for array in STATE.values())
ARRAYS = [
    {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
    for name, array in STATE.items()
]

SIZES: list[Any] = [
    0, 1, 2, 3, 6, -1, -6, 2**31, 2**40, 2**62, 2**63, 2**64, 10**400, True, False, None, 1.0, 2.5, 1e308,
    "3", [], [3], {}, {"a": 1},
]  # fmt: skip
SHAPES: list[Any] = [
    None, 3, "23", "", {}, {"a": 1}, True, [2**40, 2**40], [2**63], [-2, -3], [-1, 6], [6], [3, 2], [2, 3, 1],
    [1] * 33, [1] * 70, [1] * 5000, [0] * 33, [0, 2**62, 2**62], [10**400], [[2, 3]], [2.0, 3.0], [True, 6],
    [None, 6], [6, 0], [2**32, 2**32, 0],
]  # fmt: skip
shapes = st.sampled_from(SHAPES) | st.lists(st.sampled_from(SIZES), max_size=5)
DTYPES: list[Any] = [
    "float32", "float64", "int64", "bool", "uint8", "object", "O", "V8", "S9", "U9", "M8", "f4", ">f4", "complex64",
    "float32,float32", "i4, (2,3)f8", None, 4, [], ["f4"], {"names": ["a"], "formats": ["O"]}, "", "\ud800", True,
]  # fmt: skip
NAMES: list[Any] = [
    "weights/0/kernel", "others/0/seed", "", "x", "\0", "\ud800", "x" * 10_000, None, 1, [], {}, True,
]  # fmt: skip
entries = st.fixed_dictionaries(
    {}, optional={"name": st.sampled_from(NAMES), "dtype": st.sampled_from(DTYPES), "shape": shapes}
)
headers = st.one_of(
    st.lists(st.sampled_from(ARRAYS) | entries, max_size=5).map(lambda a: {"arrays": a}),
    st.tuples(st.integers(0, 2), entries).map(lambda c: {"arrays": _replaced(*c)}),
    st.sampled_from(
        [{}, [], None, 1, "x", {"arrays": None}, {"arrays": {}}, {"arrays": "ab"}, {"arrays": [1]},
         {"arrays": [None]}, {"arrays": [[]]}, {"arrays": {"name": 1}}, {"arrays": ARRAYS * 2}]
    ),
)  # fmt: skip
checksums = st.sampled_from([zlib.crc32(PAYLOAD), 0, -1, None, True, 1.5, "x", [], 2**70])
RAW = [
    b"[" * 100_000, b'{"arrays":' * 5000, b"\xff\xfe", b'"\xed\xa0\x80"', b"NaN", b"1" * 5000, b"", b"{",
    b'{"arrays": [], "arrays": [], "crc32": 0}', b'{"arrays": [], "crc32": NaN}',
]  # fmt: skip


def _replaced(place: int, changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, **changes} if i == place else one for i, one in enumerate(ARRAYS)]


def state(header: bytes, payload: bytes = PAYLOAD) -> bytes:
    return struct.pack("<4sHI", b"CRBS", 1, len(header)) + header + payload


@share(0.04)
@given(headers, checksums, st.sampled_from([PAYLOAD, b"", PAYLOAD[:-1], PAYLOAD * 2]))
def test_headers_of_states(header: Any, checksum: Any, payload: bytes) -> None:
    if isinstance(header, dict) and header:
        header = {**header, "crc32": zlib.crc32(payload) if checksum == 0 else checksum}
    read = attempt("states", from_bytes, state(json.dumps(header).encode(), payload))
    assert read is None or sum(array.nbytes for array in read.values()) == len(payload)


@share(0.02)
@given(st.integers(0, len(DATA)), st.binary(max_size=9), st.integers(0, 9))
def test_bytes_of_states(start: int, inserted: bytes, removed: int) -> None:
    damaged = DATA[:start] + inserted + DATA[start + removed :]
    read = attempt("states", from_bytes, damaged)
    assert read is None or list(read) == list(STATE) or damaged != DATA


@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
def test_headers_that_are_no_json(raw: bytes) -> None:
    with pytest.raises(InvalidState, match=r"header|declares|no state"):
        from_bytes(state(raw))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "others/0/seed"}, "two arrays have one name"),
        ({"shape": [True, 6]}, r"shape \[True, 6\]"),
        ({"shape": [2.0, 3.0]}, r"shape \[2.0, 3.0\]"),
        ({"shape": {}}, "shape {}"),
        ({"shape": [1] * 33}, "shape"),
        ({"shape": [2**41]}, "shape"),
        ({"shape": [0, 2**40]}, "declares"),
        ({"dtype": "object"}, "dtype 'object'"),
        ({"dtype": ["f4"]}, "dtype"),
    ],
)
def test_what_is_reported(changes: dict[str, Any], message: str) -> None:
    header = {"arrays": _replaced(0, changes), "crc32": zlib.crc32(PAYLOAD)}
    with pytest.raises(InvalidState, match=message):
        from_bytes(state(json.dumps(header).encode()))


DECLARED = [[2**40, 2**40], [2**40] * 32, [10**400], [999_999_999] * 100_000]


@pytest.mark.parametrize("shape", DECLARED, ids=range(len(DECLARED)))
def test_nothing_is_allocated_for_what_is_declared(shape: list[int]) -> None:
    header = {"arrays": [{"name": "a", "dtype": "float64", "shape": shape}], "crc32": 0}
    data = state(json.dumps(header).encode())
    tracemalloc.start()
    try:
        with pytest.raises(InvalidState):
            from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(data) + 2**20
        with pytest.raises(InvalidData):
            decode(b"\0" * 24, shape[:70], np.float32)
    finally:
        tracemalloc.stop()


@share(0.03)
@given(
    st.binary(max_size=40) | st.none(), shapes.filter(lambda s: s is None or isinstance(s, list))
)
def test_buffers(data: bytes | None, shape: Any) -> None:
    for dtype in (np.float32, np.int32):
        read = attempt("buffers", decode, data, shape, dtype)
        assert read is None or read.nbytes == len(data or b"")


fed = st.tuples(*[st.integers(*ends) for ends in ((-1, 3), (0, 5), (0, 5), (1, 2))])


@share(0.02)
@given(st.lists(fed | st.sampled_from([(0, 3, 3, 2), (1, 2, 2, 2), (2, 4, 4, 2)]), max_size=9))
def test_no_row_of_a_partition_is_left_to_chance(pieces: list[tuple[int, int, int, int]]) -> None:
    buffers = Buffers((0, 1, 2), (3, 2, 4))
    partition = Partition.empty(buffers, np.ones((1, 2), np.float32), np.ones(1, np.int32))
    partition.features[:], partition.targets[:] = np.nan, -1
    for buffer_id, features, targets, width in pieces:
        arrays = np.ones((features, width), np.float32), np.ones(targets, np.int32)
        attempt("partitions", partition.put, buffer_id, *arrays)
    if not partition.missing:
        assert np.isfinite(partition.features).all()
        assert (partition.targets == 1).all()


several = st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**40, None, True, [2]]), max_size=6)


@share(0.02)
@given(st.none() | st.binary(max_size=60), st.none() | several | st.just([2, 1, 2, 2]))
def test_buffers_of_several(data: bytes | None, shape: Any) -> None:
    facts = TargetFacts("class", 2, (), True, (TargetFacts("float", 0, (2,)),))
    read = attempt("several inputs", decode_features, data, shape, ((1,), (2,)))
    assert read is None or read.shape == (shape[0], 3)
    attempt("several targets", decode_targets, data, shape, facts)


@share(0.02)
@given(st.binary(max_size=90), st.integers(0, 4))
def test_several_arrays_of_the_server(data: bytes, count: int) -> None:
    read = attempt(
        "several arrays", parse_rows, data, count, ((1,), (2,)), 1.0, [Losses("a"), Losses("b")]
    )
    assert read is None or read.shape == (count, 3)


@share(0.02)
@given(st.binary(max_size=60), st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3))
def test_rows_of_the_server(data: bytes, count: int, shape: list[int]) -> None:
    attempt("rows", parse_arrays, data, count, shape)
    attempt("rows", parse_labels, data, count)
    attempt("values", parse_bytes, data, count)
