"""A request to pack whose names are looked up and checked against each other: what is read, and what will be made."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cerebro_db.columns.encoded import Recorded
from cerebro_db.columns.images import check_ignores
from cerebro_db.columns.inputs import ROLE, Input
from cerebro_db.configs.messages import check_divisor, shown
from cerebro_db.core.folds import FOLD_NUMBERS, STRATIFIED
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.models.trained import ModelTable
from cerebro_db.packing.earlier import Earlier, earlier, followed, of_models, of_packed
from cerebro_db.packing.features import (
    KINDS,
    check_follows,
    divisor_of,
    kind_of,
    names_in,
)
from cerebro_db.packing.fold_rules import FoldRule, fold_rule
from cerebro_db.packing.segments import Chosen, choose_segments
from cerebro_db.packing.targets import Target, Weight, target_of, weight_of
from cerebro_db.postgres.calls.settings import is_seen
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.names import MAX_IDENTIFIER_BYTES, QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import BUILD_SUFFIX, MAX_CLASSES, PACKED, STAGE_SUFFIX
from cerebro_db.postgres.tables.outputs import Outputs, new_outputs
from cerebro_db.postgres.tables.packed import (
    SUMMARY_SUFFIX,
    PackedTable,
    is_packed,
    load_packed,
)
from cerebro_db.postgres.tables.relations import Relation, column, find
from cerebro_db.requests.packing import (
    PackColumnsRequest,
    PackingRequest,
    PackRequest,
    PackValidationRequest,
)

ENCODING_SUFFIX = "_encoding"


@dataclass(frozen=True)
class Work:
    """A request whose names are resolved.

    Attributes:
        inputs, targets: as far as the columns alone tell, or an earlier packing.
        outputs: the tables to be made.
        classes: how many are wanted of each target.
        earlier: the packing that is followed; that of the training table, if there is one.
        training: the training table, of a validation table.
        is_scored: whether models are scored on the rows.
        folds: by which rows get fold numbers; None for none.
    """

    request: PackingRequest
    source: Relation
    inputs: tuple[Input, ...]
    targets: tuple[Target, ...]
    outputs: Outputs
    weight: Weight | None
    segments: Chosen
    classes: tuple[int | None, ...]
    earlier: Earlier | None
    training: PackedTable | None
    is_scored: bool
    folds: FoldRule | None = None

    @property
    def output(self) -> QualifiedName:
        """The packed table."""
        return self.outputs.name

    @property
    def recorded(self) -> Recorded | None:
        """How columns or images become features."""
        return self.inputs[0].recorded

    @property
    def seed(self) -> int | None:
        """Seed of the order of the rows; None where they keep theirs."""
        return None if self.training is not None or self.is_scored else self.request.seed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source that are read."""
        (first, *more), weights = self.inputs, () if self.weight is None else (self.weight,)
        targets = [one.name for one in self.targets]
        listed = [*first.sources, targets[0], *(name for one in more for name in one.sources)]
        folds = () if self.folds is None else (self.folds.column,)
        return tuple(dict.fromkeys([*listed, *targets[1:], *(one.name for one in weights), *folds]))

    @property
    def names(self) -> list[str]:
        """The columns of the packed table."""
        inputs, targets = ([one.name for one in each] for each in (self.inputs, self.targets))
        return [inputs[0], targets[0], *inputs[1:], *targets[1:]]

    @property
    def build(self) -> QualifiedName:
        """The packed table while it is not finished."""
        return self.output.suffixed(BUILD_SUFFIX)

    @property
    def stage(self) -> QualifiedName:
        """The copy of a source whose rows have no addresses."""
        return self.output.suffixed(STAGE_SUFFIX)


def resolved(
    session: Session, dialect: PostgreSQL, request: PackingRequest, models: ModelTable | None
) -> Work:
    """Look up all names of a request, and check what they mean against each other.

    Args:
        session: has the caller's rights, and knows the search path.
        dialect: of the server.
        request: is checked by itself.
        models: that are scored on the rows, if any.
    """
    classes = parsed_classes(request.num_classes)
    source = find(session, request.source_table, "source_table")
    check_source(source)
    is_seen(session, source)  # or refused
    training, known = _followed(session, request, models)
    outputs = _outputs(session, request, source, training)
    targets = _targets(request, source)
    weight = _weight(request, source)
    folds = fold_rule(session, dialect, request, source)
    taken = [targets[0].name, *([] if weight is None else [weight.name])]
    taken += [] if folds is None or folds.kind == STRATIFIED else [folds.column]
    if request.encoding_of is not None and known is not None:
        check_follows(request, source, taken, known)
    inputs = _inputs(session, request, source, taken, known)
    check_names([one.name for one in inputs], [one.name for one in targets], folds is not None)
    check_ignores(request.on_error, inputs[0].can_be_damaged)
    if known is not None:
        _check_counts(known, inputs, targets)
        targets = tuple(followed(session, one, known, n) for n, one in enumerate(targets))
    models_of = [None] * len(targets) if known is None else known.targets
    pairs = zip(targets, models_of, strict=True)
    targets = tuple(one.compared(session, source, model) for one, model in pairs)
    return Work(
        request,
        source,
        inputs,
        targets,
        outputs,
        weight,
        choose_segments(session, dialect.hosts, request.distribution_rules, training),
        _wanted_classes(request, classes, targets),
        known,
        training,
        models is not None,
        folds,
    )


def check_alone(request: PackingRequest) -> None:
    """Refuse a request that no table could make right."""
    parsed_classes(request.num_classes)
    check_divisor(divisor_of(request))
    if type(request) in KINDS:
        KINDS[type(request)].check(request)


def check_source(relation: Relation) -> None:
    """Refuse a source that is itself packed, which is an easy mistake."""
    if is_packed(relation):
        raise WrongObjectType(
            f"source_table: {relation.name} is packed already; allowed: a table with a row "
            "for each example",
            hint="name the table that it was packed from, or train on it with cerebro.cerebro_fit_multiple",
        )


def _followed(
    session: Session, request: PackingRequest, models: ModelTable | None
) -> tuple[PackedTable | None, Earlier | None]:
    """The training table, and the packing that is followed."""
    if models is not None:
        return None, of_models(session, models)
    if isinstance(request, PackValidationRequest):
        training = load_packed(session, request.training_table, "training_table")
        return training, of_packed(training)
    known = None if request.encoding_of is None else earlier(session, request.encoding_of)
    return None, known


def _outputs(
    session: Session, request: PackingRequest, source: Relation, training: PackedTable | None
) -> Outputs:
    encoding = (ENCODING_SUFFIX,) if isinstance(request, PackColumnsRequest) else ()
    return new_outputs(
        session,
        request.output_table,
        "output_table",
        PACKED,
        suffixes=("", SUMMARY_SUFFIX, *encoding),
        replace=request.replace,
        inputs=[source.oid, *([training.relation.oid] if training else [])],
    )


def _targets(request: PackingRequest, source: Relation) -> tuple[Target, ...]:
    role, text = "dependent_varname", request.dependent_varname
    names = names_in(source, text, role)
    makes_features = type(request) in KINDS and not isinstance(request, PackRequest)
    if makes_features and len(names) > 1:
        raise InvalidArgument(
            f"{role}: got {len(names)} columns; allowed: one, where columns or images become features",
            hint="cerebro.cerebro_pack takes several, beside the arrays of cerebro.cerebro_encode or cerebro.cerebro_image_array",
        )
    return tuple(target_of(column(source, name or text, role)) for name in names)


def _weight(request: PackingRequest, source: Relation) -> Weight | None:
    if request.sample_weight is None:
        return None
    return weight_of(column(source, request.sample_weight, "sample_weight"), "sample_weight")


def _inputs(
    session: Session,
    request: PackingRequest,
    source: Relation,
    taken: Sequence[str],
    known: Earlier | None,
) -> tuple[Input, ...]:
    if known is None:
        found = KINDS[type(request)].planned(request, source, taken)
        divisor = float(divisor_of(request) or 1.0)
    else:
        kind, count = kind_of(known.encoding), len(known.inputs)
        found = kind.matched(source, request.independent_varname, known.encoding, count)
        divisor = known.normalizing_const
    return read_inputs(session, found, divisor)


def read_inputs(session: Session, inputs: Sequence[Input], divisor: float) -> tuple[Input, ...]:
    """The inputs as rows are read: divided, and within the bounds of settings."""
    limit: Callable[[], int] = lambda: Catalog(session).settings().max_image_pixels  # noqa: E731
    return tuple(one.divided(divisor).limited(limit) for one in inputs)


def _check_counts(known: Earlier, inputs: Sequence[Input], targets: Sequence[Target]) -> None:
    """Refuse more or fewer inputs or outputs than an earlier packing had."""
    for role, got, wanted in (
        (ROLE, len(inputs), len(known.inputs)),
        ("dependent_varname", len(targets), len(known.targets)),
    ):
        if got != wanted:
            raise InvalidArgument(
                f"{role}: got {got} columns; allowed: {wanted}, as many as {known.name} has"
            )


def check_names(inputs: Sequence[str], targets: Sequence[str], has_folds: bool = False) -> None:
    """Refuse columns whose names would collide in the packed table, or grow too long."""
    listed = [*inputs, *targets]
    names = ["partition_key", "buffer_id", "num_rows", *([FOLD_NUMBERS] if has_folds else [])]
    names += [name + part for name in listed for part in ("", "_shape")]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        got = " and ".join(repr(name) for name in [*targets, *inputs])
        raise InvalidArgument(
            f"got the columns {got}; they would make two columns named {twice[0]!r} "
            "in the packed table",
            hint="rename the column, or select it under another name in a view",
        )
    longest = [f"{name}_shape" for name in inputs] + [f"{name}_class_values" for name in targets]
    for name in longest:
        if len(name.encode()) > MAX_IDENTIFIER_BYTES:
            raise InvalidArgument(
                f"the name {name!r}, which packing needs, has {len(name.encode())} bytes; "
                f"allowed: {MAX_IDENTIFIER_BYTES}",
                hint="select the column under a shorter name in a view",
            )


# -- numbers of classes ------------------------------------------------------------------------------
_NUMBER = re.compile(r"-?[0-9]{1,9}|NULL", re.IGNORECASE | re.ASCII)
_MOST_TEXT = 2000
Wanted = int | Sequence[int | None] | str | None


def parsed_classes(given: Wanted) -> list[int | None] | None:
    """The numbers of classes of each target, also out of the text of an array, such as ``{3,NULL}``.

    Raises:
        InvalidArgument: they are none.
    """
    if isinstance(given, str):
        given = _listed(given)
    found = [given] if isinstance(given, int) else given
    for number in found or ():
        # An array of several dimensions has lists.
        is_allowed = number is None or (isinstance(number, int) and 1 <= number <= MAX_CLASSES)
        if not is_allowed:
            raise InvalidArgument(
                f"num_classes: got {number}; allowed: NULL or an integer from 1 to {MAX_CLASSES}"
            )
    return None if found is None else list(found)


def _listed(text: str) -> list[int | None]:
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    words = [word.strip() for word in body.split(",")]
    if len(text) > _MOST_TEXT or not all(_NUMBER.fullmatch(word) for word in words):
        raise InvalidArgument(
            f"num_classes: got {shown(text)}; allowed: NULL, a number, or numbers and NULLs such as "
            "{3,NULL}"
        )
    return [None if word.upper() == "NULL" else int(word) for word in words]


def _wanted_classes(
    request: PackingRequest, listed: list[int | None] | None, targets: Sequence[Target]
) -> tuple[int | None, ...]:
    """The number of classes that is wanted of each target."""
    listed = [None] * len(targets) if listed is None else listed
    if len(listed) != len(targets):
        raise InvalidArgument(
            f"num_classes: got {request.num_classes}; allowed: an array of {len(targets)}, one for each column of "
            "dependent_varname"
            if len(targets) > 1
            else f"num_classes: got {len(listed)} numbers; allowed: one"
        )
    for wanted, target in zip(listed, targets, strict=True):
        if not target.may_be_one_hot:
            target.check_wanted(wanted)
    return tuple(listed)
