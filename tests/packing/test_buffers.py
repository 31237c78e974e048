"""Buffers and the layout, without a database."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_db.errors import InvalidData
from cerebro_db.packing.layout import lay_out, parse_addresses, shuffled
from cerebro_db.training import buffers


def wire(rows: np.ndarray, oid: int = 700) -> bytes:
    """What the server's array_send() writes for one-dimensional rows."""
    element = np.dtype([("length", ">i4"), ("value", buffers.WIRE_DTYPES[oid])])
    record = np.zeros(len(rows), [("head", ">i4", 5), ("elements", element, rows.shape[1])])
    record["head"] = [1, 0, oid, rows.shape[1], 1]
    record["elements"]["length"] = element["value"].itemsize
    record["elements"]["value"] = rows
    return record.tobytes()


def test_arrays_are_parsed():
    rows = np.arange(12.0).reshape(3, 4)
    for oid in buffers.WIRE_DTYPES:
        assert np.array_equal(buffers.parse_arrays(wire(rows, oid), 3, (4,)), rows)


@pytest.mark.parametrize("damage", [b"", b"\0" * 7, b"\xff" * 500])
def test_damaged_arrays_are_refused(damage):
    with pytest.raises(InvalidData):
        buffers.parse_arrays(damage, 3, (4,))


def test_rows_of_other_lengths_are_refused_also_when_the_sum_fits():
    data = wire(np.ones((1, 3))) + wire(np.ones((1, 5)))
    assert len(data) == len(wire(np.ones((2, 4))))
    with pytest.raises(InvalidData):
        buffers.parse_arrays(data, 2, (4,))


def test_values_of_any_length_are_distinguished():
    parts = [b"one", b"", b"three"]
    head = np.array([1, 0, 17, len(parts), 1], ">i4").tobytes()
    data = head + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    assert buffers.parse_bytes(data, 3) == parts
    for damage, count in ((data, 2), (data[:-1], 3), (data + b"\0", 3), (b"", 1)):
        with pytest.raises(InvalidData):
            buffers.parse_bytes(damage, count)


def test_bytes_and_arrays():
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    data = buffers.encode(rows, np.array([2, 0, 1]))
    assert np.array_equal(buffers.decode(data, [3, 2], np.float32), rows[[2, 0, 1]])
    for shape in ([2, 2], [-3, -2], [3, 2, 2]):
        with pytest.raises(InvalidData):
            buffers.decode(data, shape, np.float32)


@pytest.mark.parametrize("order", ["arrival", "reverse"])
def test_rows_find_their_place_in_whatever_order_they_arrive(order):
    numbers = np.array([7, 70000, 131075], np.int64)
    keys = [int(n >> 16).to_bytes(4, "big") + int(n & 0xFFFF).to_bytes(2, "big") for n in numbers]
    rows = np.arange(3)
    if order == "reverse":
        keys, rows = keys[::-1], rows[::-1]
    positions = np.array([2, 0, 1], "<i4").tobytes()
    chosen = buffers.row_order(b"".join(keys), positions)
    assert rows[chosen].tolist() == [2, 0, 1]
    assert np.array_equal(parse_addresses([b"".join(keys)]), numbers)


@pytest.mark.parametrize(("rows", "partitions", "size"), [(10, 3, 2), (7, 7, 100), (1000, 1, 33)])
def test_layouts_are_even_and_complete(rows, partitions, size):
    layout = lay_out(np.arange(rows) * 5, partitions, size, seed=3)
    counts = layout.rows_per_partition()
    assert len(counts) == partitions
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == rows
    assert layout.buffer_size <= size
    assert [slot.start for slot in layout.slots[1:]] == [slot.stop for slot in layout.slots[:-1]]


def test_the_shuffle_never_changes():
    assert shuffled(8, 0).tolist() == shuffled(8, 0).tolist()
    assert sorted(shuffled(100, 5)) == list(range(100))
