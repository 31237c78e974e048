"""Earlier packings that a later one follows: of a packed table, or of what models were trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cerebro_db.columns.categories import Categorical
from cerebro_db.columns.encoded import Encoding
from cerebro_db.columns.images import ImageEncoding
from cerebro_db.columns.recorded import Recorded
from cerebro_db.configs.names import is_registered, model_reference
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.models.registered import name_of, registered
from cerebro_db.models.trained import ModelTable, load_model_table
from cerebro_db.packing.encoding_plan import DEFAULT_CATEGORIES, EncodingRequest, planned
from cerebro_db.packing.request import PackRequest
from cerebro_db.packing.source import Target
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
from cerebro_db.postgres.tables.relations import Relation, find

ROLE = "encoding_of"


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
        return of_models(session, registered(session, model_reference(text, ROLE)))
    relation = find(session, text, ROLE)
    if is_packed(relation):
        return of_packed(described(session, text, ROLE))
    if not relation.has("mst_key"):
        raise WrongObjectType(
            f"{ROLE}: {relation.name} is neither packed nor a table of models",
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


def check_follows(request: PackRequest, source: Relation, target: Target, known: Earlier) -> None:
    """Refuse arguments that say something else than the earlier packing does.

    Raises:
        InvalidArgument: one does, or the earlier packing was made by another function.
    """
    given = request.normalizing_const
    usual = None if given is None else (255.0 if request.image else 1.0)
    if given not in (usual, known.normalizing_const):
        raise InvalidArgument(
            f"normalizing_const: got {given:g}; allowed with {ROLE}: {known.normalizing_const:g}, that of "
            f"{known.name}"
        )
    if request.num_classes is not None:
        raise InvalidArgument(
            f"num_classes: got {request.num_classes}; allowed with {ROLE}: NULL, as {known.name} says which "
            "classes there are"
        )
    is_columns = isinstance(known.encoding, Encoding)
    if request.encoding is not None:
        if not isinstance(known.encoding, Encoding):
            raise _made_otherwise(known, "columns", "cerebro_pack_columns")
        _check_methods(request.encoding, source, target, known.encoding, known.name)
    elif request.image is not None:
        if is_columns or known.encoding is None:
            raise _made_otherwise(known, "images", "cerebro_pack_images")
        _check_image(request, known)
    elif known.encoding is not None:
        what = "cerebro_pack_columns" if is_columns else "cerebro_pack_images"
        raise InvalidArgument(
            f"{ROLE}: got {known.name}, which has an encoding of {'columns' if is_columns else 'images'}; "
            "allowed for arrays: one without",
            hint=f"cerebro.{what} packs with it",
        )


def _made_otherwise(known: Earlier, what: str, function: str) -> InvalidArgument:
    return InvalidArgument(
        f"{ROLE}: got {known.name}, which has no encoding of {what}; allowed: one that has",
        hint=f"name a table that cerebro.{function} has made, or a model that was trained on one",
    )


def _check_image(request: PackRequest, known: Earlier) -> None:
    assert request.image is not None
    if request.image.shape is None:
        return
    wanted, recorded = request.image.encoding(""), known.encoding
    if isinstance(recorded, ImageEncoding) and recorded != wanted:
        raise InvalidArgument(
            f"image_shape, image_format: got {list(wanted.shape)}, {wanted.format.value!r}; allowed with "
            f"{ROLE}: those of {known.name}, {list(recorded.shape)}, {recorded.format.value!r}"
        )


def _check_methods(
    request: EncodingRequest, source: Relation, target: Target, recorded: Encoding, name: str
) -> None:
    """Refuse methods other than those that are recorded; the defaults are taken for them."""
    listed = [one.categories for one in recorded.columns if isinstance(one, Categorical)]
    most = max(map(len, listed), default=0)
    if request.max_categories != DEFAULT_CATEGORIES and most > (request.max_categories or 0):
        raise InvalidArgument(
            f"max_categories: got {request.max_categories}; allowed with {ROLE}: at least {most}, as {name} has "
            "so many categories of a column"
        )
    usual = EncodingRequest()
    asked = replace(
        usual,
        excluded=request.excluded,
        max_categories=request.max_categories,
        min_coverage=request.min_coverage,
    )
    if request == asked:
        return
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in recorded.names)
    wanted = planned(source, names, (target.column.name, None), replace(request, excluded=None))
    for one, other in zip(recorded.columns, wanted.columns, strict=True):
        if one.method != other.method:
            raise InvalidArgument(
                f"numbers, categories, encodings: got {other.method!r} for the column {one.name!r}; "
                f"allowed with {ROLE}: {one.method!r}, as {name} has it",
                hint=f"leave these arguments out where {ROLE} is given",
            )
