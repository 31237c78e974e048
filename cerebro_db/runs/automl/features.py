"""Columns that a model is to learn from, and those that it is not, with the reasons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from cerebro_db.columns.times import PARTS_OF
from cerebro_db.columns.values import Column, Values

# A text that differs in so many of its rows is no category.
_MOST_DISTINCT = 0.5
_ELAPSED = "elapsed"
_BYTES = "bytea"
_IMAGES = (
    "it is bytea; of images alone cerebro.cerebro_pack_images packs rows, and cerebro.cerebro_image makes nets; beside other "
    "columns cerebro.cerebro_image_array makes them an input of cerebro.cerebro_pack"
)


@dataclass(frozen=True)
class ColumnFacts:
    """Facts of a column, of the rows that were looked at.

    Attributes:
        rows: that were looked at.
        known: of them, those that have a value.
        distinct: different values.
        span: of whole numbers, how many there are from the least to the greatest value.
    """

    column: Column
    rows: int
    known: int
    distinct: int
    span: int | None = None


@dataclass
class Features:
    """Columns of a model.

    Attributes:
        names: of the columns that it learns from.
        left_out: the reasons, by the names of the others.
        encodings: of columns that have no usual one, and of crosses.
        facts: of the columns that it learns from.
    """

    names: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    encodings: dict[str, str] = field(default_factory=dict)
    facts: list[ColumnFacts] = field(default_factory=list)

    @property
    def encodings_text(self) -> str | None:
        """JSON of the encodings; None where all have the usual ones."""
        return json.dumps(self.encodings) if self.encodings else None


def features_of(
    facts: Sequence[ColumnFacts], time_column: str | None, group_column: str | None
) -> Features:
    """The columns that a model is to learn from.

    Args:
        facts: of all columns but the target.
        time_column, group_column: by which rows are split, or None.
    """
    found = Features()
    for one in facts:
        name = one.column.name
        reason = _why_not(one, time_column, group_column)
        if reason is not None:
            found.left_out[name] = reason
            continue
        found.names.append(name)
        found.facts.append(one)
        if name == time_column:
            found.encodings[name] = f"cyclic({', '.join(_parts(one.column))})"
    return found


def can_be_encoded(column: Column) -> bool:
    """True for columns of types that an encoding knows."""
    return column.values is not None


def _parts(column: Column) -> list[str]:
    """Parts of a time that recur: how late it is, a model cannot know of later rows."""
    return [part for part in PARTS_OF.get(column.form, ()) if part != _ELAPSED]


def _why_not(one: ColumnFacts, time_column: str | None, group_column: str | None) -> str | None:
    column = one.column
    if column.name == group_column:
        return "it is the group"
    if column.name == time_column and not _parts(column):
        return "it is the time, and new rows are later"
    if not can_be_encoded(column):
        cast = f"nothing encodes the type {column.type}; a view may cast it"
        return _IMAGES if column.base_type == _BYTES else cast
    if one.known == 0:
        return "it has no value"
    if one.distinct == 1 and one.known == one.rows:
        return "it is the same in all rows"
    if (
        column.values is Values.CATEGORY
        and one.distinct > 2
        and one.distinct > _MOST_DISTINCT * one.known
    ):
        return f"{one.distinct} values in {one.known} rows are no categories"
    if one.span is not None and one.span == one.distinct == one.rows:
        return "it numbers the rows"
    return None
