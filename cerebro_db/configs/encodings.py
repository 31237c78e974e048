"""Encodings of columns of mixed types as one row of numbers: values, their JSON, what can be read."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from cerebro_db.configs.images import ImageEncoding
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

# Each feature is a part of one expression of the server.
MAX_FEATURES = 10_000
_VERSION = 1


class Kind(StrEnum):
    """Kind of values in a column, as far as its encoding goes."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    CATEGORY = "category"


class Method(StrEnum):
    """Method by which a column becomes features."""

    STANDARDIZE = "standardize"
    MINMAX = "minmax"
    NONE = "none"
    ONEHOT = "onehot"
    INTEGER = "integer"

    @property
    def is_categorical(self) -> bool:
        """True if the values are categories rather than numbers."""
        return self in (Method.ONEHOT, Method.INTEGER)

    @property
    def is_scaled(self) -> bool:
        """True if something is subtracted from numbers, and they are divided."""
        return self in (Method.STANDARDIZE, Method.MINMAX)


class Comparison(StrEnum):
    """Equality of the categories of a column: what is compared."""

    WRITTEN = ""  # texts as the server writes them, in encodings of 0.1
    TEXT = "text"
    FOLDED = "citext"
    COLLATED = "collation"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    INSTANT = "timestamptz"
    TIME = "time"
    ZONED_TIME = "timetz"
    INTERVAL = "interval"
    UUID = "uuid"
    NETWORK = "inet"
    ADDRESS = "macaddr"


NUMERIC_METHODS = tuple(method for method in Method if not method.is_categorical)
CATEGORICAL_METHODS = tuple(method for method in Method if method.is_categorical)


@dataclass(frozen=True)
class Statistics:
    """Statistics of a column in the rows that an encoding was computed from.

    Attributes:
        rows: how many rows there were.
        missing: of these, how many had no value.
        unseen: of these, how many had a category that is not among those of the encoding.
        edges: of numbers, the upper ends of the bins but the last one, each part of its bin.
        shares: of numbers, the share of each bin, in the values that are not missing.
    """

    rows: int
    missing: int
    unseen: int = 0
    edges: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class ColumnEncoding:
    """One column: a number is encoded as ``(value - center) / scale``.

    Attributes:
        name: of the column.
        type: SQL type in the training source.
        kind: what it holds.
        method: what is made of it.
        has_missing: whether values were missing there, so that there is an indicator of it.
        center, scale: of numbers.
        fill: the number that is taken where a value is missing.
        categories: sorted; the code of the first one is 1. A value that is none of them is 0, or
            no 1 at all in a one-hot encoding.
        comparison: of categories.
        collation: schema and name of the one by which categories are compared, where that is not
            deterministic.
        form: of the type that the column has in the table at hand; no part of what is recorded.
        statistics: of the training rows; None where an earlier version has recorded none. They are
            no part of what a value becomes, so encodings that differ in them are equal.
    """

    name: str
    type: str
    kind: Kind
    method: Method
    has_missing: bool = False
    center: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    categories: tuple[str, ...] = ()
    statistics: Statistics | None = field(default=None, compare=False)
    comparison: Comparison = Comparison.WRITTEN
    collation: tuple[str, ...] = ()
    form: str = field(default="", compare=False)

    @property
    def width(self) -> int:
        """Number of features that it makes."""
        if self.method is Method.INTEGER:
            return 1
        values = len(self.categories) if self.method is Method.ONEHOT else 1
        return values + self.has_missing

    @property
    def filled(self) -> float:
        """Value that replaces a missing number."""
        return (self.fill - self.center) / self.scale


@dataclass(frozen=True)
class Encoding:
    """The columns in the order of their features.

    Attributes:
        styles: settings with which a view was read to compute it, such as ``TimeZone``: what its columns
            hold may depend on these. None of them makes another encoding.
    """

    columns: tuple[ColumnEncoding, ...]
    styles: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def width(self) -> int:
        """Number of features of a row."""
        return sum(column.width for column in self.columns)

    def column_of(self, place: int) -> ColumnEncoding:
        """The column that a feature comes from.

        Args:
            place: of the feature, from 0.
        """
        ends = itertools.accumulate(column.width for column in self.columns)
        return next(column for column, end in zip(self.columns, ends, strict=True) if place < end)

    def to_fields(self) -> list[dict[str, Any]]:
        """JSON fields from which ``of_fields`` makes the same."""
        fields = [asdict(column) for column in self.columns]
        for one in fields:
            del one["form"]
        return fields

    @classmethod
    def of_fields(cls, fields: Any) -> Encoding:
        """The encoding that was recorded.

        Raises:
            TypeError, KeyError, ValueError: it was not written by ``to_fields``.
        """
        found = cls(tuple(_column(column) for column in fields))
        names = {column.name for column in found.columns}
        if not 1 <= found.width <= MAX_FEATURES or len(names) != len(found.columns):
            raise ValueError(found.width)
        return found

    def features(self) -> Iterator[dict[str, Any]]:
        """Description for readers: a row for each feature, and for each code of a category."""
        position = 1
        for column in self.columns:
            yield from _features(column, position)
            position += column.width


Recorded = Encoding | ImageEncoding


def recorded_text(encoding: Recorded) -> str:
    """The JSON from which ``parse_recorded`` makes the same again."""
    if isinstance(encoding, ImageEncoding):
        return json.dumps({"version": _VERSION, "image": encoding.to_fields()})
    more = {"session": dict(encoding.styles)} if encoding.styles else {}
    return json.dumps({"version": _VERSION, "columns": encoding.to_fields(), **more})


def parse_recorded(text: str, what: str) -> Recorded:
    """The encoding that a text describes.

    Args:
        text: JSON.
        what: names it in messages.

    Raises:
        InvalidArgument: it was not made by ``recorded_text``.
    """
    try:
        value = json.loads(text)
        if value["version"] != _VERSION:
            raise ValueError(value["version"])
        if "image" in value:
            return ImageEncoding.of_fields(value["image"])
        found = Encoding.of_fields(value["columns"])
        styles = value.get("session", {})
        if not all(_is_text(text) for pair in styles.items() for text in pair):
            raise ValueError(styles)
        return replace(found, styles=styles)
    except _NOT_OURS:
        raise InvalidArgument(
            f"{what}: got the encoding {shown(text)}; allowed: what packing has written"
        ) from None


_NOT_OURS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
             InvalidArgument)  # fmt: skip


def _column(fields: Any) -> ColumnEncoding:
    center, scale, fill = (float(fields[name]) for name in ("center", "scale", "fill"))
    categories = fields["categories"]
    texts = [fields["name"], fields["type"], *categories]
    if not all(map(_is_text, texts)) or not scale:
        raise ValueError(fields["name"])
    found = ColumnEncoding(
        fields["name"],
        fields["type"],
        Kind(fields["kind"]),
        Method(fields["method"]),
        bool(fields["has_missing"]),
        center,
        scale,
        fill,
        tuple(categories),
        _statistics(fields.get("statistics")),
        Comparison(fields.get("comparison", "")),
        tuple(fields.get("collation", ())),
    )
    is_collated = found.comparison is Comparison.COLLATED
    if len(found.collation) != 2 * is_collated or not all(map(_is_text, found.collation)):
        raise ValueError(found.collation)
    categorical = found.method.is_categorical
    if categorical != bool(categories) or (found.kind is Kind.CATEGORY and not categorical):
        raise ValueError(found.method)
    if not all(map(math.isfinite, (center, scale, fill, found.filled))):
        raise ValueError(found.filled)
    return found


def _statistics(fields: Any) -> Statistics | None:
    if fields is None:
        return None
    rows, missing, unseen = (fields[name] for name in ("rows", "missing", "unseen"))
    edges, shares = (tuple(map(float, fields[name])) for name in ("edges", "shares"))
    counts = all(isinstance(count, int) for count in (rows, missing, unseen))
    if not counts or not 0 <= missing + unseen <= rows or min(missing, unseen) < 0:
        raise ValueError(rows)
    if len(shares) != len(edges) + bool(edges) or not all(0 <= share <= 1 for share in shares):
        raise ValueError(shares)
    if not all(map(math.isfinite, edges)) or list(edges) != sorted(set(edges)):
        raise ValueError(edges)
    return Statistics(rows, missing, unseen, edges, shares)


def _is_text(value: object) -> bool:
    """True if the server can hold it: whole characters, no NUL."""
    return isinstance(value, str) and "\0" not in value and bool(value.encode() or not value)


def _features(column: ColumnEncoding, position: int) -> Iterator[dict[str, Any]]:
    common = {
        "column_name": column.name,
        "column_type": column.type,
        "encoding": column.method.value,
    }
    last = position + column.width - 1
    if column.method is Method.INTEGER:
        codes = list(enumerate([None, *column.categories]))
        for code, category in codes:
            name = f"{column.name} = {category}" if code else f"{column.name} is none of these"
            yield common | _row(position, name, category=category, code=code)
        if column.has_missing:
            yield common | _row(position, f"{column.name} is missing", code=len(codes))
        return
    if column.method is Method.ONEHOT:
        for place, category in enumerate(column.categories):
            yield common | _row(position + place, f"{column.name} = {category}", category=category)
    else:
        numbers = {"center": column.center, "scale": column.scale, "fill": column.fill}
        yield common | _row(position, column.name) | numbers
    if column.has_missing:
        yield common | _row(last, f"{column.name} is missing") | {"encoding": "missing"}


def _row(position: int, feature: str, **more: Any) -> dict[str, Any]:
    return {"position": position, "feature": feature, **more}
