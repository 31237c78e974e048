"""Earlier packings that a later one follows: of a packed table, or of what models were trained on."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from cerebro_db.columns.encoded import Recorded
from cerebro_db.configs.names import is_registered, model_reference
from cerebro_db.errors import InvalidData, WrongObjectType
from cerebro_db.models.registered import name_of, registered
from cerebro_db.models.trained import ModelTable, load_model_table
from cerebro_db.packing.targets import Target
from cerebro_db.postgres.names import shown_identifier
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import (
    PackedInput,
    PackedTable,
    PackedTarget,
    described,
    is_packed,
)
from cerebro_db.postgres.tables.relations import find

ENCODING_OF = "encoding_of"


@dataclass(frozen=True)
class Earlier:
    """Shapes, classes and encoding of an earlier packing.

    Attributes:
        name: the packed table or the models, for messages.
        inputs, targets: with their shapes and classes. What models were trained on is not known as exactly:
            such a target has no category, and its class values are texts.
        normalizing_const: the features are divided by it.
        encoding: how columns or images become features; None where rows have an array.
    """

    name: str
    inputs: tuple[PackedInput, ...]
    targets: tuple[PackedTarget, ...]
    normalizing_const: float
    encoding: Recorded | None


def of_packed(packed: PackedTable) -> Earlier:
    """The packing that made a table."""
    name = str(packed.relation.name)
    return Earlier(name, packed.inputs, packed.targets, packed.normalizing_const, packed.encoding)


def of_models(session: Session, table: ModelTable) -> Earlier:
    """The packing that models were trained on."""
    count = len(table.input_shapes)
    names = table.independent_varnames or ("",) * count
    inputs = tuple(
        PackedInput(name, shape, "float32", "")
        for name, shape in zip(names, table.input_shapes, strict=True)
    )
    targets = tuple(_target(session, table, place) for place in range(len(table.class_values)))
    return Earlier(name_of(table), inputs, targets, table.normalizing_const, table.encoding)


def _target(session: Session, table: ModelTable, place: int) -> PackedTarget:
    facts, values = table.targets.each[place], table.class_values[place]
    is_class = facts.kind == "class"
    found = 0
    if is_class:
        # An earlier version has not recorded how many there were. NULLs at the end are classes that were
        # not found, but the first one may be that of NULL labels.
        known = len([value for value in values if value is not None])
        found = table.classes_found[place] if table.classes_found else min(known + 1, len(values))
    listed = list(values[:found])
    sql = "SELECT %s::text[]::text"
    return PackedTarget(
        name=table.dependent_varnames[place],
        kind=facts.kind,
        shape=facts.shape,
        dtype="int32" if is_class else "float32",
        type="text" if is_class else "double precision",
        category=None,
        num_classes=facts.num_classes,
        classes_found=found,
        class_values=values,
        class_array=session.run(sql, (listed,))[0][0] if is_class else None,
        class_type="text[]" if is_class else "",
    )


def earlier(session: Session, text: str) -> Earlier:
    """The packing that a user names as ``encoding_of``: a packed table, a table of models, or a registered model.

    Args:
        session: has the caller's rights, and knows the search path.
        text: as given.

    Raises:
        UndefinedTable, UndefinedModel: there is none of that name.
        NotPermitted: the caller may not read its summary.
        WrongObjectType: it is something else.
    """
    if is_registered(text):
        return of_models(session, registered(session, model_reference(text, ENCODING_OF)))
    relation = find(session, text, ENCODING_OF)
    if is_packed(relation):
        return of_packed(described(session, text, ENCODING_OF))
    if not relation.has("mst_key"):
        raise WrongObjectType(
            f"{ENCODING_OF}: {relation.name} is neither packed nor a table of models",
            hint="name a table that cerebro.cerebro_pack_columns has made, a table of models, or a registered "
            "model such as 'model:name@alias'",
        )
    return of_models(session, load_model_table(session, text))


def followed(session: Session, target: Target, known: Earlier, place: int) -> Target:
    """The target of new rows with the classes of an earlier packing.

    Raises:
        InvalidData: it is of another kind, or its type cannot hold the class values.
    """
    model = known.targets[place]
    found = target.like(model, known.name)
    if model.category is not None or not found.is_class or found.values is None:
        return found
    try:
        cast = f"SELECT %s::text[]::{found.cast}[]::text"
        return replace(found, values=session.run(cast, (found.values,))[0][0])
    except StatementFailed as error:
        if error.sqlstate[:2] not in ("22", "42"):
            raise
        raise InvalidData(
            f"the column {target.column.name!r} of type {target.column.type} cannot hold the class values of "
            f"{known.name}, {found.values}: {error.message}",
            hint=f"cast it in a view: SELECT {shown_identifier(target.column.name)}::text",
        ) from None
