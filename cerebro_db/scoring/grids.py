"""Values of columns for which a model is asked: quantiles of numbers, categories as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.columns.encoded import EncodedColumn, Encoding
from cerebro_db.columns.values import Values
from cerebro_db.models.trained import ModelTable
from cerebro_db.packing.features import matched
from cerebro_db.postgres.calls.settings import is_seen, seen_rows
from cerebro_db.postgres.dialects.statements.sources import PackedSource
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.postgres.tables.relations import Relation
from cerebro_db.scoring.samples import drawn
from cerebro_db.scoring.user_columns import UserColumn

_ROLE = "independent_varname"
_FLOAT_BYTES = 4
# Rows whose numbers quantiles of arrays are computed of.
_ROWS = 10_000


@dataclass(frozen=True)
class Value:
    """A value of a column.

    Attributes:
        text: as the server writes it.
        number: where it is one.
        features: that it becomes.
    """

    text: str
    number: float | None
    features: Sequence[float]


def of_encoded(
    session: Session, table: Relation, models: ModelTable, names: Sequence[str], grid: int
) -> dict[str, list[Value]]:
    """Values of encoded columns, by their names.

    Args:
        session: reads them.
        table: the raw rows.
        models: with an encoding.
        names: of the columns.
        grid: values of a column at most.
    """
    assert isinstance(models.encoding, Encoding)
    encoding = matched(table, None, models.encoding, _ROLE)
    rows = f"{table.name.sql} t"
    if is_seen(session, table):
        read = [one for one in table.columns if one.name in encoding.names]
        rows = seen_rows(session, table.name, read, "t")
    wanted = [one for one in encoding.columns if one.name in names]
    return {one.name: _values(session, rows, one, grid) for one in wanted}


def _values(session: Session, rows: str, column: EncodedColumn, grid: int) -> list[Value]:
    value = f"t.{quote(column.name)}"
    is_number = column.kind is Values.NUMBER and column.number("t") is not None
    is_ordered = is_number or (column.kind is Values.TIME and column.number("t") is not None)
    where = f"({column.missing('t')}) IS NOT TRUE"
    if (unseen := column.unseen("t")) is not None:
        where += f" AND ({unseen}) IS NOT TRUE"
    if is_ordered:
        shares = [place / (grid - 1) for place in range(grid)]
        found = (
            "SELECT DISTINCT u.v FROM (SELECT pg_catalog.unnest(pg_catalog.percentile_disc(%s::double precision[]) "
            f"WITHIN GROUP (ORDER BY {value})) AS v FROM {rows} WHERE {where}) u"
        )
        given: list[object] = [shares]
    else:
        found = (
            f"SELECT {value} AS v FROM {rows} WHERE {where} GROUP BY 1 "
            "ORDER BY pg_catalog.count(*) DESC, 1 LIMIT %s"
        )
        given = [grid]
    number = f"{value}::double precision" if is_number else "NULL::double precision"
    features = ", ".join(column.features("t"))
    sql = (
        f"SELECT {value}::text, {number}, ARRAY[{features}]::double precision[] "
        f"FROM (SELECT g.v AS {quote(column.name)} FROM ({found}) g) t ORDER BY {value}"
    )
    return [Value(*row) for row in session.run(sql, given)]


def of_arrays(
    session: Session, packed: PackedTable, columns: Sequence[UserColumn], grid: int, divisor: float
) -> dict[str, list[Value]]:
    """Quantiles of numbers in arrays, by the names of the columns.

    Args:
        session: reads rows.
        packed: of these.
        columns: of one feature each.
        grid: values of a column at most.
        divisor: the features were divided by it.
    """
    sizes = [math.prod(one.shape) for one in packed.inputs]
    named = tuple(
        (one.name, _FLOAT_BYTES * size) for one, size in zip(packed.inputs, sizes, strict=True)
    )
    sample = drawn(session, PackedSource(packed.relation.name, named), _ROWS, 0)
    numbers, found = sample.numbers(), {}
    for column in columns:
        before, place = 0, column.start
        for size in sizes:
            if place < size:
                break
            before, place = before + size, place - size
        first = before * sample.rows + place
        values = sorted(numbers[first : (before + size) * sample.rows : size])
        chosen = _quantiles(values, grid)
        found[column.name] = [Value(repr(one * divisor), one * divisor, [one]) for one in chosen]
    return found


def _quantiles(values: Sequence[float], grid: int) -> list[float]:
    """Different quantiles, the least and the greatest value among them."""
    last = len(values) - 1
    return sorted({values[round(place * last / (grid - 1))] for place in range(grid)})
