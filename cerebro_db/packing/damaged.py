"""Rows that packing leaves out, as their images cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cerebro_db.configs.images import ImageEncoding
from cerebro_db.packing.layout import parse_addresses
from cerebro_db.postgres.crew import Statement, gather
from cerebro_db.postgres.dialects.postgresql_packing import PostgreSQLPacking
from cerebro_db.postgres.images import FAULTS_SHOWN
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions import Session

_PIECES_A_WORKER = 4


@dataclass(frozen=True)
class Damaged:
    """Rows that are left out.

    Attributes:
        rows: how many.
        addresses: of them, sorted; none where they were deleted from a copy.
        faults: what is wrong with the first ones.
    """

    rows: int = 0
    addresses: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    faults: tuple[str, ...] = ()

    def first_among(self, kept: NDArray[np.int64]) -> Iterator[tuple[int, str, str]]:
        """The first ones: number among all rows, address, what is wrong.

        Args:
            kept: addresses of the other rows.
        """
        shown = self.addresses[: len(self.faults)]
        places = np.searchsorted(np.union1d(kept, self.addresses), shown)
        for place, number, fault in zip(places.tolist(), shown.tolist(), self.faults, strict=True):
            yield place + 1, f"({number >> 16},{number & 0xFFFF})", fault


def find_damaged(
    sql: PostgreSQLPacking,
    workers: Sequence[Session],
    table: QualifiedName,
    data: str,
    image: ImageEncoding,
    blocks: int,
) -> Damaged:
    """Read all images, side by side.

    Args:
        sql: of the dialect.
        workers: sessions of one snapshot.
        table: plain.
        data: expression of an image over the alias ``s``.
        image: what images are read as.
        blocks: of the table.
    """
    statement = sql.damaged(table, data, image)
    size = max(1, -(-blocks // (_PIECES_A_WORKER * len(workers))))
    pieces: list[Statement] = [
        (statement, (f"({first},0)", f"({first + size},0)")) for first in range(0, blocks, size)
    ]
    found = [row for ((row),) in gather(workers, pieces) if row[0] is not None]
    addresses = parse_addresses([bytes(listed) for listed, _ in found])
    faults = [fault for _, listed in found for fault in listed]
    return Damaged(len(addresses), addresses, tuple(faults[:FAULTS_SHOWN]))
