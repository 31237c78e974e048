"""Columns that are crossed: an id for each combination of their values, for an embedding.

Dense layers learn a sum of effects at once and a product of columns slowly. A cross hands the product over: the day of
a month matters little, the day of a year much ("wide" features, Cheng et al. 2016, Wide & Deep Learning for Recommender
Systems). ``encodings`` names the columns with ``*`` between them: ``"month*day": "cross(10)"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.categories import Comparison, Integer
from cerebro_db.columns.encoded import EncodedColumn, composed
from cerebro_db.columns.ids import Ids
from cerebro_db.columns.values import Column, Values
from cerebro_db.errors import InvalidArgument

BETWEEN = "*"
_LEAST, _MOST = 2, 4


@composed
class Cross(Ids, frozen=True, omit_defaults=False, eq=False):
    """The number of a combination, as the id of a category; 0 where one of the values is missing.

    Attributes:
        parts: the columns, by which their values are compared.
    """

    method: ClassVar[str] = "cross"
    takes: ClassVar[tuple[Values, ...]] = (Values.CATEGORY,)

    parts: tuple[Integer, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _LEAST <= len(self.parts) <= _MOST or len(set(self.sources)) != len(self.parts):
            raise ValueError(self.name)

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Self:
        """The encoding of columns, before any row is read.

        Raises:
            InvalidArgument: there are too many, too few, or one twice.
        """
        names = [one.name for one in columns]
        name = BETWEEN.join(names)
        if not _LEAST <= len(set(names)) == len(names) <= _MOST:
            raise InvalidArgument(
                f"encodings: got the cross {name!r}; allowed: {_LEAST} to {_MOST} different columns"
            )
        return cls(
            name,
            ", ".join(one.type for one in columns),
            Values.CATEGORY,
            comparison=Comparison.TEXT,
            parts=tuple(Integer.planned(one) for one in columns),
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that are crossed."""
        return tuple(one.name for one in self.parts)

    def with_collations(self, collations: Mapping[str, tuple[str, ...]]) -> Self:
        """The encoding itself.

        Raises:
            InvalidArgument: the collation of a column takes texts for equal that are not the same.
        """
        for name in self.sources:
            if name in collations:
                raise InvalidArgument(
                    f"encodings, {self.name!r}: got the column {name!r}, whose collation takes different texts for "
                    "equal; allowed: columns of other collations",
                    hint="a view may have one text for all that are equal: SELECT lower(...)",
                )
        return self

    def rebuilt(self, at: Callable[[EncodedColumn], EncodedColumn]) -> Self:
        """The encoding of the columns of another table."""
        return replace(self, parts=tuple(at(one) for one in self.parts))

    def is_present(self, alias: str) -> str:
        """SQL condition: all columns have a value."""
        return " AND ".join(f"({one.is_present(alias)})" for one in self.parts)

    def category(self, alias: str) -> str:
        """SQL of the values as one text, that of a row."""
        listed = ", ".join(one.category(alias) for one in self.parts)
        return f'ROW({listed})::text COLLATE "C"'

    def to_fields(self) -> dict[str, Any]:
        """The fields of the recorded JSON."""
        return {**super().to_fields(), "parts": [one.to_fields() for one in self.parts]}
