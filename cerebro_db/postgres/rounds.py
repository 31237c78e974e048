"""Records of rounds whose weights one trainer has held for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from cerebro_db.core.tasks import RoundRecord
from cerebro_db.postgres.catalog import Catalog

# Of a row of cerebro._updates, without its run.
COLUMNS = ", ".join(field.name for field in fields(RoundRecord))
_ROW = (
    "(%s, %s, %s, %s, %s, %s::float8, %s::float8, %s, %s::integer[], %s::float8[], %s::integer[], "
    "%s::bytea)"
)


def rounds_of(catalog: Catalog, run_id: int) -> list[RoundRecord]:
    """The recorded rounds of a run."""
    sql = f"SELECT {COLUMNS} FROM cerebro._updates WHERE run_id = %s"
    rows = catalog.execute(sql, (run_id,))
    return [RoundRecord(*row) for row in rows]


def add_rounds(catalog: Catalog, run_id: int, records: Sequence[RoundRecord]) -> None:
    """Store records of rounds, all or none."""
    rows = ", ".join([_ROW] * len(records))
    values = [value for one in records for value in (run_id, *vars(one).values())]
    catalog.store(f"INSERT INTO cerebro._updates (run_id, {COLUMNS}) VALUES {rows}", values)


def copy_rounds(catalog: Catalog, source: int, run_id: int) -> None:
    """Have a run follow the orders of another one."""
    catalog.store(
        f"INSERT INTO cerebro._updates (run_id, {COLUMNS}) SELECT %s, {COLUMNS} "
        "FROM cerebro._updates WHERE run_id = %s",
        (run_id, source),
    )
