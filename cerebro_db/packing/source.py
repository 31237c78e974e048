"""Source of a packing job: its columns and their kinds, and what its rows turn out to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from cerebro_db.columns.image_reading import require_pillow
from cerebro_db.columns.images import ImageEncoding, ImageFormat
from cerebro_db.columns.inputs import (
    CAST_HINT,
    ImageInput,
    Input,
    array_cast,
    array_input,
    encoded_input,
    image_input,
)
from cerebro_db.columns.recorded import Recorded
from cerebro_db.columns.values import FLOATS, INTEGERS, Column, all_whole
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.packing.encoding_plan import matched
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.statements.packing_extras import EQUALS
from cerebro_db.postgres.names import quote, shown_identifier
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTarget, is_packed
from cerebro_db.postgres.tables.relations import Relation, column

_TEXTS = "S"
# Text-like, boolean, dates and times, enumerations.
_CLASS_CATEGORIES = {"S", "B", "D", "T", "E"}
# uuid, inet, cidr, macaddr: they have an order, as others of their categories do not.
_CLASS_TYPES = {2950, 869, 650, 829}


@dataclass(frozen=True)
class Target:
    """The dependent variable.

    Attributes:
        column: of the source.
        kind: ``class`` or ``float``.
        cast: SQL type that it is read as.
        shape: of one target; ``()`` for a class or a number.
        values: all class values, as the server's text of an array.
        found: how many classes there are.
        null_id: which of them is NULL, if one is.
        num_classes: what the caller wants, at least ``found``.
        places: numbers of a one-hot array, whose class is the place of its 1; 0 where the column holds
            classes themselves.
        told: type and text of the array of class values that the summary has, where these are others than
            those that rows are compared with.
        equals: SQL operator by which classes are compared.
        varies: whether values may be equal by it that are written otherwise, as in ``citext``.
    """

    column: Column
    kind: str
    cast: str
    shape: tuple[int, ...] = ()
    values: str | None = None
    found: int = 0
    null_id: int | None = None
    num_classes: int = 0
    places: int = 0
    told: tuple[str, str] | None = None
    equals: str = EQUALS
    varies: bool = False

    @property
    def may_be_one_hot(self) -> bool:
        """True for arrays of whole numbers: one-hot in every row, they are classes."""
        return not self.is_class and self.column.element_oid in INTEGERS

    @property
    def is_class(self) -> bool:
        """True if the target is a class label."""
        return self.kind == "class"

    @property
    def wire_shape(self) -> tuple[int, ...]:
        """The shape in which a worker reads a float target: always an array."""
        return self.shape or (1,)

    def one_hot(self, places: int) -> Target:
        """The target as classes, of which there is one for each place of an array."""
        values = "{" + ",".join(map(str, range(places))) + "}"
        return replace(
            self,
            kind="class",
            cast="integer",
            shape=(),
            values=values,
            found=places,
            places=places,
            equals=EQUALS,
        )

    def with_classes(self, values: str, found: int, has_null: bool, wanted: int | None) -> Target:
        """The target with the classes of a training source."""
        if wanted is not None and wanted < found:
            raise InvalidArgument(
                f"num_classes: got {wanted}; allowed: at least {found}, "
                f"as the column {self.column.name!r} has so many classes"
            )
        null_id = found - 1 if has_null else None
        return replace(
            self, values=values, found=found, null_id=null_id, num_classes=wanted or found
        )

    def like(self, model: PackedTarget, name: str) -> Target:
        """The target with the classes of an earlier packing.

        Args:
            model: its target.
            name: of what it made, for messages.
        """
        if model.is_class and self.may_be_one_hot:
            told = (model.class_type, model.class_array or "{}")
            one_hot = self.one_hot(model.classes_found)
            return replace(one_hot, num_classes=model.num_classes, told=told)
        if model.is_one_hot and self.column.category == _TEXTS:
            told = (model.class_type, model.class_array or "{}")
            return replace(self._of(model), told=told)
        others = model.category is not None and model.category != self.column.category
        if model.kind != self.kind or (self.is_class and others):
            raise InvalidData(
                f"the column {self.column.name!r} of type {self.column.type} holds {self.kind} "
                f"targets; those of {name} are {model.kind} targets "
                f"of type {model.type}",
                hint=f"cast it in a view: SELECT {shown_identifier(self.column.name)}::{model.type}",
            )
        return self._of(model)

    def _of(self, model: PackedTarget) -> Target:
        known = model.class_values[: model.classes_found]
        return replace(
            self,
            values=model.class_array,
            found=model.classes_found,
            null_id=known.index(None) if None in known else None,
            num_classes=model.num_classes,
        )


def within_limits(session: Session, given: Input) -> Input:
    """The input with the setting's bound of pixels, beyond which images are refused."""
    if not isinstance(given, ImageInput):
        return given
    limit = Catalog(session).settings().max_image_pixels
    return replace(given, image=structs.replace(given.image, max_pixels=limit))


def image_column(source: Relation, listed: str | None, image: ImageEncoding) -> ImageInput:
    """The input that a column of images is.

    Raises:
        WrongObjectType: the column is not of type bytea.
        MissingPackage: nothing can read such images.
    """
    found = image_input(column(source, listed, "independent_varname"), image)
    if image.format is ImageFormat.ENCODED:
        require_pillow()
    return found


def recorded_input(source: Relation, listed: str | None, encoding: Recorded | None) -> Input:
    """The input of rows that are read as those of a training table were.

    Args:
        source: where the rows are.
        listed: a column of arrays; with an encoding NULL, ``*`` or its columns; a column of images,
            NULL for the one of the training table.
        encoding: as recorded with the training table.
    """
    if encoding is None:
        return array_input(column(source, listed, "independent_varname"))
    if isinstance(encoding, ImageEncoding):
        quoted = '"' + encoding.name.replace('"', '""') + '"'
        return image_column(source, quoted if listed is None else listed, encoding)
    return encoded_input(matched(source, listed, encoding, "independent_varname"))


def target_of(column: Column) -> Target:
    """Reading of the dependent variable: integers, text and the like are classes.

    Raises:
        WrongObjectType: the column is neither of classes nor of numbers.
    """
    if column.type_oid in FLOATS:
        return Target(column, "float", "double precision")
    is_class = column.type_oid in INTEGERS | _CLASS_TYPES
    if is_class or column.category in _CLASS_CATEGORIES:
        return Target(column, "class", column.cast)
    cast = array_cast(column)
    if cast is None:
        raise WrongObjectType(
            f"dependent_varname: the column {column.name!r} is of type {column.type}; allowed: "
            "integers, text, boolean, dates and times and enumerations for classes, real, "
            "double precision, numeric and arrays of numbers for float targets",
            hint=CAST_HINT,
        )
    return Target(column, "float", cast[0] or column.cast)


def looked_at(session: Session, rows: str, alias: str, column: Column) -> Column:
    """The column, and whether its values are whole where its type does not tell.

    Args:
        rows: what stands behind FROM, with that alias.
    """
    if not column.may_be_whole:
        return column
    value = f"{alias}.{quote(column.name)}"
    value = f"pg_catalog.unnest({value})" if column.is_array else value
    found = session.run(all_whole(rows, value))
    return replace(column, has_whole_values=found == [(True,)])


def check_number(column: Column, role: str) -> None:
    """Refuse a column that holds no numbers."""
    if column.type_oid not in INTEGERS | FLOATS:
        raise WrongObjectType(
            f"{role}: the column {column.name!r} is of type {column.type}; allowed: smallint, "
            "integer, bigint, real, double precision or numeric",
            hint=CAST_HINT,
        )


def check_source(relation: Relation) -> None:
    """Refuse a source that is itself packed, which is an easy mistake."""
    if is_packed(relation):
        raise WrongObjectType(
            f"source_table: {relation.name} is packed already; allowed: a table with a row "
            "for each example",
            hint="name the table that it was packed from, or train on it with cerebro.cerebro_fit_multiple",
        )


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


def compared(
    session: Session, source: Relation, target: Target, model: PackedTarget | None = None
) -> Target:
    """A target of classes that are compared as the server compares values of their type.

    Args:
        session: has the caller's rights.
        source: the table.
        target: as its column alone tells.
        model: of the packed table that it follows, whose type counts.
    """
    if not target.is_class or target.places:
        return target
    if model is not None and model.category == target.column.category == _TEXTS:
        target = replace(target, cast=model.class_type.removesuffix("[]") or target.cast)
    operators = session.run(_OPERATOR, (target.cast,))
    collations = session.run(_COLLATION, (source.oid, target.column.name))
    equals = target.equals
    for schema, name in operators:
        operator = name.replace("%", "%%")
        equals = f"OPERATOR({quote(schema)}.{operator})"
    varies = bool(operators) or (True,) in collations or target.column.type_oid == _INTERVAL_OID
    return replace(target, equals=equals, varies=varies)
