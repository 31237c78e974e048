"""Pairs of columns that a model is to learn from as crosses: those whose combinations tell what neither of them does.

Of each pair the interaction of a two-way analysis of variance is estimated (Fisher 1925; as a search for pairs: Lou et
al. 2013, GA2M): the squares between its cells that no effect of the first column and no effect of the second one
explain, less those that chance makes. A cross is worth its embedding where that is a share of the variance that counts,
and far from chance. The strongest pair is then tried as one column, with each of the others. Only rows for training are
read.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cerebro_db.columns.crosses import BETWEEN
from cerebro_db.columns.values import Column, Values
from cerebro_db.postgres.calls.settings import read_as
from cerebro_db.postgres.names import literal, quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import Relation
from cerebro_db.runs.automl.features import ColumnFacts

# Values of a column, columns, and rows of a cell, between which pairs are looked at.
_MOST_VALUES, _MOST_COLUMNS, _ROWS_OF_A_CELL = 1_000, 16, 20
# Rows that are read, about; classes that are looked at, the most frequent ones.
_ROWS, _CLASSES = 100_000, 4
# A pair counts from this share of the variance and so many standard deviations from chance on; the best ones do.
_LEAST_SHARE, _LEAST_SCORE, _MOST_CROSSES = 0.01, 6.0, 3
# Rows of a combination that has an id of its own.
_LEAST_ROWS = 10


# Passes over both columns until the effect of each is that of itself alone.
_SWEEPS = 8
_SAMPLE = "pg_temp.cerebro_crosses"
# A number that squares do not overflow with; others count as 0.
_NUMBER = "(CASE WHEN pg_catalog.abs(q.y) < 1e100 THEN q.y ELSE 0 END)::double precision"


class Cell(NamedTuple):
    """Rows that have one combination of values.

    Attributes:
        values: of the first and of the second column, of which the first may be a pair.
        rows: how many there are.
        sums: of each target.
    """

    values: tuple[str, str]
    rows: int
    sums: tuple[float, ...]


@dataclass(frozen=True)
class Interaction:
    """Interaction of two columns, or of a pair and a column.

    Attributes:
        names: of the columns; those of a pair first.
        share: of the variance of the target, which all explain together, and the two do not.
        score: distance from chance in standard deviations.
    """

    names: tuple[str, ...]
    share: float
    score: float

    @property
    def key(self) -> str:
        """The name of the cross in ``encodings``."""
        return BETWEEN.join(self.names)

    @property
    def parts(self) -> tuple[str, str]:
        """The two that are crossed, as they are named."""
        return BETWEEN.join(self.names[:-1]), self.names[-1]

    @property
    def is_strong(self) -> bool:
        """True where the cross is worth its embedding."""
        return self.share >= _LEAST_SHARE and self.score >= _LEAST_SCORE

    @property
    def encoding(self) -> str:
        """The encoding of the cross."""
        return f"cross({_LEAST_ROWS})"


def crosses_of(
    session: Session,
    source: Relation,
    target: Column,
    is_number: bool,
    facts: Sequence[ColumnFacts],
    rows: int,
) -> list[Interaction]:
    """The crosses, the strongest pair first, and after all pairs that with a third column.

    Args:
        session: in a transaction; reads the rows.
        source: the rows for training.
        target: the dependent variable.
        is_number: whether it is a number.
        facts: of the columns that the model learns from.
        rows: how many there are.
    """
    columns = [one for one in facts if _may_be_crossed(one)]
    if not 2 <= len(columns) <= _MOST_COLUMNS:
        return []
    most = min(rows, _ROWS) // _ROWS_OF_A_CELL
    pairs = _fitting(itertools.combinations(columns, 2), most)
    if not pairs:
        return []
    reader = _Reader(session, source, target, is_number, [one.column for one in columns], rows)
    strong = _strongest(reader, pairs)
    if not strong:
        return []
    third = _third(reader, strong, columns, most)
    return [*strong[: _MOST_CROSSES - len(third)], *third]


def _third(
    reader: _Reader, strong: Sequence[Interaction], columns: Sequence[ColumnFacts], most: int
) -> list[Interaction]:
    """The strongest pair with a third column, where that tells more than the pairs that the column is in."""
    best = [one for one in columns if one.column.name in strong[0].names]
    others = [one for one in columns if one not in best]
    of_pairs = {frozenset(one.names): one.share for one in strong}
    for one in _strongest(reader, _fitting(((*best, one) for one in others), most)):
        *names, other = one.names
        in_pairs = sum(of_pairs.get(frozenset((name, other)), 0.0) for name in names)
        if one.share - in_pairs >= _LEAST_SHARE:
            return [one]
    return []


def _fitting(groups: Iterable[tuple[ColumnFacts, ...]], most: int) -> list[tuple[Column, ...]]:
    """Groups of columns that have few enough combinations."""
    return [
        tuple(one.column for one in group)
        for group in groups
        if math.prod(one.distinct for one in group) <= most
    ]


def _strongest(reader: _Reader, groups: Sequence[tuple[Column, ...]]) -> list[Interaction]:
    """The strong interactions of groups, the strongest one first."""
    found = [reader.interaction(group) for group in groups]
    return sorted((one for one in found if one.is_strong), key=lambda one: (-one.share, one.key))


def _may_be_crossed(one: ColumnFacts) -> bool:
    """True for columns whose values recur, and whose names can be written in a cross."""
    column = one.column
    is_named = BETWEEN not in column.name and column.name == column.name.strip()
    recurs = column.values is not Values.NUMBER or column.is_whole
    return is_named and recurs and 2 <= one.distinct <= _MOST_VALUES


class _Reader:
    """Reader of cells of pairs, in a sample of the rows by a hash of their values."""

    def __init__(
        self,
        session: Session,
        source: Relation,
        target: Column,
        is_number: bool,
        columns: Sequence[Column],
        rows: int,
    ) -> None:
        self._session = session
        names = [one.name for one in columns]
        read = read_as(session, source, [*names, target.name], "s")
        values = ", ".join(f"s.{quote(name)}" for name in [*names, target.name])
        every = max(1, rows // _ROWS)
        digits = f"pg_catalog.substr(pg_catalog.md5(ROW({values})::text), 1, 7)"
        drawn = f" AND ('x' || {digits})::bit(28)::integer %% {every} = 0" if every > 1 else ""
        label = f"s.{quote(target.name)}"
        listed = ", ".join(f"s.{quote(name)} AS c{place}" for place, name in enumerate(names))
        self._places = {name: place for place, name in enumerate(names)}
        # Once, as each pair reads it.
        session.run(
            f"CREATE TEMPORARY TABLE {_SAMPLE} ON COMMIT DROP AS SELECT {listed}, {label} AS y "
            f"FROM {read} WHERE {label} IS NOT NULL{drawn}{session.anywhere}"
        )
        self._rows = f"{_SAMPLE} q"
        self._targets = [_NUMBER] if is_number else self._indicators()
        self._variances = self._measured()

    def interaction(self, group: tuple[Column, ...]) -> Interaction:
        """The interaction of the last column of a group with the others, which count as one."""
        return interaction(tuple(one.name for one in group), self._cells(group), self._variances)

    def _indicators(self) -> list[str]:
        """SQL of a number for each of the most frequent classes but one: 1 in its rows, 0 in others."""
        found = self._session.run(
            f"SELECT q.y::text FROM {self._rows} GROUP BY q.y ORDER BY pg_catalog.count(*) DESC, 1 LIMIT %s",
            (_CLASSES + 1,),
        )
        return [
            f"(q.y::text = {literal(label)})::integer::double precision" for (label,) in found[:-1]
        ]

    def _measured(self) -> list[float]:
        """Variance of each target."""
        listed = ", ".join(
            f"pg_catalog.var_pop({one}) AS v{place}" for place, one in enumerate(self._targets)
        )
        return [
            float(one or 0) for one in self._session.run(f"SELECT {listed} FROM {self._rows}")[0]
        ]

    def _cells(self, group: tuple[Column, ...]) -> list[Cell]:
        """The combinations of a group in rows that have all values."""
        *first, second = (f"q.c{self._places[one.name]}" for one in group)
        sums = ", ".join(
            f"pg_catalog.sum({one}) AS s{place}" for place, one in enumerate(self._targets)
        )
        known = " AND ".join(f"{one} IS NOT NULL" for one in (*first, second))
        found = self._session.run(
            f"SELECT ROW({', '.join(first)})::text AS a, {second}::text AS b, pg_catalog.count(*) AS n, {sums} "
            f"FROM {self._rows} WHERE {known} GROUP BY 1, 2"
        )
        return [Cell((a, b), int(n), tuple(map(float, rest))) for a, b, n, *rest in found]


def interaction(
    names: tuple[str, ...], cells: Sequence[Cell], variances: Sequence[float]
) -> Interaction:
    """The interaction of two columns, or of a pair and a column, over all targets.

    Args:
        names: of the columns.
        cells: all combinations.
        variances: of the targets.
    """
    rows = sum(one.rows for one in cells)
    of_columns = sum(len({one.values[column] for one in cells}) for column in (0, 1))
    freedom = len(cells) - of_columns + 1
    known = [place for place, variance in enumerate(variances) if variance > 0]
    if freedom <= 0 or not known:
        return Interaction(names, 0.0, 0.0)
    share = score = 0.0
    for place in known:
        found, within = _squares(cells, place, rows * variances[place])
        chance = max(within / max(rows - len(cells), 1), 1e-12 * variances[place])
        share += (found - freedom * chance) / (rows * sum(variances))
        score += (found / chance - freedom) / math.sqrt(2 * freedom * len(known))
    return Interaction(names, share, score)


def _squares(cells: Sequence[Cell], place: int, total: float) -> tuple[float, float]:
    """Squares of the interaction, and those within cells.

    Args:
        cells: all combinations.
        place: of the target.
        total: all squares of the target.
    """
    rows = sum(one.rows for one in cells)
    mean = sum(one.sums[place] for one in cells) / rows
    left = [one.sums[place] - one.rows * mean for one in cells]
    between = _between(cells, left)
    for _ in range(_SWEEPS):
        for column in (0, 1):
            left = _without_effect(cells, left, column)
    return _between(cells, left), max(0.0, total - between)


def _between(cells: Sequence[Cell], sums: Sequence[float]) -> float:
    return sum(one * one / cell.rows for one, cell in zip(sums, cells, strict=True))


def _without_effect(cells: Sequence[Cell], left: Sequence[float], column: int) -> list[float]:
    """The sums of the cells less the mean of each value of a column."""
    sums: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for cell, one in zip(cells, left, strict=True):
        sums[cell.values[column]] += one
        counts[cell.values[column]] += cell.rows
    means = {value: sums[value] / counts[value] for value in sums}
    return [
        one - cell.rows * means[cell.values[column]] for cell, one in zip(cells, left, strict=True)
    ]
