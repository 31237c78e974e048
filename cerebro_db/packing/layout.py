"""Places of rows in buffers and partitions: numbers only, no sessions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerebro_db.columns.inputs import Block, Input
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training.buffers import wire_bytes

_ADDRESS = np.dtype([("block", ">u4"), ("offset", ">u2")])
DEFAULT_BUFFER_BYTES = 8 * 2**20
DEFAULT_BUFFER_ROWS = 131_072


@dataclass(frozen=True)
class Slot:
    """A buffer to be filled with the rows ``start`` to ``stop`` of the order."""

    partition_key: int
    buffer_id: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Number of rows that it takes."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """All buffers, and the addresses of the rows that they take, in order.

    Attributes:
        fold_numbers: of the rows, in the order of their addresses; None where they have none.
    """

    slots: tuple[Slot, ...]
    addresses: NDArray[np.int64]
    order: NDArray[np.intp] | None
    fold_numbers: NDArray[np.int64] | None = None

    @property
    def buffer_size(self) -> int:
        """Rows of the largest buffer."""
        return max(slot.rows for slot in self.slots)

    def rows_per_partition(self) -> list[int]:
        """Number of rows of each partition."""
        counts = [0] * (self.slots[-1].partition_key + 1)
        for slot in self.slots:
            counts[slot.partition_key] += slot.rows
        return counts

    def buffers_per_partition(self) -> list[int]:
        """Number of buffers of each partition."""
        counts = [0] * (self.slots[-1].partition_key + 1)
        for slot in self.slots:
            counts[slot.partition_key] += 1
        return counts

    def tids(self, slot: Slot) -> str:
        """The addresses of a buffer's rows as text of the server's type ``tid[]``, sorted."""
        return tid_array(self.addresses[np.sort(self._chosen(slot))])

    def positions(self, slot: Slot) -> bytes | None:
        """For each row of the buffer its rank among the sorted addresses; None if it is its own."""
        if self.order is None:
            return None
        ranks = np.empty(slot.rows, "<i4")
        ranks[np.argsort(self._chosen(slot))] = np.arange(slot.rows)
        return ranks.tobytes()

    def numbers(self, slot: Slot) -> tuple[bytes, ...]:
        """The fold numbers of the rows of a buffer, four bytes each; nothing where they have none."""
        if self.fold_numbers is None:
            return ()
        return (self.fold_numbers[self._chosen(slot)].astype("<i4").tobytes(),)

    def _chosen(self, slot: Slot) -> NDArray[np.intp]:
        if self.order is None:
            return np.arange(slot.start, slot.stop)
        return self.order[slot.start : slot.stop]


def lay_out(
    addresses: NDArray[np.int64], partitions: int, buffer_size: int, seed: int | None
) -> Layout:
    """Spread rows over partitions (they differ by one row at most) and buffers.

    Args:
        addresses: of all rows, sorted.
        partitions: at most as many as rows.
        buffer_size: most rows of a buffer; the buffers of a partition differ by one row at most.
        seed: of the shuffle; None keeps the order.
    """
    slots = tuple(_slots(len(addresses), partitions, buffer_size))
    order = None if seed is None else shuffled(len(addresses), seed)
    return Layout(slots, addresses, order)


def shuffled(rows: int, seed: int) -> NDArray[np.intp]:
    """A permutation that depends on nothing but its arguments.

    The raw stream of a bit generator is what NumPy promises never to change, unlike
    ``Generator.permutation``.
    """
    keys: NDArray[np.uint64] = np.random.PCG64(seed % 2**64).random_raw(rows)
    order: NDArray[np.intp] = np.argsort(keys, kind="stable")
    return order


def parse_addresses(pieces: list[bytes]) -> NDArray[np.int64]:
    """Row addresses from the server's binary form, as sorted numbers."""
    address = np.frombuffer(b"".join(pieces), _ADDRESS)
    blocks = address["block"].astype(np.int64)
    numbers: NDArray[np.int64] = (blocks << 16) | address["offset"]
    numbers.sort()
    return numbers


def tid_array(numbers: NDArray[np.int64]) -> str:
    """Row addresses as text of the server's type ``tid[]``."""
    pairs = zip((numbers >> 16).tolist(), (numbers & 0xFFFF).tolist(), strict=True)
    return "{" + ",".join(['"(%d,%d)"' % pair for pair in pairs]) + "}"  # noqa: UP031


# The server holds no value of a gigabyte; some room for its own headers.
LARGEST_VALUE = 2**30 - 2**16


def default_buffer_size(inputs: Sequence[Block], targets: Sequence[Block]) -> int:
    """Rows of about 8 MB of float32 features, or of targets where these are larger."""
    elements = max(sum(math.prod(one.shape) for one in each) for each in (inputs, targets))
    return max(1, min(DEFAULT_BUFFER_ROWS, DEFAULT_BUFFER_BYTES // (4 * elements)))


def check_size(inputs: Sequence[Input], layout: Layout) -> None:
    """A buffer must not outgrow what the server can hold in one value while it is made."""
    first = inputs[0]
    row = max(
        *(wire_bytes(one.shape, one.element_oid) for one in inputs),
        4 * sum(math.prod(one.shape) for one in inputs),
    )
    most = LARGEST_VALUE // row
    if most < 1:
        raise InvalidData(
            f"column {first.name!r}: got rows of shape {first.shape}; "
            "allowed: less than a gigabyte in a row",
            hint="make the arrays smaller in a view, such as images of fewer pixels",
        )
    if layout.buffer_size > most:
        raise InvalidArgument(
            f"buffer_size: got {layout.buffer_size} rows in a buffer; allowed: at most {most} "
            f"rows of shape {first.shape}, as the server's values are below a gigabyte",
            hint=f"buffer_size := {most}, or NULL to have it chosen",
        )


def _slots(rows: int, partitions: int, buffer_size: int) -> Iterator[Slot]:
    for partition in range(partitions):
        first, last = _share(rows, partitions, partition)
        count = -(-(last - first) // buffer_size)
        for buffer in range(count):
            start, stop = _share(last - first, count, buffer)
            yield Slot(partition, buffer, first + start, first + stop)


def _share(total: int, parts: int, part: int) -> tuple[int, int]:
    return total * part // parts, total * (part + 1) // parts
