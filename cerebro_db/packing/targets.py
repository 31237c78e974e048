"""Targets and weights of rows: one class for each kind, which says how it is read, surveyed, followed and refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from msgspec.structs import replace

from cerebro_db.columns.inputs import (
    CAST_HINT,
    ELEMENT,
    NULL,
    Block,
    array_cast,
    array_literal,
    sent_array,
)
from cerebro_db.columns.numbers import FLOAT32_LIMIT
from cerebro_db.columns.values import FLOATS, INTEGERS, Column
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.postgres.names import literal, quote, shown_identifier
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTarget
from cerebro_db.postgres.tables.relations import Relation

_TEXTS = "S"
# Text-like, boolean, dates and times, enumerations.
_CLASS_CATEGORIES = {"S", "B", "D", "T", "E"}
# uuid, inet, cidr, macaddr: they have an order, as others of their categories do not.
_CLASS_TYPES = {2950, 869, 650, 829}
# Of the types that the server itself has; a type of an extension has an operator of its own.
_EQUALS = "OPERATOR(pg_catalog.=)"
_CLASS = "class"


class Target(Block, frozen=True, kw_only=True):
    """A dependent variable.

    Attributes:
        kind: ``class`` or ``float``.
        num_classes: what the caller wants, at least ``found``; 0 where there are none.
        found: how many classes there are; None where there can be none.
        values: all class values, as the server's text of an array; None where they are not known.
    """

    kind: ClassVar[str]

    num_classes: int = 0
    found: int | None = None
    values: str | None = None

    @property
    def may_be_one_hot(self) -> bool:
        """True for arrays of whole numbers: one-hot in every row, they are classes."""
        return False

    def check_wanted(self, wanted: int | None) -> None:
        """Refuse a number of classes that it cannot have."""

    def like(self, model: PackedTarget, name: str) -> Target:
        """The target with the classes of an earlier packing.

        Args:
            model: its target.
            name: of what it made, for messages.

        Raises:
            InvalidData: that was of another kind.
        """
        raise NotImplementedError

    def compared(self, session: Session, source: Relation, model: PackedTarget | None) -> Target:
        """The target whose classes are compared as the server compares values of their type.

        Args:
            session: has the caller's rights.
            source: the table.
            model: of the packed table that it follows, whose type counts.
        """
        return self

    @property
    def summary(self) -> tuple[str, str | None]:
        """Type and text of the array of class values in the summary, as NULL for each that was not found."""
        return "text[]", None

    def _unlike(self, model: PackedTarget, name: str) -> InvalidData:
        return InvalidData(
            f"the column {self.column.name!r} of type {self.column.type} holds {self.kind} "
            f"targets; those of {name} are {model.kind} targets of type {model.type}",
            hint=f"cast it in a view: SELECT {shown_identifier(self.column.name)}::{model.type}",
        )


class FloatTarget(Target, frozen=True, kw_only=True):
    """A number, or an array of numbers."""

    kind: ClassVar[str] = "float"

    @property
    def may_be_one_hot(self) -> bool:
        """True for arrays of whole numbers: one-hot in every row, they are classes."""
        return self.column.element_oid in INTEGERS

    def value(self, alias: str) -> str:
        """SQL of the array."""
        value = super().value(alias)
        return value if self.column.is_array else f"ARRAY[{value}]"

    @property
    def known_shape(self) -> str | None:
        """SQL of the shape of numbers, which have none; None of arrays."""
        return None if self.column.is_array else array_literal(())

    def refusal(
        self, fault: str, got: Sequence[int] | None, label: str | None, of: str
    ) -> tuple[str, str]:
        """The words behind the name of the column, and the hint."""
        if fault == ELEMENT and not self.column.is_array:
            fault = NULL  # a number is read as an array of one
        return super().refusal(fault, got, label, of)

    def check_wanted(self, wanted: int | None) -> None:
        """Refuse a number of classes."""
        if wanted is not None:
            raise InvalidArgument(
                f"num_classes: got {wanted}; allowed: NULL, as the column "
                f"{self.column.name!r} of type {self.column.type} holds float targets"
            )

    def one_hot(self, places: int) -> OneHotTarget:
        """The target as classes, of which there is one for each place of an array."""
        values = "{" + ",".join(map(str, range(places))) + "}"
        return OneHotTarget(self.column, "integer", values=values, found=places, places=places)

    def like(self, model: PackedTarget, name: str) -> Target:
        """The target with the classes of an earlier packing, where that had one-hot arrays."""
        if model.is_class and self.may_be_one_hot:
            found = self.one_hot(model.classes_found)
            return replace(found, num_classes=model.num_classes, shown=_shown(model))
        if model.is_class:
            raise self._unlike(model, name)
        return self


class ClassTarget(Target, frozen=True, kw_only=True):
    """A class.

    Attributes:
        null_id: which of the classes is NULL, if one is.
        shown: type and text of the array of class values that the summary has, where these are others than
            those that rows are compared with.
        equals: SQL operator by which classes are compared.
        varies: whether values may be equal by it that are written otherwise, as in ``citext``.
    """

    kind: ClassVar[str] = _CLASS
    dtype: ClassVar[str] = "int32"
    is_class: ClassVar[bool] = True

    found: int | None = 0
    null_id: int | None = None
    shown: tuple[str, str] | None = None
    equals: str = _EQUALS
    varies: bool = False

    @property
    def _listed(self) -> str:
        return f"{literal(self.values or '{}')}::{self.cast}[]"

    def joined(self, alias: str, place: int) -> str:
        """Class ids beside the rows; NULL is left to what is gathered, as a join that matches it is slow."""
        return (
            f" LEFT JOIN (SELECT u.v, (u.o - 1)::integer AS id FROM unnest({self._listed}) "
            f"WITH ORDINALITY AS u(v, o)) c{place} ON c{place}.v {self.equals} {self.value(alias)}"
        )

    def gathered(self, alias: str, place: int) -> str:
        """SQL of a class id in its binary form."""
        null_id = -1 if self.null_id is None else self.null_id
        missing = f"CASE WHEN {self.value(alias)} IS NULL THEN {null_id} ELSE -1 END"
        return f"pg_catalog.int4send(COALESCE(c{place}.id, {missing}))"

    def packed(self, data: str, positions: str) -> str:
        """SQL of the bytes of a buffer."""
        return f"cerebro._pack_labels({data}, r.keys, {positions})"

    @property
    def known_shape(self) -> str:
        """SQL of the shape, which a class has not."""
        return array_literal(())

    def shape_of(self, value: str) -> str:
        """SQL of NULL, as a class has no shape."""
        return "NULL::integer[]"

    def fault(self, value: str) -> str:
        """SQL of whether a value is none of the classes, where these are known."""
        if self.values is None:
            return "NULL::text"
        return (
            f"CASE WHEN NOT EXISTS (SELECT 1 FROM unnest({self._listed}) AS c(v) "
            f"WHERE c.v {self.equals} {value} OR (c.v IS NULL AND {value} IS NULL)) THEN '{_CLASS}' END"
        )

    def refusal(
        self, fault: str, got: Sequence[int] | None, label: str | None, of: str
    ) -> tuple[str, str]:
        """The words for a class that the training table does not have, and the hint."""
        if label is None:
            return "is NULL; allowed: no NULL, as in the training table", self._remedy(NULL, None)
        return self._unseen(label)

    def _unseen(self, label: str) -> tuple[str, str]:
        return (
            f"holds the class {label!r}; allowed: {self.values}",
            "leave such rows out in a view, or pack a training table that has this class",
        )

    def with_classes(self, values: str, found: int, has_null: bool, wanted: int | None) -> Self:
        """The target with the classes of a training source."""
        if wanted is not None and wanted < found:
            raise InvalidArgument(
                f"num_classes: got {wanted}; allowed: at least {found}, "
                f"as the column {self.column.name!r} has so many classes"
            )
        null_id = found - 1 if has_null else None
        classes = wanted or found
        return replace(self, values=values, found=found, null_id=null_id, num_classes=classes)

    @property
    def summary(self) -> tuple[str, str | None]:
        """Type and text of the array of class values in the summary, with NULL for each that was not found."""
        kind, values = self.shown or (f"{self.cast}[]", self.values)
        if values is not None:
            # The server's text of a one-dimensional array with at least one element ends with "}".
            values = values[:-1] + ",NULL" * (self.num_classes - (self.found or 0)) + "}"
        return kind, values

    def like(self, model: PackedTarget, name: str) -> Target:
        """The target with the classes of an earlier packing."""
        shown = None
        if model.is_one_hot and self.column.category == _TEXTS:
            shown = _shown(model)
        elif not model.is_class or model.category not in (None, self.column.category):
            raise self._unlike(model, name)
        known = model.class_values[: model.classes_found]
        return replace(
            self,
            values=model.class_array,
            found=model.classes_found,
            null_id=known.index(None) if None in known else None,
            num_classes=model.num_classes,
            shown=shown,
        )

    def compared(self, session: Session, source: Relation, model: PackedTarget | None) -> Self:
        """The target whose classes are compared as the server compares values of their type."""
        target = self
        if model is not None and model.category == self.column.category == _TEXTS:
            target = replace(target, cast=model.class_type.removesuffix("[]") or target.cast)
        operators = session.run(_OPERATOR, (target.cast,))
        collations = session.run(_COLLATION, (source.oid, target.column.name))
        equals = target.equals
        for schema, name in operators:
            operator = name.replace("%", "%%")
            equals = f"OPERATOR({quote(schema)}.{operator})"
        may_vary = (True,) in collations or target.column.type_oid == _INTERVAL_OID
        return replace(target, equals=equals, varies=bool(operators) or may_vary)


class OneHotTarget(ClassTarget, frozen=True, kw_only=True):
    """A one-hot array of whole numbers, whose class is the place of its 1, from 0.

    Attributes:
        places: numbers of an array.
    """

    places: int

    def value(self, alias: str) -> str:
        """SQL of the place of the 1; -1 of another array, NULL of NULL."""
        array = f"{alias}.{quote(self.column.name)}"
        return (
            f"(SELECT CASE WHEN {array} IS NULL THEN NULL "
            f"WHEN pg_catalog.array_ndims({array}) = 1 AND pg_catalog.count(e.v) = {self.places} "
            f"AND pg_catalog.count(*) = {self.places} "
            "AND pg_catalog.bool_and(e.v IN (0, 1)) AND pg_catalog.sum(e.v) = 1 "
            "THEN pg_catalog.max(CASE WHEN e.v = 1 THEN e.o - 1 END)::integer ELSE -1 END "
            f"FROM unnest({array}) WITH ORDINALITY AS e(v, o))"
        )

    def compared(self, session: Session, source: Relation, model: PackedTarget | None) -> Self:
        """The target as it is: places are compared."""
        return self

    def _unseen(self, label: str) -> tuple[str, str]:
        return (
            f"is not one-hot; allowed: arrays of {self.places} numbers, one of them 1 and all others 0, as the "
            "training table has classes",
            "arrays of real numbers are no classes: cast the column, in the source of the training table too, "
            "as in SELECT value::real[] AS value",
        )


class Weight(Block, frozen=True):
    """A weight of a row in training, which is stored behind its first target."""

    def gathered(self, alias: str, place: int) -> str:
        """SQL of the bytes of a row on their way to a worker."""
        return sent_array(f"ARRAY[{self.value(alias)}]")

    def shape_of(self, value: str) -> str:
        """SQL of NULL, as a weight has no shape."""
        return "NULL::integer[]"

    def fault(self, value: str) -> str:
        """SQL of a weight that cannot be one, as text."""
        good = f"{value} >= 0 AND {value} < {FLOAT32_LIMIT}"
        return f"CASE WHEN {good} THEN NULL ELSE COALESCE({value}::text, 'NULL') END"

    def refusal(
        self, fault: str, got: Sequence[int] | None, label: str | None, of: str
    ) -> tuple[str, str]:
        """The words behind the name of the column, and the hint."""
        return (
            f"holds {fault} as a sample weight; allowed: finite numbers from 0",
            "put a weight from 0 there in a view, or leave the row out",
        )


def _shown(model: PackedTarget) -> tuple[str, str]:
    return model.class_type, model.class_array or "{}"


def target_of(column: Column) -> Target:
    """Reading of the dependent variable: integers, text and the like are classes.

    Raises:
        WrongObjectType: the column is neither of classes nor of numbers.
    """
    if column.type_oid in FLOATS:
        return FloatTarget(column, "double precision")
    is_class = column.type_oid in INTEGERS | _CLASS_TYPES
    if is_class or column.category in _CLASS_CATEGORIES:
        return ClassTarget(column, column.cast)
    cast = array_cast(column)
    if cast is None:
        raise WrongObjectType(
            f"dependent_varname: the column {column.name!r} is of type {column.type}; allowed: "
            "integers, text, boolean, dates and times and enumerations for classes, real, "
            "double precision, numeric and arrays of numbers for float targets",
            hint=CAST_HINT,
        )
    return FloatTarget(column, cast[0] or column.cast)


def weight_of(column: Column, role: str) -> Weight:
    """The weights of rows.

    Raises:
        WrongObjectType: the column holds no numbers.
    """
    if column.type_oid not in INTEGERS | FLOATS:
        raise WrongObjectType(
            f"{role}: the column {column.name!r} is of type {column.type}; allowed: smallint, "
            "integer, bigint, real, double precision or numeric",
            hint=CAST_HINT,
        )
    return Weight(column, "double precision")


# The operator by which the server itself finds equal values of a type, where that is none of its own types:
# by their names alone a session finds operators of its search_path only, and of text for all that can be cast
# to it. Parameter: SQL text of the type.
_OPERATOR = """
SELECT n.nspname, o.oprname
  FROM pg_catalog.pg_type t
  JOIN pg_catalog.pg_opclass c ON c.opcintype = t.oid AND c.opcdefault
  JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
  JOIN pg_catalog.pg_amop a ON a.amopfamily = c.opcfamily AND a.amoplefttype = t.oid
       AND a.amoprighttype = t.oid AND a.amopstrategy = 3
  JOIN pg_catalog.pg_operator o ON o.oid = a.amopopr
  JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
 WHERE t.oid = %s::pg_catalog.regtype
   AND t.typnamespace <> (SELECT p.oid FROM pg_catalog.pg_namespace p WHERE p.nspname = 'pg_catalog')
"""
# Whether values of a column may be equal that are not the same. Older servers have no such collations.
# Parameters: oid of the table, name of the column.
_COLLATION = """
SELECT COALESCE(pg_catalog.row_to_json(l) ->> 'collisdeterministic', 'true') = 'false'
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
 WHERE a.attrelid = %s AND a.attname = %s
"""
_INTERVAL_OID = 1186
