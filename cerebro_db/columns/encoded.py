"""Columns of mixed types as one row of numbers: what every kind of encoded column says.

A kind is a subclass of :class:`EncodedColumn`, registered by its name, which users write in ``encodings``. It says
which columns it takes, which aggregates of the training rows it needs and what it concludes from them, and the SQL of
its features. The same object is what packing records, so that the same SQL makes the same features of a raw row when
new rows are packed, encoded or predicted, years later. Nothing outside of the class asks which kind a column is of.

What a kind wants to know of the training rows it says in ``fitting``, see ``surveys``. Most kinds need two rounds:
``facts``, and ``measured`` with their values; ``refinements``, aggregates that need these, and ``refined``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from msgspec import convert
from msgspec.structs import fields, replace

from cerebro_db.columns import options
from cerebro_db.columns.options import Option, Word
from cerebro_db.columns.surveys import Aggregates, Fitting, Survey
from cerebro_db.columns.values import Column, Values
from cerebro_db.errors import CerebroError, InvalidData
from cerebro_db.postgres.names import quote
from cerebro_db.wire import Wire, plain

# Each feature is a part of one expression of the server.
MAX_FEATURES = 10_000
# The input that is made of several columns.
FEATURES = "features"


class Described(Wire, frozen=True, omit_defaults=False, eq=False):
    """Description of features; two that make the same features are equal.

    Attributes:
        beside: names of attributes that do not decide about features.
        unrecorded: those of them that are of the table at hand, and not recorded.
    """

    beside: ClassVar[frozenset[str]] = frozenset()
    unrecorded: ClassVar[frozenset[str]] = frozenset()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Described)
            and type(other) is type(self)
            and self._deciding() == other._deciding()
        )

    def __ne__(self, other: object) -> bool:  # which a struct has of its own, too
        return not self == other

    def __hash__(self) -> int:
        return hash(self._deciding())

    def _deciding(self) -> tuple[Any, ...]:
        return tuple(getattr(self, one) for one in self.__struct_fields__ if one not in self.beside)

    def to_fields(self) -> dict[str, Any]:
        """The fields of the recorded JSON."""
        fields = plain(self)
        return {name: fields[name] for name in fields if name not in self.unrecorded}


class Recorded(Described, frozen=True, omit_defaults=False, eq=False):
    """An encoding: how rows become inputs, which is recorded with packed tables and models.

    Attributes:
        key: what its recorded JSON has, and that of no other kind.
    """

    key: ClassVar[str]

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        raise NotImplementedError

    @property
    def meaning(self) -> object:
        """Meaning of the features: equal for encodings by which a model can go on to be trained."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The recorded JSON."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The encoding of recorded JSON; errors of any kind where that was not made by ``to_json``."""
        raise NotImplementedError


# The kinds of encodings that are recorded.
RECORDED: list[type[Recorded]] = []
_R = TypeVar("_R", bound=type[Recorded])


def kept(kind: _R) -> _R:
    """Make a kind of encoding known by what its JSON has; a decorator."""
    RECORDED.append(kind)
    return kind


class Statistics(Wire, frozen=True, omit_defaults=False):
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

    def __post_init__(self) -> None:
        good = (
            min(self.missing, self.unseen) >= 0
            and self.missing + self.unseen <= self.rows
            and len(self.shares) in (0, len(self.edges) + bool(self.edges))
            and all(0 <= share <= 1 for share in self.shares)
            and all(map(math.isfinite, self.edges))
            and list(self.edges) == sorted(set(self.edges))
        )
        if not good:
            raise ValueError(self)


Run = Callable[[str], list[tuple[Any, ...]]]
# The argument of a kind that may be named for all columns, whatever they hold.
EVERY = "*"
# Whether there is an indicator of missing values; by default where the training rows have such.
INDICATOR = Word("indicator", ("missing", "no_missing"))


class EncodedColumn(Described, frozen=True, omit_defaults=False, eq=False):
    """A column and its features.

    Attributes:
        method: name of the kind.
        argument: the argument of ``cerebro_pack_columns`` that may name it for all columns, ``EVERY`` if both may;
            empty where only ``encodings`` can.
        takes: values that it can be made of.
        options: that users may write behind the name of the kind.
        sorts: how many of its facts sort the values.
        part: the input that its features are part of: several kinds may make several inputs.
        name: of the column.
        type: SQL type in the training source.
        kind: what it holds.
        has_missing: whether values were missing there, so that there is an indicator of it.
        statistics: of the training rows; None where an earlier version has recorded none.
        form: of the type that the column has in the table at hand.
        indicator: whether there shall be an indicator of missing values, ``missing`` or ``no_missing``; empty to
            have one where such are.
        why: what made ``auto`` choose it, in a few words.
    """

    method: ClassVar[str]
    argument: ClassVar[str] = ""
    takes: ClassVar[tuple[Values, ...]] = tuple(Values)
    options: ClassVar[tuple[Option, ...]] = ()
    sorts: ClassVar[int] = 0
    part: ClassVar[str] = FEATURES
    beside: ClassVar[frozenset[str]] = frozenset({"statistics", "form", "indicator", "why"})
    unrecorded: ClassVar[frozenset[str]] = frozenset({"form", "indicator"})

    name: str
    type: str
    kind: Values
    has_missing: bool = False
    statistics: Statistics | None = None
    form: str = ""
    indicator: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        if not is_text(self.name) or not is_text(self.type) or self.kind not in self.takes:
            raise ValueError(self.name)

    # -- what a user asks for ----------------------------------------------------------------------
    @classmethod
    def planned(cls, column: Column) -> Self:
        """The encoding of a column that it takes, before any row is read."""
        assert column.values is not None
        return cls(column.name, column.type, column.values, form=column.form)

    def with_options(self, given: Mapping[str, Any]) -> Self:
        """The encoding with the options that a user has written.

        Args:
            given: values by the names of the options.
        """
        return replace(self, **given)

    @property
    def written(self) -> str:
        """The kind and its options as a user writes them, as far as they decide about features."""
        listed = [one for one in self.options if one.field not in self.unrecorded]
        usual = {one.name: one.default for one in fields(type(self))}
        values = {one.field: getattr(self, one.field) for one in listed}
        return options.written(self.method, listed, values, usual)

    def collated(self, collation: tuple[str, ...]) -> Self:
        """The encoding of a column whose collation takes texts for equal that are not the same.

        Args:
            collation: its schema and its name.
        """
        return self

    def with_collations(self, collations: Mapping[str, tuple[str, ...]]) -> Self:
        """The encoding with the collation of its column, where that is among these, by the names of columns."""
        own = collations.get(self.name)
        return self if own is None else self.collated(own)

    def fits(self, column: Column) -> bool:
        """True if values of another column become those of the recorded type, and lose nothing."""
        return column.values is self.kind

    def at(self, column: Column) -> Self:
        """The encoding of a column of another table that fits."""
        return replace(self, form=column.form)

    def rebuilt(self, at: Callable[[EncodedColumn], EncodedColumn]) -> EncodedColumn:
        """The encoding in another table.

        Args:
            at: finds a column there, and returns its encoding.
        """
        return at(self)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return (self.name,)

    @property
    def is_fitted(self) -> bool:
        """True once all is known that features need."""
        return True

    def may_become(self, other: EncodedColumn) -> bool:
        """True if the survey of rows might make another encoding of it, by another kind."""
        return False

    @property
    def ids(self) -> int:
        """Number of ids, the rows of an embedding; 0 where its feature is no id."""
        return 0

    @property
    def categories_listed(self) -> int:
        """Number of categories that count towards ``max_categories``."""
        return 0

    # -- the survey of the training rows -----------------------------------------------------------
    def fitting(self, survey: Survey) -> Fitting:
        """Yield what has to be known of the training rows, and return the encoding that follows from it."""
        known, *facts = yield Aggregates(self.facts(), self.sorts)
        column = self.counted(survey, known).measured(survey, known, facts)
        wanted = column.refinements()
        return column.refined((yield Aggregates(wanted))) if wanted else column

    def counted(self, survey: Survey, known: int) -> Self:
        """The encoding that knows how many values are missing.

        Args:
            known: rows that have a value.

        Raises:
            InvalidData: there is none.
        """
        if not known:
            raise InvalidData(
                f"column {self.name!r}: got no value in {survey.rows} rows; allowed: at least one value",
                hint="leave the column out",
            )
        missing = survey.rows - known
        has_missing = self.indicator == "missing" or (missing > 0 and not self.indicator)
        return replace(self, has_missing=has_missing, statistics=Statistics(survey.rows, missing))

    def facts(self) -> Sequence[str]:
        """Aggregates over the alias ``s``: how many rows have a value, and what else ``measured`` takes."""
        raise NotImplementedError

    def measured(self, survey: Survey, known: int, facts: Sequence[Any]) -> Self:
        """The encoding as far as the facts decide it.

        Args:
            known: rows that have a value.
            facts: values of the other aggregates.
        """
        raise NotImplementedError

    def refinements(self) -> Sequence[str]:
        """Aggregates over the alias ``s`` that need what was measured; none where that is all."""
        return []

    def refined(self, values: Sequence[Any]) -> Self:
        """The encoding with the values of the refinements."""
        return self

    def beyond(self, what: str) -> CerebroError:
        """The error of a column whose aggregates cannot be computed."""
        return InvalidData(f"column {self.name!r}: got values {what}; allowed: values without that")

    # -- rows of other tables ----------------------------------------------------------------------
    def largest(self, alias: str) -> str | None:
        """SQL of an aggregate of new rows that ``check`` has to see; None of kinds that take any value."""
        return None

    def check(self, run: Run, rows: str, alias: str, largest: float) -> None:
        """Refuse new rows with a value that its features do not hold.

        Args:
            run: returns the rows of a statement.
            rows: what stands behind FROM, with that alias.
            largest: value of the aggregate.

        Raises:
            InvalidData: there is one.
        """

    # -- features ----------------------------------------------------------------------------------
    @property
    def width(self) -> int:
        """Number of features."""
        raise NotImplementedError

    def features(self, alias: str) -> list[str]:
        """SQL of the features of a row of ``alias``, each a number and never NULL."""
        raise NotImplementedError

    def missing(self, alias: str) -> str:
        """SQL condition over ``alias``: there is no value, as far as the encoding goes."""
        raise NotImplementedError

    def unseen(self, alias: str) -> str | None:
        """SQL condition over ``alias``: the value is one that no training row had; None if all are known."""
        return None

    def number(self, alias: str) -> str | None:
        """SQL of the number whose distribution is watched, NULL where it is missing; None if there is none."""
        return None

    # -- for readers -------------------------------------------------------------------------------
    @property
    def meaning(self) -> object:
        """Meaning of the features: equal for encodings that differ in means and scales only."""
        return (self.name, self.method, self.has_missing)

    def to_fields(self) -> dict[str, Any]:
        """The fields of the recorded JSON."""
        found = {"method": self.method, **super().to_fields()}
        return found if self.why else {name: found[name] for name in found if name != "why"}

    def described(self, position: int) -> Iterator[dict[str, Any]]:
        """Rows for readers: one for each feature, and for each code of a category.

        Args:
            position: of the first feature, from 1.
        """
        for row in self._described(position):
            yield self._common() | row
        missing = self._missing_row(position + self.width - 1) if self.has_missing else None
        if missing is not None:
            yield self._common() | missing

    def _common(self) -> dict[str, Any]:
        return {
            "column_name": self.name,
            "column_type": self.type,
            "encoding": self.written,
            "input": self.part,
        }

    def _described(self, position: int) -> Iterator[dict[str, Any]]:
        yield described_row(position, self.name)

    def _missing_row(self, position: int) -> dict[str, Any] | None:
        return described_row(position, f"{self.name} is missing") | {"encoding": "missing"}

    def _sql(self, alias: str) -> str:
        return f"{alias}.{quote(self.name)}"


def described_row(position: int, feature: str, **more: Any) -> dict[str, Any]:
    """A row for readers."""
    return {"position": position, "feature": feature, **more}


def is_text(value: str) -> bool:
    """True if the server can hold it: whole characters, no NUL."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


# The kinds by their names, in the order in which messages list them.
METHODS: dict[str, type[EncodedColumn]] = {}
_C = TypeVar("_C", bound=type[EncodedColumn])


def registered(kind: _C) -> _C:
    """Make a kind known by its name; a decorator."""
    METHODS[kind.method] = kind
    return kind


# The kinds that are made of several columns, by their names.
COMPOSED: dict[str, type[EncodedColumn]] = {}


def composed(kind: _C) -> _C:
    """Make a kind known that is made of several columns; a decorator."""
    COMPOSED[kind.method] = kind
    return kind


def methods(values: Values) -> list[str]:
    """Names of the kinds that take such values."""
    return [name for name, kind in METHODS.items() if values in kind.takes]


def methods_of_argument(argument: str) -> list[str]:
    """Names of the kinds that an argument may have."""
    return [name for name, kind in METHODS.items() if kind.argument in (argument, EVERY)]


@kept
class Encoding(Recorded, frozen=True, omit_defaults=False, eq=False):
    """The columns in the order of their features.

    Attributes:
        styles: settings with which a view was read to compute it, such as ``TimeZone``: what its columns
            hold may depend on these. None of them makes another encoding.
    """

    key: ClassVar[str] = "columns"
    beside: ClassVar[frozenset[str]] = frozenset({"styles"})

    columns: tuple[EncodedColumn, ...]
    styles: Mapping[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """The recorded JSON."""
        more = {"session": dict(self.styles)} if self.styles else {}
        return {self.key: [column.to_fields() for column in self.columns], **more}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Encoding:
        """The encoding of recorded JSON."""
        kinds = {**METHODS, **COMPOSED}
        columns = tuple(convert(one, kinds[one["method"]]) for one in value[cls.key])
        found = Encoding(columns, convert(value.get("session", {}), dict[str, str]))
        texts = [text for pair in found.styles.items() for text in pair]
        if not 1 <= found.width <= MAX_FEATURES or len({one.name for one in columns}) != len(
            columns
        ):
            raise ValueError(found.width)
        if not all(map(is_text, texts)) or not all(column.is_fitted for column in columns):
            raise ValueError(value)
        return found

    @property
    def parts(self) -> list[str]:
        """The names of the inputs that the columns make."""
        return list(dict.fromkeys(column.part for column in self.columns))

    def part(self, name: str) -> Encoding:
        """The columns of one input."""
        return replace(self, columns=tuple(one for one in self.columns if one.part == name))

    @property
    def pieces(self) -> list[Piece]:
        """The columns in the order of their features: input by input."""
        found = []
        for part in self.parts:
            first = 0
            for column in self.columns:
                if column.part == part:
                    found.append(Piece(part, first, column))
                    first += column.width
        return found

    @property
    def ids(self) -> dict[str, tuple[int, ...]]:
        """Numbers of ids of the columns, by the inputs that hold ids."""
        found = {part: tuple(one.ids for one in self.part(part).columns) for part in self.parts}
        return {part: counts for part, counts in found.items() if any(counts)}

    @property
    def width(self) -> int:
        """Number of features of a row."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys(name for column in self.columns for name in column.sources))

    @property
    def meaning(self) -> object:
        """Meaning of the features of all columns, whatever their means and scales."""
        return [column.meaning for column in self.columns]

    def column_of(self, place: int) -> str:
        """Name of the column that a feature comes from.

        Args:
            place: of the feature, from 0.
        """
        ends = itertools.accumulate(piece.column.width for piece in self.pieces)
        pairs = zip(self.pieces, ends, strict=True)
        return next(piece.column.name for piece, end in pairs if place < end)

    def expression(self, alias: str) -> str:
        """SQL over ``alias``: all features of a row, ``double precision[]``, never NULL; input after input."""
        return _array([sql for piece in self.pieces for sql in piece.column.features(alias)])

    def readings(self, alias: str) -> list[tuple[str, str]]:
        """The name of each column, and SQL of its features."""
        return [(column.name, _array(column.features(alias))) for column in self.columns]

    def described(self) -> Iterator[dict[str, Any]]:
        """Rows for readers, of all columns; positions count from 1 in each input."""
        for piece in self.pieces:
            yield from piece.column.described(piece.first + 1)


class Piece(NamedTuple):
    """The features of a column in an input.

    Attributes:
        part: the input.
        first: place of the first one there, from 0.
    """

    part: str
    first: int
    column: EncodedColumn

    def described(self) -> dict[str, Any]:
        """Column, encoding, place and number of ids, as ``input_columns`` of the summary has them."""
        column = self.column
        return {
            "column": column.name,
            "encoding": column.written,
            "first": self.first,
            "width": column.width,
            "ids": column.ids,
            "has_missing": column.has_missing,
        }


def _array(features: Sequence[str]) -> str:
    return f"ARRAY[{', '.join(features)}]::double precision[]"
