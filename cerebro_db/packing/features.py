"""Kinds of features: what the functions that pack make inputs of, and how rows of other tables become the same inputs.

Each kind is a class, registered for the request of the function that packs so. A request is checked without any table
(``check``); then its names are resolved, either anew (``planned``) or as they were recorded (``matched``), which is also
how rows are read for predictions and evaluations. Nothing outside of the class asks which kind it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from cerebro_db.columns.crosses import BETWEEN, Cross
from cerebro_db.columns.encoded import (
    COMPOSED,
    EVERY,
    METHODS,
    EncodedColumn,
    Encoding,
    Recorded,
    methods,
    methods_of_argument,
)
from cerebro_db.columns.image_reading import require_pillow
from cerebro_db.columns.images import ImageEncoding, ImageFormat, image_encoding
from cerebro_db.columns.inputs import ROLE, Input, encoded_inputs, image_input, input_of
from cerebro_db.columns.numbers import Plain
from cerebro_db.columns.options import Call, read_options, usage
from cerebro_db.columns.values import Column, Values
from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.packing.earlier import ENCODING_OF, Earlier
from cerebro_db.postgres.names import shown_identifier
from cerebro_db.postgres.tables.kinds import MAX_LISTED
from cerebro_db.postgres.tables.relations import ALL, Relation, column, listed_columns, split_names
from cerebro_db.requests.packing import (
    PackColumnsRequest,
    PackImagesRequest,
    PackingRequest,
    PackRequest,
)

P = TypeVar("P", bound=PackingRequest)
R = TypeVar("R", bound=Recorded | None)


class Features(Generic[P, R]):
    """A kind of features.

    Attributes:
        made_of: what they are made of.
        function: that packs so.
        recorded: the encoding that is recorded; None where a column holds the features.
    """

    made_of: ClassVar[str]
    function: ClassVar[str]
    recorded: ClassVar[type[Recorded] | None] = None

    def check(self, request: P) -> None:
        """Refuse what no table could make right."""

    def planned(self, request: P, source: Relation, taken: Sequence[str]) -> tuple[Input, ...]:
        """The inputs that a request asks for; an encoding is still to be fitted.

        Args:
            request: to pack.
            source: the table.
            taken: the dependent variable, then the column of weights, if there is one.
        """
        raise NotImplementedError

    def matched(
        self, source: Relation, listed: str | None, recorded: R, inputs: int
    ) -> tuple[Input, ...]:
        """The inputs of rows that are read as those of a training table were.

        Args:
            source: where the rows are.
            listed: their columns, as a user names them.
            recorded: the encoding of the training table.
            inputs: how many that had.
        """
        raise NotImplementedError

    def check_follows(
        self, request: P, source: Relation, taken: Sequence[str], known: Earlier
    ) -> None:
        """Refuse arguments that say something else than the earlier packing does."""

    def _made_otherwise(self, known: Earlier) -> InvalidArgument:
        return InvalidArgument(
            f"{ENCODING_OF}: got {known.name}, which has no encoding of {self.made_of}; allowed: one that has",
            hint=f"name a table that cerebro.{self.function} has made, or a model that was trained on one",
        )


class Arrays(Features[PackRequest, None]):
    """Columns that hold the features: an array of numbers, or several columns of arrays and numbers."""

    made_of = "arrays"
    function = "cerebro_pack"

    def planned(
        self, request: PackRequest, source: Relation, taken: Sequence[str]
    ) -> tuple[Input, ...]:
        """The columns of a list."""
        return self.matched(source, request.independent_varname, None, 1)

    def matched(
        self, source: Relation, listed: str | None, recorded: None, inputs: int
    ) -> tuple[Input, ...]:
        """The columns of a list, as many as there were."""
        names = names_in(source, listed, ROLE)
        if len(names) > 1:
            return tuple(input_of(column(source, one, ROLE), is_only=False) for one in names)
        if inputs > 1 and listed is None:
            return ()
        return (input_of(column(source, listed, ROLE)),)

    def check_follows(
        self, request: PackRequest, source: Relation, taken: Sequence[str], known: Earlier
    ) -> None:
        """Refuse what has an encoding."""
        if known.encoding is not None:
            other = kind_of(known.encoding)
            raise InvalidArgument(
                f"{ENCODING_OF}: got {known.name}, which has an encoding of {other.made_of}; "
                "allowed for arrays: one without",
                hint=f"cerebro.{other.function} packs with it",
            )


class Columns(Features[PackColumnsRequest, Encoding]):
    """Columns of mixed types, which are encoded together."""

    made_of = "columns"
    function = "cerebro_pack_columns"
    recorded = Encoding

    def check(self, request: PackColumnsRequest) -> None:
        """Refuse methods that there are not."""
        for argument in ("numbers", "categories"):
            _method(argument, getattr(request, argument), methods_of_argument(argument))
        _own_methods(request)

    def planned(
        self, request: PackColumnsRequest, source: Relation, taken: Sequence[str]
    ) -> tuple[Input, ...]:
        """The columns and their methods."""
        return encoded_inputs(_plan(request, source, request.independent_varname, taken))

    def matched(
        self, source: Relation, listed: str | None, recorded: Encoding, inputs: int
    ) -> tuple[Input, ...]:
        """The recorded columns, by the recorded encoding."""
        return encoded_inputs(matched(source, listed, recorded, ROLE))

    def check_follows(
        self, request: PackColumnsRequest, source: Relation, taken: Sequence[str], known: Earlier
    ) -> None:
        """Refuse methods other than those that are recorded; the defaults are taken for them."""
        recorded, name = known.encoding, known.name
        if not isinstance(recorded, Encoding):
            raise self._made_otherwise(known)
        usual = request.function.defaults
        most = max(one.categories_listed for one in recorded.columns)
        if request.max_categories != usual["max_categories"] and most > request.max_categories:
            raise InvalidArgument(
                f"max_categories: got {request.max_categories}; allowed with {ENCODING_OF}: at least {most}, "
                f"as {name} has so many categories of a column"
            )
        if all(getattr(request, one) == usual[one] for one in _OF_METHODS):
            return
        single = [one.name for one in recorded.columns if one.method in METHODS]
        names = ", ".join(map(exactly, single))
        plan = _plan(replace(request, excluded=None), source, names, taken[:1])
        known_as = {one.name: one for one in recorded.columns}
        wanted = {one.name: one for one in plan.columns}
        for column_name in {**known_as, **wanted}:
            one, other = known_as.get(column_name), wanted.get(column_name)
            if one and other and (one.written == other.written or other.may_become(one)):
                continue
            got, allowed = (_written(each) for each in (other, one))
            raise InvalidArgument(
                f"numbers, categories, encodings: got {got} for the column {column_name!r}; "
                f"allowed with {ENCODING_OF}: {allowed}, as {name} has it",
                hint=f"leave these arguments out where {ENCODING_OF} is given",
            )


class Images(Features[PackImagesRequest, ImageEncoding]):
    """A column of images."""

    made_of = "images"
    function = "cerebro_pack_images"
    recorded = ImageEncoding

    def check(self, request: PackImagesRequest) -> None:
        """Refuse formats and shapes that there are not."""
        if not (request.encoding_of and request.image_shape is None):
            _image(request)

    def planned(
        self, request: PackImagesRequest, source: Relation, taken: Sequence[str]
    ) -> tuple[Input, ...]:
        """The column of images."""
        return (_image_column(source, request.independent_varname, _image(request)),)

    def matched(
        self, source: Relation, listed: str | None, recorded: ImageEncoding, inputs: int
    ) -> tuple[Input, ...]:
        """A column of images, by default the recorded one."""
        listed = exactly(recorded.name) if listed is None else listed
        return (_image_column(source, listed, recorded),)

    def check_follows(
        self, request: PackImagesRequest, source: Relation, taken: Sequence[str], known: Earlier
    ) -> None:
        """Refuse another format or shape."""
        recorded = known.encoding
        if not isinstance(recorded, ImageEncoding):
            raise self._made_otherwise(known)
        if request.image_shape is not None and recorded != (wanted := _image(request)):
            raise InvalidArgument(
                f"image_shape, image_format: got {list(wanted.shape)}, {wanted.format.value!r}; allowed with "
                f"{ENCODING_OF}: those of {known.name}, {list(recorded.shape)}, {recorded.format.value!r}"
            )


# The kinds, by the requests of the functions that pack so.
KINDS: dict[type[PackingRequest], Features[Any, Any]] = {
    PackRequest: Arrays(),
    PackColumnsRequest: Columns(),
    PackImagesRequest: Images(),
}


def kind_of(recorded: Recorded | None) -> Features[Any, Any]:
    """The kind of features with such an encoding; None for arrays."""
    kind = None if recorded is None else type(recorded)
    return next(one for one in KINDS.values() if one.recorded is kind)


def divisor_of(request: PackingRequest) -> float | None:
    """The normalizing constant of a request; NULL means 1, where that is the default."""
    usual = request.function.defaults.get("normalizing_const", 1.0)
    given = request.normalizing_const
    return 1.0 if given is None and usual == 1.0 else given


def check_follows(
    request: PackingRequest, source: Relation, taken: Sequence[str], known: Earlier
) -> None:
    """Refuse arguments that say something else than the earlier packing does.

    Raises:
        InvalidArgument: one does, or the earlier packing was made by another function.
    """
    given, usual = divisor_of(request), request.function.defaults.get("normalizing_const", 1.0)
    if given not in (usual, known.normalizing_const):
        raise InvalidArgument(
            f"normalizing_const: got {given:g}; allowed with {ENCODING_OF}: {known.normalizing_const:g}, that of "
            f"{known.name}"
        )
    if request.num_classes is not None:
        raise InvalidArgument(
            f"num_classes: got {request.num_classes}; allowed with {ENCODING_OF}: NULL, as {known.name} says which "
            "classes there are"
        )
    KINDS[type(request)].check_follows(request, source, taken, known)


# -- lists of columns --------------------------------------------------------------------------------
def exactly(name: str) -> str:
    """The name of a column as users write it in a list, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'


def names_in(source: Relation, text: str | None, role: str) -> list[str]:
    """The names of a list, as they are written; a column whose own name has commas is one.

    Raises:
        InvalidArgument: there are too many of them.
    """
    if text is None or "," not in text or source.has(text):
        return ["" if text is None else text]
    names = split_names(text, role)
    if len(names) > MAX_LISTED:
        raise InvalidArgument(f"{role}: got {len(names)} names; allowed: up to {MAX_LISTED}")
    return names


def id_columns(source: Relation, text: str | None, taken: Sequence[str]) -> tuple[Column, ...]:
    """The columns of a list that name a row.

    Args:
        source: the table.
        text: names separated by commas; that of one column may have commas.
        taken: names that other columns of the output have.

    Raises:
        InvalidArgument: one is taken, or there twice.
    """
    role = "id_col"
    names = names_in(source, text, role)
    found = tuple(column(source, name or text, role) for name in names)
    for place, one in enumerate(found):
        if one.name in taken:
            raise InvalidArgument(
                f"{role}: got {one.name!r}, which is a column of the output table",
                hint="select it under another name in a view",
            )
        if one in found[:place]:
            raise InvalidArgument(f"{role}: got the column {one.name!r} twice; allowed: once")
    return found


# -- images ------------------------------------------------------------------------------------------
def _image(request: PackImagesRequest) -> ImageEncoding:
    return image_encoding("", request.image_format, request.image_shape)


def _image_column(source: Relation, listed: str | None, image: ImageEncoding) -> Input:
    found = image_input(column(source, listed, ROLE), image)
    if image.format is ImageFormat.ENCODED:
        require_pillow()
    return found


# -- columns of mixed types --------------------------------------------------------------------------
_OF_METHODS = ("numbers", "categories", "encodings")


def matched(source: Relation, listed: str | None, encoding: Encoding, role: str) -> Encoding:
    """A recorded encoding for another table, whose columns must be of the same kinds.

    Args:
        source: the table.
        listed: NULL, ``*`` or the recorded columns, in any order.
        encoding: as recorded.
        role: the name of the argument, for messages.
    """
    names = encoding.names
    if listed is not None and listed.strip() != ALL:
        given = [one.name for one in listed_columns(source, listed, role)]
        if sorted(given) != sorted(names):
            raise InvalidArgument(
                f"{role}: got {shown(listed)}; allowed: NULL, '*' or the columns of the recorded "
                f"encoding: {', '.join(map(shown_identifier, names))}"
            )

    def at(known: EncodedColumn) -> EncodedColumn:
        found = column(source, exactly(known.name), role)
        if found.values is None:
            raise _unsuitable(found, role)
        if not known.fits(found):
            raise InvalidData(
                f"{role}: the column {found.name!r} is of type {found.type}; the recorded encoding "
                f"is of {known.type}",
                hint=f"cast it in a view: SELECT {shown_identifier(found.name)}::{known.type}",
            )
        return known.at(found)

    return replace(encoding, columns=tuple(one.rebuilt(at) for one in encoding.columns))


def _plan(
    request: PackColumnsRequest, source: Relation, listed: str | None, taken: Sequence[str]
) -> Encoding:
    """The columns and their methods; the numbers are still to be found in the rows.

    Raises:
        UndefinedColumn: a column does not exist.
        WrongObjectType: a column is of a type that has no encoding.
        InvalidArgument: a method does not fit the column, or the target is among the columns.
    """
    columns = _chosen(source, listed, taken, request.excluded)
    written = _own_methods(request)
    crossed = [name for name in written if BETWEEN in name and not source.has(name)]
    own = {
        column(source, name, "encodings").name: method
        for name, method in written.items()
        if name not in crossed
    }
    names = [one.name for one in columns]
    for name in own:
        if name not in names:
            raise InvalidArgument(
                f"encodings: got {name!r}, which is not among the columns that are packed",
                hint=nearest(name, names),
            )
    single = [_planned(one, own.get(one.name), request) for one in columns]
    return Encoding((*single, *(_crossed(source, name, written[name], taken) for name in crossed)))


def _crossed(source: Relation, text: str, own: object, taken: Sequence[str]) -> EncodedColumn:
    """The cross of the columns that a key of ``encodings`` names.

    Raises:
        UndefinedColumn, WrongObjectType, InvalidArgument: they cannot be crossed, or not so.
    """
    columns = [column(source, name, "encodings") for name in text.split(BETWEEN)]
    for one in columns:
        if one.values is None:
            raise _unsuitable(one, "encodings")
        if one.name in taken:
            raise InvalidArgument(
                f"encodings: got {text!r} with {one.name!r}, which is the dependent variable or the weight; "
                "allowed: other columns"
            )
    method = _method(f"encodings, {text!r}", own, list(COMPOSED), COMPOSED)
    return Cross.of(columns).with_options(method.options)


def _own_methods(request: PackColumnsRequest) -> Mapping[str, Any]:
    """The methods by the names of their columns, as written."""
    if request.encodings is None:
        return {}
    try:
        parsed = json.loads(request.encodings)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidArgument(
            f"encodings: got {shown(request.encodings)}; allowed: a JSON object such as "
            '{"age": "minmax", "city": "integer"}'
        )
    return parsed


def _chosen(
    source: Relation, listed: str | None, taken: Sequence[str], excluded: str | None
) -> Sequence[Column]:
    left_out = set(taken)
    if excluded is not None:
        left_out |= {one.name for one in listed_columns(source, excluded, "excluded")}
    columns = listed_columns(source, listed, ROLE)
    if listed is not None and listed.strip() == ALL:
        columns = tuple(one for one in columns if one.name not in left_out)
    elif excluded is not None:
        raise InvalidArgument(
            f"excluded: got {shown(excluded)}; allowed: NULL where independent_varname is not '*'"
        )
    for one in columns:
        if one.name == taken[0]:
            raise InvalidArgument(
                f"{ROLE}: got {one.name!r}, which is the dependent variable",
                hint="leave it out of independent_varname",
            )
    if not columns:
        raise InvalidArgument(f"{ROLE}: got {shown(listed)}; no column of {source.name} is left")
    return columns


def _planned(column: Column, own: object, request: PackColumnsRequest) -> EncodedColumn:
    if column.values is None:
        raise _unsuitable(column, ROLE)
    if own is not None:
        role = f"encodings, {column.name!r} of type {column.type}"
        return _method(role, own, methods(column.values)).planned(column)
    argument = "categories" if column.values is Values.CATEGORY else "numbers"
    method = _method(argument, getattr(request, argument), methods_of_argument(argument))
    if column.values is Values.BOOLEAN and method.kind.argument != EVERY:
        return Plain.planned(column)  # 0 and 1 unless someone wants it otherwise
    return method.planned(column)


def _unsuitable(column: Column, role: str) -> WrongObjectType:
    return WrongObjectType(
        f"{role}: the column {column.name!r} is of type {column.type}; allowed: numbers, boolean, "
        "text, enumerations, uuid, network addresses, dates and times",
        hint="exclude it, or cast it in a view; an array of numbers is packed with cerebro.cerebro_pack",
    )


class _Method(NamedTuple):
    """A kind of column, and the options that a user has given it."""

    kind: type[EncodedColumn]
    options: Mapping[str, Any]

    def planned(self, column: Column) -> EncodedColumn:
        """The encoding of a column."""
        return self.kind.planned(column).with_options(self.options)


def _written(planned: EncodedColumn | None) -> str:
    return "nothing" if planned is None else repr(planned.written)


def _method(
    role: str,
    value: object,
    allowed: Sequence[str],
    kinds: Mapping[str, type[EncodedColumn]] = METHODS,
) -> _Method:
    """The kind that a text names, with its options.

    Raises:
        InvalidArgument: there is no such kind, or it has no such options.
    """
    call = Call.of(value) if isinstance(value, str) else Call("", ())
    if call.name not in allowed:
        got = "NULL" if value is None else shown(value)
        near = nearest(call.name[:80], allowed) if call.name else None
        raise InvalidArgument(
            f"{role}: got {got}; allowed: {', '.join(allowed)}",
            hint=near if near and near.startswith("Did") else None,
        )
    kind = kinds[call.name]
    given = read_options(kind.options, call.values)
    if given is None:
        raise InvalidArgument(
            f"{role}: got {shown(value)}; allowed: {usage(call.name, kind.options)}",
            hint="what is in parentheses may be left out" if kind.options else None,
        )
    return _Method(kind, given)
