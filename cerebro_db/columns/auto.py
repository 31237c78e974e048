"""The kind of column that becomes another one, by the type and the distribution of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.categories import Categorical, OneHot
from cerebro_db.columns.encoded import EVERY, EncodedColumn, registered
from cerebro_db.columns.ids import Ids
from cerebro_db.columns.numbers import Log1p, Numeric, Plain, Standardize, stepped
from cerebro_db.columns.quantiles import PiecewiseLinear, Robust
from cerebro_db.columns.surveys import (
    CONSTANT,
    NAMES_ROWS,
    Aggregates,
    Fitting,
    Groups,
    Survey,
    remark_of_leak,
)
from cerebro_db.columns.times import PARTS_OF, Cyclic
from cerebro_db.columns.values import Column, Values

# Of more categories are ids.
_MOST_ONE_HOT = 16
# Bins of a number, of all numbers together, and rows for each; from so many rows on.
_MOST_BINS, _ALL_BINS, _ROWS_OF_A_BIN, _LEAST_BINS, _ROWS_FOR_BINS = 32, 4000, 25, 4, 500
# A tail is heavy where all values are so many times as far apart as the quartiles are.
_HEAVY = 20
# Of fewer rows each may differ by chance.
_LEAST_ROWS = 20
_SHARES = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99, 1.0)


@registered
class Auto(EncodedColumn, frozen=True, omit_defaults=False, eq=False):
    """A column whose kind the training rows decide.

    Attributes:
        column: of the source.
        collation: of texts that it takes for equal.
    """

    method: ClassVar[str] = "auto"
    argument: ClassVar[str] = EVERY

    column: Column | None = None
    collation: tuple[str, ...] = ()

    @classmethod
    def planned(cls, column: Column) -> Self:
        """A column of which nothing is known."""
        return replace(super().planned(column), column=column)

    def collated(self, collation: tuple[str, ...]) -> Self:
        """The same, whose categories are compared as that collation says."""
        return replace(self, collation=collation)

    def may_become(self, other: EncodedColumn) -> bool:
        """True: rows decide."""
        return True

    @property
    def is_fitted(self) -> bool:
        """Never: it becomes another kind."""
        return False

    @property
    def width(self) -> int:
        """Unknown."""
        return 0

    def fitting(self, survey: Survey) -> Fitting:
        """Look at the values, choose a kind, and let that one ask."""
        assert self.column is not None
        if self.kind is Values.CATEGORY:
            return (yield from self._category(survey, self.column))
        if self.kind is Values.TIME and self.column.form in PARTS_OF:
            chosen = replace(Cyclic.planned(self.column), why="a time")
            return (yield from chosen.fitting(survey))
        return (yield from self._number(survey, self.column))

    # -- numbers -----------------------------------------------------------------------------------
    def _number(self, survey: Survey, column: Column) -> Fitting:
        value = Standardize.planned(column).number("s")
        shares = ",".join(map(repr, _SHARES))
        known, quantiles = yield Aggregates(
            [
                f"pg_catalog.count({value})",
                f"pg_catalog.percentile_cont('{{{shares}}}'::double precision[]) WITHIN GROUP (ORDER BY {value})",
            ],
            sorts=1,
        )
        self.counted(survey, known)  # or refused
        chosen = self._kind_of_number(survey, column, known, quantiles)
        low, high = quantiles[0], quantiles[-1]
        if low == high and known == survey.rows:
            survey.remark(CONSTANT, self.name)
        elif column.is_whole and high - low + 1 >= known == survey.rows >= _LEAST_ROWS:
            [distinct] = yield Aggregates([f"pg_catalog.count(DISTINCT {value})"], sorts=1)
            if distinct == known:
                survey.remark(NAMES_ROWS, self.name)
        found = yield from chosen.fitting(survey)
        looks = isinstance(found, PiecewiseLinear) or not survey.has_target or low == high
        if not looks:
            edges = sorted(set(quantiles))
            place = stepped(value, edges, list(map(str, range(len(edges) + 1))))
            groups = yield Groups(f"CASE WHEN {value} IS NOT NULL THEN {place} ELSE -1 END")
            remark_of_leak(survey, self.name, groups)
        return found

    def _kind_of_number(
        self, survey: Survey, column: Column, known: int, quantiles: Sequence[float]
    ) -> Numeric:
        """The kind of a number, with the reason."""
        if self.kind is Values.BOOLEAN:
            return replace(Plain.planned(column), why="a truth value")
        low, _, lower, _, median, _, upper, _, most, high = quantiles
        if low == high:
            return replace(Standardize.planned(column), why="the same everywhere")
        bins = min(_MOST_BINS, _ALL_BINS // survey.columns, known // _ROWS_OF_A_BIN)
        if survey.has_target and known >= _ROWS_FOR_BINS and bins >= _LEAST_BINS:
            why = f"{known} values are enough for a tree"
            return replace(PiecewiseLinear.planned(column), bins=bins, by="target", why=why)
        if high - low <= _HEAVY * (upper - lower):
            return replace(Standardize.planned(column), why="no heavy tail")
        if low >= 0 and most > _HEAVY * median > 0:
            return replace(Log1p.planned(column), why="a heavy tail of numbers from 0")
        return replace(Robust.planned(column), why="a heavy tail")

    # -- categories --------------------------------------------------------------------------------
    def _category(self, survey: Survey, column: Column) -> Fitting:
        probe = self._planned(Ids, column)
        known, distinct = yield Aggregates(
            [*probe.facts(), f"pg_catalog.count(DISTINCT {probe.category('s')})"], sorts=1
        )
        self.counted(survey, known)  # or refused
        if distinct == 1 and known == survey.rows:
            survey.remark(CONSTANT, self.name)
        why = "1 category" if distinct == 1 else f"{distinct} categories"
        kind = OneHot if distinct <= min(_MOST_ONE_HOT, survey.max_categories) else Ids
        found = yield from self._planned(kind, column).fitting(survey)
        if survey.has_target and distinct > 1:
            assert isinstance(found, Categorical)
            remark_of_leak(survey, self.name, (yield Groups(found.place("s"))))
        return replace(found, why=why)

    def _planned(self, kind: type[Categorical], column: Column) -> Categorical:
        found = kind.planned(column)
        return found.collated(self.collation) if self.collation else found
