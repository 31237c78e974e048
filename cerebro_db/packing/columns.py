"""Columns that a packing job lists: the first input and output, and those behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.columns.inputs import Input, listed_input
from cerebro_db.columns.values import Column
from cerebro_db.errors import InvalidArgument
from cerebro_db.packing.earlier import Earlier
from cerebro_db.packing.request import PackRequest
from cerebro_db.packing.source import Target, target_of
from cerebro_db.postgres.names import MAX_IDENTIFIER_BYTES
from cerebro_db.postgres.tables.kinds import MAX_LISTED
from cerebro_db.postgres.tables.relations import Relation, column, split_names


@dataclass(frozen=True)
class Others:
    """The inputs and outputs behind the first ones."""

    features: tuple[Input, ...] = ()
    targets: tuple[Target, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.features or self.targets)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        features = [feature.column.name for feature in self.features]
        return (*features, *(target.column.name for target in self.targets))


NO_OTHERS = Others()


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


def listed_inputs(source: Relation, text: str | None, role: str) -> tuple[Input, ...]:
    """The inputs of a list of at least two columns; none where there is one."""
    names = names_in(source, text, role)
    if len(names) < 2:
        return ()
    return tuple(listed_input(column(source, name, role), role) for name in names)


def listed_targets(request: PackRequest, source: Relation) -> tuple[Target, ...]:
    """The outputs of a request."""
    role, text = "dependent_varname", request.dependent_varname
    names = names_in(source, text, role)
    if request.makes_features and len(names) > 1:
        raise InvalidArgument(
            f"{role}: got {len(names)} columns; allowed: one, where columns or images become features",
            hint="cerebro.cerebro_pack takes several, beside the arrays of cerebro.cerebro_encode or cerebro.cerebro_image_array",
        )
    return tuple(target_of(column(source, name or text, role)) for name in names)


def check_counts(earlier: Earlier, features: Sequence[Input], targets: Sequence[Target]) -> None:
    """Refuse more or fewer inputs or outputs than an earlier packing had."""
    for role, got, wanted in (
        ("independent_varname", len(features), len(earlier.inputs)),
        ("dependent_varname", len(targets), len(earlier.targets)),
    ):
        if got != wanted:
            raise InvalidArgument(
                f"{role}: got {got} columns; allowed: {wanted}, as many as {earlier.name} has"
            )


def wanted_classes(request: PackRequest, targets: Sequence[Target]) -> tuple[int | None, ...]:
    """The number of classes that is wanted of each output."""
    given = request.num_classes
    listed = [given] if given is None or isinstance(given, int) else list(given)
    if given is None:
        listed = [None] * len(targets)
    if len(listed) != len(targets):
        raise InvalidArgument(
            f"num_classes: got {given}; allowed: an array of {len(targets)}, one for each column of "
            "dependent_varname"
            if len(targets) > 1
            else f"num_classes: got {len(listed)} numbers; allowed: one"
        )
    for wanted, target in zip(listed, targets, strict=True):
        if not target.may_be_one_hot:
            check_wanted(target, wanted)
    return tuple(listed)


def check_wanted(target: Target, wanted: int | None) -> None:
    """Refuse a number of classes of what has none."""
    if wanted is not None and not target.is_class:
        raise InvalidArgument(
            f"num_classes: got {wanted}; allowed: NULL, as the column "
            f"{target.column.name!r} of type {target.column.type} holds float targets"
        )


def check_names(inputs: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse columns whose names would collide in the packed table, or grow too long."""
    listed = [*inputs, *targets]
    names = ["partition_key", "buffer_id", "num_rows"]
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
