"""Records of rounds whose weights one trainer has held for all of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from cerebro_db.postgres.catalog import Catalog


@dataclass(frozen=True)
class RoundRow:
    """Course of a round, from which it can be made again.

    Attributes:
        groups: of its workers.
        momentum: that the optimizer was told; None for its own.
        learning_rate: that it began with, where probes have chosen it.
        updates: groups of the updates in their order, as ``training.updates`` writes them.
    """

    mst_key: int
    epoch: int
    round: int
    groups: int
    momentum: float | None
    learning_rate: float | None
    updates: bytes


_NAMES = ", ".join(field.name for field in fields(RoundRow))
# Of a row of cerebro._updates, without its run.
COLUMNS = "mst_key, epoch, round, groups, momentum, learning_rate, probes, counts, staleness, stalest, updates"


def rounds_of(catalog: Catalog, run_id: int) -> list[RoundRow]:
    """The recorded rounds of a run."""
    sql = f"SELECT {_NAMES} FROM cerebro._updates WHERE run_id = %s"
    rows = catalog.execute(sql, (run_id,))
    return [RoundRow(*row) for row in rows]


def copy_rounds(catalog: Catalog, source: int, run_id: int) -> None:
    """Have a run follow the orders of another one."""
    catalog.store(
        f"INSERT INTO cerebro._updates (run_id, {COLUMNS}) SELECT %s, {COLUMNS} "
        "FROM cerebro._updates WHERE run_id = %s",
        (run_id, source),
    )
