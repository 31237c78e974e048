"""Kinds of columns that are made of dates and times."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.encoded import INDICATOR, EncodedColumn, described_row, is_text, registered
from cerebro_db.columns.numbers import Standardize
from cerebro_db.columns.options import Option, Text, Words
from cerebro_db.columns.surveys import Fitting, Survey
from cerebro_db.columns.values import Column, Values
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.names import literal

ELAPSED = "elapsed"
_PARTS = ("hour", "weekday", "month", ELAPSED)
_OF_DAYS, _OF_HOURS = _PARTS[1:], _PARTS[:1]
# The parts that values of a type have.
PARTS_OF = {
    "date": _OF_DAYS, "timestamp": _PARTS, "timestamptz": _PARTS, "time": _OF_HOURS, "timetz": _OF_HOURS,
}  # fmt: skip
_ZONED = "timestamptz"
_TURN = 6.283185307179586
_KNOWN_ZONE = (
    "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_timezone_names z "
    "WHERE pg_catalog.lower(z.name) = pg_catalog.lower(%s))"
)


@registered
class Cyclic(Standardize, frozen=True, omit_defaults=False, eq=False):
    """A date or time as sine and cosine of its place in the day, the week and the year, and the days that have elapsed.

    The days are standardized. Sine and cosine are 0 where the value is missing, as at no time.

    Attributes:
        parts: those that there are, of ``hour`` (with minutes and seconds), ``weekday``, ``month``, ``elapsed``.
        zone: the time zone in which parts of ``timestamp with time zone`` are read.
    """

    method: ClassVar[str] = "cyclic"
    argument: ClassVar[str] = ""
    takes: ClassVar[tuple[Values, ...]] = (Values.TIME,)
    options: ClassVar[tuple[Option, ...]] = (
        Words("parts", _PARTS), Text("zone", "Europe/Berlin"), INDICATOR,
    )  # fmt: skip

    parts: tuple[str, ...] = ()
    zone: str = ""

    def __post_init__(self) -> None:
        if not set(self.parts) <= set(_PARTS) or not is_text(self.zone):
            raise ValueError(self.parts)
        super().__post_init__()

    @classmethod
    def planned(cls, column: Column) -> Self:
        """The encoding with all parts that the type has.

        Raises:
            InvalidArgument: it has none, as an interval.
        """
        if column.form not in PARTS_OF:
            raise InvalidArgument(
                f"encodings, {column.name!r} of type {column.type}: got 'cyclic'; allowed: for dates, times and "
                "timestamps"
            )
        return replace(super().planned(column), parts=PARTS_OF[column.form])

    def with_options(self, given: Mapping[str, Any]) -> Self:
        """The encoding with the parts that a user wants, each once and in their own order.

        Raises:
            InvalidArgument: the type does not have one of them, or no time zone.
        """
        wanted = given.get("parts", self.parts)
        role = f"encodings, {self.name!r} of type {self.type}"
        for part in wanted:
            if part not in self.parts:
                raise InvalidArgument(
                    f"{role}: got the part {part!r}; allowed: {', '.join(self.parts)}"
                )
        if "zone" in given and self.form != _ZONED:
            raise InvalidArgument(
                f"{role}: got zone={given['zone']}; allowed: for timestamp with time zone only"
            )
        parts = tuple(part for part in self.parts if part in wanted)
        return super().with_options({**given, "parts": parts})

    def may_become(self, other: EncodedColumn) -> bool:
        """True for the same parts in the time zone of some session."""
        if not isinstance(other, Cyclic) or self.zone:
            return False
        return self.written == replace(other, zone="").written

    @property
    def is_fitted(self) -> bool:
        """True once there are parts."""
        return bool(self.parts)

    @property
    def meaning(self) -> object:
        """The meaning of the features: their parts."""
        return (super().meaning, self.parts)

    def fitting(self, survey: Survey) -> Fitting:
        """Mean and deviation of the days, in the time zone of the session where none is given."""
        if self.zone and survey.run(_KNOWN_ZONE, (self.zone,)) != [(True,)]:
            raise InvalidArgument(
                f"encodings, {self.name!r}: got zone={self.zone}; allowed: a time zone of the server",
                hint="SELECT name FROM pg_timezone_names",
            )
        zone = self.zone or (survey.zone if self.form == _ZONED else "")
        return (yield from super(Cyclic, replace(self, zone=zone)).fitting(survey))

    # -- features ----------------------------------------------------------------------------------
    @property
    def _cycles(self) -> list[str]:
        return [part for part in self.parts if part != ELAPSED]

    @property
    def width(self) -> int:
        """Two for each cycle, one for the days, one for the indicator."""
        return 2 * len(self._cycles) + (ELAPSED in self.parts) + self.has_missing

    def features(self, alias: str) -> list[str]:
        """SQL of sine and cosine of each cycle, the standardized days, and the indicator."""
        finite = self.is_finite(alias)
        found = [
            f"CASE WHEN {finite} THEN pg_catalog.{wave}({_TURN} * {self._turn(part, alias)}) ELSE 0 END"
            for part, wave in itertools.product(self._cycles, ("sin", "cos"))
        ]
        days, *indicator = super().features(alias)
        return [*found, *([days] if ELAPSED in self.parts else []), *indicator]

    def _turn(self, part: str, alias: str) -> str:
        """SQL of the place in a cycle, from 0 to 1."""
        moment = self._moment(alias)
        if part == "hour":
            return f"pg_catalog.date_part('epoch', {moment}::time) / 86400"
        if part == "weekday":
            return f"pg_catalog.date_part('dow', {moment}) / 7"
        return f"(pg_catalog.date_part('month', {moment}) - 1) / 12"

    def _moment(self, alias: str) -> str:
        """SQL of the value as the clock on the wall shows it."""
        name = self._sql(alias)
        if self.form == _ZONED:
            return f"({name} AT TIME ZONE {literal(self.zone or 'UTC')})"
        return f"{name}::timestamp" if self.form == "date" else name

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        names = [f"{wave} of {part}" for part in self._cycles for wave in ("sine", "cosine")]
        for place, name in enumerate(names, position):
            yield described_row(place, f"{self.name}: {name}")
        if ELAPSED in self.parts:
            place = position + len(names)
            days = {"center": self.center, "scale": self.scale, "fill": self.fill}
            yield described_row(place, f"{self.name}: days", **days)
