"""Interactions of pairs of columns, against analyses of variance whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import find
from cerebro_db.runs.automl.crosses import Cell, crosses_of, interaction
from cerebro_db.runs.automl.features import ColumnFacts
from tests.conftest import Sql


def cells_of(mean: object, rows: int = 50, deviation: float = 1.0) -> tuple[list[Cell], float]:
    """Cells of two columns of 6 and 8 values, and the variance; some cells have more rows than others."""
    draw = random.Random(7)
    cells, every = [], []
    for a in range(6):
        for b in range(8):
            count = rows + 20 * ((a + b) % 3)
            values = [mean(a, b) + draw.gauss(0, deviation) for _ in range(count)]  # type: ignore[operator]
            cells.append(Cell((str(a), str(b)), count, (sum(values),)))
            every += values
    middle = sum(every) / len(every)
    return cells, sum((one - middle) ** 2 for one in every) / len(every)


def test_effects_of_each_column_are_no_interaction() -> None:
    cells, variance = cells_of(lambda a, b: 3 * a - b * b)
    found = interaction(("a", "b"), cells, [variance])
    assert abs(found.share) < 0.002
    assert abs(found.score) < 4


def test_the_share_is_that_of_the_variance() -> None:
    """Of a target with 4 of variance between cells and 1 within them."""
    cells, variance = cells_of(lambda a, b: 2 if (a + b) % 2 else -2)
    found = interaction(("a", "b"), cells, [variance])
    assert found.share == pytest.approx(0.8, abs=0.02)
    assert found.score > 100
    assert (found.key, found.encoding) == ("a*b", "cross(10)")


def test_columns_that_go_together_are_no_interaction() -> None:
    """Each value of one column has few of the other: the same effect counts once."""
    draw = random.Random(1)
    cells, every = [], []
    for a in range(10):
        for b in range(max(0, a - 1), min(10, a + 2)):
            values = [a + b + draw.gauss(0, 1) for _ in range(40)]
            cells.append(Cell((str(a), str(b)), 40, (sum(values),)))
            every += values
    middle = sum(every) / len(every)
    variance = sum((one - middle) ** 2 for one in every) / len(every)
    found = interaction(("a", "b"), cells, [variance])
    assert abs(found.share) < 0.01


def test_a_constant_target_has_none() -> None:
    cells, _ = cells_of(lambda a, b: 1.0, deviation=0.0)
    found = interaction(("a", "b"), cells, [0.0])
    assert (found.share, found.score) == (0.0, 0.0)


# Of 24 combinations of m and d, and 72 with o; z is chance.
ROWS = """
CREATE TABLE meetings AS
SELECT m, d, o, z, ((m + d) % 2) * 2.0 + z % 3 / 10.0 AS two,
       ((m + d) % 2) * 2.0 + ((d + o) % 2) * 2.0 + z % 3 / 10.0 AS twice,
       ((m + d) % 2) * 2.0 + ((m + d + o) % 2) * 2.0 + z % 3 / 10.0 AS three
  FROM generate_series(1, 6) AS m, generate_series(1, 4) AS d, generate_series(1, 3) AS o, generate_series(1, 60) AS z
"""


@pytest.fixture
def meetings(sql: Sql, database: str) -> Iterator[Session]:
    """A session in a transaction, and the rows."""
    sql.run(ROWS)
    pool = SessionPool(database, ["SET search_path = public"], lambda: None)
    (session,) = pool.take(1)
    with transaction(session):
        yield session
    pool.close()


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        ("two", ["m*d"]),
        ("twice", ["m*d", "d*o"]),
        ("three", ["m*d", "m*d*o"]),
    ],
)
def test_a_third_column_joins_the_strongest_pair_where_it_tells_more_than_pairs(
    meetings: Session, target: str, keys: list[str]
) -> None:
    source = find(meetings, "meetings", "source_table")
    columns = {one.name: one for one in source.columns}
    facts = [
        ColumnFacts(columns[name], 4320, 4320, distinct)
        for name, distinct in (("m", 6), ("d", 4), ("o", 3), ("z", 60))
    ]
    found = crosses_of(meetings, source, columns[target], True, facts, 4320)
    assert sorted(one.key for one in found) == sorted(keys)
    assert all(one.encoding == "cross(10)" for one in found)
