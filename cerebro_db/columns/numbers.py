"""Kinds of columns that become one number each: ``(value - center) / scale``, and an indicator of missing values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.encoded import INDICATOR, EncodedColumn, Run, described_row, registered
from cerebro_db.columns.options import Option
from cerebro_db.columns.surveys import Survey
from cerebro_db.columns.values import Column, Values, all_whole
from cerebro_db.errors import InvalidData

# What rounds to the largest float32 is below this.
FLOAT32_LIMIT = "3.4028235677973366e38"
# Up to here float32 holds all whole numbers.
MOST_WHOLE = 2**24
LARGEST = "1.7976931348623157e308::double precision"
_SECONDS_OF_A_DAY = "86400.0"
# What the number of days of a date or time is counted from.
_ORIGINS = {
    "date": "1970", "timestamp": "1970", "timestamptz": "1970", "time": "midnight", "timetz": "midnight",
    "interval": "itself",
}  # fmt: skip
# Of two: squares, and squares of these, are numbers of double precision.
_PLAIN_EXPONENT = 200
# In units of the last place of a value: values so close differ by the rounding of double precision.
_LAST_DIGITS = 2.0
# Relative to the spread of values: less does not show in float32.
_NEGLIGIBLE = 1e-9


# Fields that are known while an encoding is made.
_WHILE_MADE = frozenset({"spread", "is_whole", "may_be_whole"})


class Numeric(EncodedColumn, frozen=True, omit_defaults=False, eq=False):
    """A column as a number.

    Attributes:
        center, scale: subtracted from the value, and what the rest is divided by.
        fill: the number that is taken where a value is missing.
        spread: from the minimum to the maximum, while that is measured; 0 where all values are the same.
        is_whole: whether the training column holds whole numbers only, by its type.
        may_be_whole: whether its values have to be looked at to know that.
    """

    argument: ClassVar[str] = "numbers"
    takes: ClassVar[tuple[Values, ...]] = (Values.NUMBER, Values.BOOLEAN, Values.TIME)
    options: ClassVar[tuple[Option, ...]] = (INDICATOR,)
    beside: ClassVar[frozenset[str]] = EncodedColumn.beside | _WHILE_MADE
    unrecorded: ClassVar[frozenset[str]] = EncodedColumn.unrecorded | _WHILE_MADE
    # Whether it scales, so that a column that is the same everywhere becomes 0.
    is_scaled: ClassVar[bool] = True

    center: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    spread: float = 0.0
    is_whole: bool = False
    may_be_whole: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = (self.center, self.scale, self.fill)
        if not self.scale or not all(map(math.isfinite, (*numbers, self.filled))):
            raise ValueError(numbers)

    @property
    def filled(self) -> float:
        """First feature of a missing number."""
        return self.features_of(self.fill)[0]

    def features_of(self, value: float) -> list[float]:
        """The features of a number, but for the indicator."""
        return [(value - self.center) / self.scale]

    def scaled(self, value: str) -> list[str]:
        """SQL of the same, of SQL of a number that is finite."""
        return [f"({value} - {number(self.center)}) / {number(self.scale)}"]

    @classmethod
    def planned(cls, column: Column) -> Self:
        """The encoding whose numbers are still to be found."""
        return replace(
            super().planned(column), is_whole=column.is_whole, may_be_whole=column.may_be_whole
        )

    def at(self, column: Column) -> Self:
        """The encoding of a column of another table, whose type may hold other numbers."""
        whole = {"is_whole": column.is_whole, "may_be_whole": column.may_be_whole}
        return replace(super().at(column), **whole)

    def fits(self, column: Column) -> bool:
        """True if the values are of the same kind; days are counted from the same day."""
        if not super().fits(column):
            return False
        if self.kind is not Values.TIME:
            return True
        recorded = _ORIGINS.get(self.type.partition("(")[0].partition(" ")[0])
        return recorded in (None, _ORIGINS[column.form])

    # -- SQL ---------------------------------------------------------------------------------------
    def value(self, alias: str) -> str:
        """SQL of the number of a row, be it finite or not."""
        name = self._sql(alias)
        if self.kind is Values.TIME:
            return f"(pg_catalog.date_part('epoch', {name}) / {_SECONDS_OF_A_DAY})"
        if self.kind is Values.BOOLEAN:
            return f"{name}::integer::double precision"
        return f"{name}::double precision"

    def is_finite(self, alias: str) -> str:
        """SQL condition that there is a number; NULL, or false, where there is none."""
        name = self._sql(alias)
        if self.kind is Values.BOOLEAN:
            return f"{name} IS NOT NULL"
        # NaN is larger than any number.
        value = self.value(alias)
        finite = f"pg_catalog.abs({value}) <= {LARGEST}"
        if self.kind is not Values.TIME:
            return finite
        # Older servers take an infinite time for zero seconds; a time of day knows no isfinite().
        return f"({finite} AND ({value} <> 0 OR {name}::text NOT IN ('infinity', '-infinity')))"

    def number(self, alias: str) -> str:
        """SQL of the number; NULL where it is missing."""
        return f"CASE WHEN {self.is_finite(alias)} THEN {self.value(alias)} END"

    def missing(self, alias: str) -> str:
        """SQL condition: there is no number, or it is not finite."""
        return f"({self.is_finite(alias)}) IS NOT TRUE"

    @property
    def width(self) -> int:
        """The features of the number, and the indicator of missing ones."""
        return len(self.features_of(self.fill)) + self.has_missing

    def features(self, alias: str) -> list[str]:
        """SQL of the features of the number, and of the indicator."""
        finite = self.is_finite(alias)
        pairs = zip(self.scaled(self.value(alias)), self.features_of(self.fill), strict=True)
        found = [
            f"CASE WHEN {finite} THEN {sql} ELSE {number(filled)} END" for sql, filled in pairs
        ]
        if self.has_missing:
            found.append(f"CASE WHEN {finite} THEN 0 ELSE 1 END")
        return found

    # -- survey ------------------------------------------------------------------------------------
    def facts(self) -> list[str]:
        """Count, mean, minimum and maximum."""
        value = self.number("s")
        return [f"pg_catalog.{name}({value})" for name in ("count", "avg", "min", "max")]

    def measured(self, survey: Survey, known: int, facts: Sequence[Any]) -> Self:
        """The column with its mean, minimum and maximum."""
        mean, low, high = facts
        self._check_range(survey, low, high)
        if low == high or (not self.is_whole and is_constant(low, high)):
            return replace(self, center=low if self.is_scaled else 0.0, fill=low)
        if not math.isfinite(high - low):
            raise self.beyond(f"from {low!r} to {high!r}")
        return replace(self._scaled(mean, low, high), fill=mean, spread=high - low)

    def _check_range(self, survey: Survey, low: float, high: float) -> None:
        """Refuse values that cannot be packed."""

    def _scaled(self, mean: float, low: float, high: float) -> Self:
        return self

    def refinements(self) -> list[str]:
        """The average distance of the values from the mean as it is known, in the unit of the column."""
        return [f"pg_catalog.avg({self._distance()})"] if self.spread else []

    def refined(self, values: Sequence[Any]) -> Self:
        """The column with a better mean."""
        return self._with_mean(values[0] * self._unit, self.spread)

    def _distance(self) -> str:
        distance = f"({self.number('s')} - {number(self.fill)})"
        return distance if self._unit == 1.0 else f"({distance} / {number(self._unit)})"

    @property
    def _unit(self) -> float:
        """Power of two as the unit of distances, so that squares neither overflow nor vanish."""
        exponent = math.frexp(self.spread)[1]
        return math.ldexp(1.0, exponent) if abs(exponent) > _PLAIN_EXPONENT else 1.0

    def _with_mean(self, shift: float, spread: float) -> Self:
        """The column with a mean that is corrected where that shows.

        The server's mean is a sum, whose error grows with the number of rows.

        Args:
            shift: average distance from the server's mean, which ``fill`` is.
            spread: of the values.
        """
        return self if abs(shift) <= _NEGLIGIBLE * spread else replace(self, fill=self.fill + shift)

    def beyond(self, what: str) -> InvalidData:
        """The error of numbers that are too large, or too small."""
        return InvalidData(
            f"column {self.name!r}: got values {what}; allowed with the encoding "
            f"{self.method!r}: numbers whose mean and scale are numbers of double precision, "
            "as up to about 1e140",
            hint="leave such rows out in a view, or multiply the column by a constant there",
        )

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        yield described_row(
            position, self.name, center=self.center, scale=self.scale, fill=self.fill
        )


@registered
class Standardize(Numeric, frozen=True, omit_defaults=False, eq=False):
    """A number less its mean, divided by its standard deviation."""

    method: ClassVar[str] = "standardize"

    def _scaled(self, mean: float, low: float, high: float) -> Self:
        return replace(self, center=mean)

    def refinements(self) -> list[str]:
        """The average distance from the mean, and the root of the average square of that."""
        if not self.spread:
            return []
        square = f"pg_catalog.sqrt(pg_catalog.avg({self._distance()} ^ 2))"
        return [*super().refinements(), square]

    def refined(self, values: Sequence[Any]) -> Self:
        """The column with a better mean, and its standard deviation."""
        shift, deviation = values[0] * self._unit, (values[1] or 0.0) * self._unit
        column = self._with_mean(shift, deviation)
        if column.fill != self.center:
            deviation = math.sqrt(max(deviation * deviation - shift * shift, 0.0))
            column = replace(column, center=column.fill)
        return replace(column, scale=deviation or 1.0)


@registered
class MinMax(Numeric, frozen=True, omit_defaults=False, eq=False):
    """A number as its place between the minimum, 0, and the maximum, 1."""

    method: ClassVar[str] = "minmax"

    def _scaled(self, mean: float, low: float, high: float) -> Self:
        return replace(self, center=low, scale=high - low)


@registered
class Plain(Numeric, frozen=True, omit_defaults=False, eq=False):
    """A number as it is."""

    method: ClassVar[str] = "none"
    is_scaled: ClassVar[bool] = False

    def _check_range(self, survey: Survey, low: float, high: float) -> None:
        for value in (low, high):
            if abs(value) >= float(FLOAT32_LIMIT):
                raise InvalidData(
                    f"column {self.name!r}: got {value!r}; allowed with the encoding 'none': finite "
                    "float32 numbers, up to 3.4e38",
                    hint="'standardize' and 'minmax' take larger ones, and a view can leave rows out",
                )
        self.check(survey.run, survey.table, "s", max(abs(low), abs(high)))

    def largest(self, alias: str) -> str | None:
        """The largest number of a column that may hold whole numbers only."""
        if not (self.is_whole or self.may_be_whole):
            return None
        return f"pg_catalog.max(pg_catalog.abs({self.number(alias)}))"

    def check(self, run: Run, rows: str, alias: str, largest: float) -> None:
        """Refuse whole numbers that float32 does not hold."""
        if largest <= MOST_WHOLE or not self._is_whole_in(run, rows, alias):
            return
        for (value,) in run(self._unheld(rows, alias)):
            raise InvalidData(
                f"column {self.name!r}: got the whole number {value}, which float32 does not hold; "
                f"allowed with the encoding 'none': whole numbers that it holds, as all up to {MOST_WHOLE}",
                hint="'standardize' and 'minmax' scale them before; numbers that only name rows are "
                "left out by excluded",
            )

    def _is_whole_in(self, run: Run, rows: str, alias: str) -> bool:
        if not self.may_be_whole:
            return self.is_whole
        return run(all_whole(rows, self._sql(alias))) == [(True,)]

    def _unheld(self, rows: str, alias: str) -> str:
        """SQL of the first whole number that float32 does not hold, as text."""
        return (
            f"SELECT q.value::text FROM (SELECT {self._sql(alias)} AS value, "
            f"{self.number(alias)} AS number FROM {rows} OFFSET 0) q "
            "WHERE pg_catalog.abs(q.number) > 16777216 AND (pg_catalog.abs(q.number) > 9007199254740992 "
            "OR q.number::real::double precision <> q.number) ORDER BY q.number LIMIT 1"
        )


@registered
class Log1p(Standardize, frozen=True, omit_defaults=False, eq=False):
    """The logarithm of a number, ``sign(x) ln(1 + |x|)``, standardized."""

    method: ClassVar[str] = "log1p"

    @classmethod
    def planned(cls, column: Column) -> Self:
        """The encoding whose numbers are still to be found; logarithms are not whole."""
        return replace(super().planned(column), is_whole=False, may_be_whole=False)

    def value(self, alias: str) -> str:
        """SQL of the logarithm."""
        value = super().value(alias)
        return f"(pg_catalog.sign({value}) * pg_catalog.ln(1 + pg_catalog.abs({value})))"


def is_constant(low: float, high: float) -> bool:
    """True if values are the same everywhere, but for the last digit of double precision."""
    return high / 2 - low / 2 <= _LAST_DIGITS / 2 * math.ulp(max(abs(low), abs(high)))


def number(value: float) -> str:
    """A number as SQL."""
    return f"({value!r}::double precision)"


def stepped(value: str, edges: Sequence[float], leaves: Sequence[str]) -> str:
    """SQL that finds by halving between which edges a number lies.

    Args:
        value: SQL of the number.
        edges: sorted, each part of what follows it.
        leaves: SQL of what is before, between and behind them: one more.
    """
    if not edges:
        return leaves[0]
    middle = len(edges) // 2
    low = stepped(value, edges[:middle], leaves[: middle + 1])
    high = stepped(value, edges[middle + 1 :], leaves[middle + 1 :])
    return f"CASE WHEN {value} < {edges[middle]!r} THEN {low} ELSE {high} END"
