"""Rows of cerebro.hops, where the statement of a hop does not write them itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from cerebro_db.postgres.catalog import Catalog


@dataclass(frozen=True)
class HopRow:
    """Record of one hop, as ``cerebro.hops`` has it; times in seconds.

    Statements that insert such rows list their values in this order.
    """

    mst_key: int
    epoch: int
    position: int
    partition_key: int
    worker: int
    pid: int
    started: datetime
    finished: datetime
    waited: float
    read: float
    trained: float
    written: float
    rows: int
    loss: float
    compiled: bool
    cached: bool
    memory_mb: int


_TYPES = {
    "int": "int", "float": "float8", "datetime": "timestamptz", "bool": "boolean",
}  # fmt: skip
_NAMES = [field.name for field in fields(HopRow)]
HOP_COLUMNS = ", ".join(_NAMES)
_ARRAYS = ", ".join(f"%s::{_TYPES[str(field.type)]}[]" for field in fields(HopRow))


def add_hops(catalog: Catalog, run_id: int, rows: Sequence[HopRow]) -> None:
    """Store rows of hops, all or none."""
    columns = [[getattr(row, name) for row in rows] for name in _NAMES]
    catalog.store(
        f"INSERT INTO cerebro._hops (run_id, {HOP_COLUMNS}) "
        f"SELECT %s, t.* FROM unnest({_ARRAYS}) AS t",
        [run_id, *columns],
    )
