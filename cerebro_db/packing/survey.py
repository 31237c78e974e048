"""Survey of the rows of a source: addresses, shapes, classes, and the first bad row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cerebro_db.columns.inputs import Input
from cerebro_db.columns.values import Column
from cerebro_db.errors import NO_ROWS, CerebroError, InvalidData
from cerebro_db.packing.columns import NO_OTHERS, Others, check_wanted
from cerebro_db.packing.earlier import Earlier
from cerebro_db.packing.layout import parse_addresses, tid_array
from cerebro_db.packing.row_faults import (
    ELEMENT,
    NULL,
    Damaged,
    Reading,
    attempted,
    columns_named,
    not_one_hot,
    reason,
    remedy,
    unreadable,
    unseen,
)
from cerebro_db.packing.source import Target, looked_at
from cerebro_db.postgres.dialects.statements.packing import (
    BLOCKS_PER_FETCH,
    PackingStatements,
    SourceScan,
    one_hot_place,
)
from cerebro_db.postgres.dialects.statements.packing_extras import Extra, Origin
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session

_NO_ADDRESSES = np.empty(0, np.int64)


@dataclass(frozen=True)
class Survey:
    """The rows of a source, seen through one snapshot.

    Attributes:
        source: as the user knows it.
        scan: what is read.
        feature: with its shape.
        target: with its shape and classes.
        addresses: of all rows, sorted.
        divisor: the normalizing constant.
        weight: the column of sample weights.
        others: further inputs and outputs, the same of them.
    """

    source: QualifiedName
    scan: SourceScan
    feature: Input
    target: Target
    addresses: NDArray[np.int64]
    divisor: float
    weight: Column | None = None
    others: Others = NO_OTHERS

    @property
    def features(self) -> tuple[Input, ...]:
        """All inputs."""
        return (self.feature, *self.others.features)

    @property
    def targets(self) -> tuple[Target, ...]:
        """All outputs."""
        return (self.target, *self.others.targets)

    @property
    def values(self) -> list[Any]:
        """Parameters of the statements that fill buffers, but those of a buffer."""
        found: list[Any] = [] if self.target.is_class else [list(self.target.wire_shape)]
        found.append(list(self.target.shape))
        for feature in self.others.features:
            found += [list(feature.shape), self.divisor, list(feature.shape)]
        for other in self.others.targets:
            found += [] if other.is_class else [list(other.wire_shape), 1.0]
            found.append(list(other.shape))
        classes = [one for one in self.targets if one.is_class]
        found += [one.null_id if one.null_id is not None else -1 for one in classes]
        return found + [one.values for one in classes]

    @property
    def is_staged(self) -> bool:
        """True if the rows are read from a copy."""
        return self.scan.table != self.source


OfColumn = TypeVar("OfColumn", Input, Target)


class Surveyor:
    """Reads a source in a session whose snapshot is held.

    Args:
        sql: of the dialect.
        control: the session.
        damaged: rows that are left out.
    """

    def __init__(
        self,
        sql: PackingStatements,
        control: Session,
        damaged: Damaged | None = None,
    ) -> None:
        self._sql = sql
        self._control = control
        self._damaged = damaged or Damaged()

    def survey(
        self,
        source: QualifiedName,
        table: QualifiedName,
        feature: Input,
        target: Target,
        divisor: float,
        num_classes: Sequence[int | None],
        training: Earlier | None,
        weight: Column | None = None,
        others: Others = NO_OTHERS,
    ) -> Survey:
        """Look at all rows.

        Args:
            source: as the user knows it.
            table: the source, or its copy.
            feature: the independent variable.
            target: the dependent variable; has classes if there is an earlier packing.
            divisor: the normalizing constant.
            num_classes: as the caller wants, of each target.
            training: the earlier packing whose shapes and classes count.
            weight: the column of sample weights.
            others: further inputs and outputs.

        Raises:
            InvalidData: there are no rows, or the first one cannot be packed.
        """
        feature, target = self._with_whole(table, feature), self._with_whole(table, target)
        others = Others(
            tuple(self._with_whole(table, one) for one in others.features),
            tuple(self._with_whole(table, one) for one in others.targets),
        )
        weight = weight and looked_at(self._control, f"ONLY {table.sql} s", "s", weight)
        scan = scan_of(table, feature, target, weight)
        found = Survey(source, scan, feature, target, _NO_ADDRESSES, divisor, weight, others)
        with columns_named(self._control, f"ONLY {table.sql} s", _readings(found)):
            return self._surveyed(found, num_classes, training)

    def _with_whole(self, table: QualifiedName, given: OfColumn) -> OfColumn:
        found = looked_at(self._control, f"ONLY {table.sql} s", "s", given.column)
        return replace(given, column=found)

    def _surveyed(
        self, given: Survey, num_classes: Sequence[int | None], training: Earlier | None
    ) -> Survey:
        scan, target, others = given.scan, given.target, given.others
        addresses = self._addresses(scan.table)
        if len(self._damaged.addresses):
            scan = replace(scan, left_out=tid_array(self._damaged.addresses))
            addresses = np.setdiff1d(addresses, self._damaged.addresses, assume_unique=True)
        if not len(addresses):
            raise self._empty(given.source)
        if training is None:
            target, *more = [self._recognized(scan, one) for one in (target, *others.targets)]
            others = replace(others, targets=tuple(more))
            kind = target.cast if target.is_class else None
            scan = replace(scan, target=_label(target), class_type=kind, equals=target.equals)
        found = replace(given, scan=scan, target=target, addresses=addresses, others=others)
        pairs = [
            self._looked_at(pair, places, num_classes[places[1]], training)
            for places, pair in _pairs(found)
        ]
        first, rest = pairs[0], pairs[1:]
        inputs = len(others.features)
        return replace(
            found,
            scan=replace(scan, extras=extras_of(others)),
            feature=first.feature,
            target=first.target,
            others=Others(
                tuple(pair.feature for pair in rest[:inputs]),
                tuple(pair.target for pair in rest[inputs:]),
            ),
        )

    def _recognized(self, scan: SourceScan, target: Target) -> Target:
        """The target as classes, if it is an array that is one-hot in every row."""
        if not target.may_be_one_hot:
            return target
        scan = replace(scan, target=_label(target), class_type=None)
        _, shape = self._control.run(self._sql.shapes(scan))[0]
        if shape is None or len(shape) > 1 or shape[0] < 2:
            return target
        one_hot = target.one_hot(shape[0])
        if not self._control.run(self._sql.all_one_hot(replace(scan, target=_label(one_hot))))[0][
            0
        ]:
            return target
        return one_hot

    def _looked_at(
        self,
        pair: Survey,
        places: tuple[int, int],
        num_classes: int | None,
        training: Earlier | None,
    ) -> Survey:
        """The pair with its shapes and classes."""
        shape, target_shape = self._shapes(pair, places, training)
        target = pair.target
        if training is None and not places[0]:
            check_wanted(target, num_classes)
        if training is None and target.places:
            target = target.with_classes(target.values or "", target.places, False, num_classes)
        elif training is None and target.is_class and not places[0]:
            classes = self._sql.classes(pair.scan)
            listed, count, has_null = self._control.run(classes)[0]
            target = target.with_classes(listed, count, has_null, num_classes)
        return replace(
            pair,
            feature=replace(pair.feature, shape=shape),
            target=replace(target, shape=target_shape),
        )

    def explained(self, survey: Survey, failure: CerebroError) -> CerebroError:
        """The error that names the row because of which a worker failed."""
        try:
            with self._control.attempt():
                faults = [self._fault(pair) for _, pair in _pairs(survey)]
        except StatementFailed:  # the server already fails on reading that row
            return self._unreadable(survey, failure)
        except CerebroError:
            return failure
        found = [fault for fault in faults if fault is not None]
        return min(found, key=lambda fault: fault[0])[1] if found else failure

    def _unreadable(self, survey: Survey, failure: CerebroError) -> CerebroError:
        """The error that names the column that the server cannot read."""
        table = f"ONLY {survey.scan.table.sql} s"
        return unreadable(attempted(self._control), table, _readings(survey), failure)

    def _empty(self, source: QualifiedName) -> InvalidData:
        if self._damaged.rows:
            return InvalidData(
                f"source_table: {source} has no image that can be read; allowed: at least one. The "
                f"first one {reason(self._damaged.faults[0], None, (), '')}",
                hint="image_shape and image_format must be those of the stored bytes",
            )
        return InvalidData(
            f"source_table: {source} has no rows; allowed: at least one row", NO_ROWS
        )

    def _addresses(self, table: QualifiedName) -> NDArray[np.int64]:
        if self._sql.in_one_statement:  # where rows have none that another session could use
            count = self._control.run(self._sql.count(table))[0][0]
            return np.arange(int(count), dtype=np.int64)
        blocks = self._control.run(self._sql.blocks, (table.schema, table.name))[0][0]
        whole = blocks <= BLOCKS_PER_FETCH
        statement = self._sql.addresses(table, whole)
        pieces = []
        for first in range(0, max(blocks, 1), BLOCKS_PER_FETCH):
            ends = () if whole else (f"({first},0)", f"({first + BLOCKS_PER_FETCH},0)")
            pieces.append(self._control.run(statement, ends)[0][0] or b"")
        return parse_addresses(pieces)

    def _shapes(
        self, survey: Survey, places: tuple[int, int], training: Earlier | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        features, targets = self._control.run(self._sql.shapes(survey.scan))[0]
        wants_target = survey.target.column.is_array and not survey.target.is_class
        if features is None or (wants_target and targets is None):
            known = replace(survey, feature=replace(survey.feature, shape=tuple(features or ())))
            fault = self._fault(known)
            raise (fault[1] if fault else InvalidData(f"source_table: {survey.source} is unusable"))
        shape, target_shape = tuple(features), tuple(targets) if wants_target else ()
        if training is not None:
            wanted, of_target = training.inputs[places[0]], training.targets[places[1]]
            _check_shape(survey.feature.column.name, shape, wanted.shape, training)
            _check_shape(survey.target.column.name, target_shape, of_target.shape, training)
        return shape, target_shape

    def _fault(self, survey: Survey) -> tuple[int, InvalidData] | None:
        """The number of the first row that cannot be packed, and its error."""
        # Where no row has a shape, any shape finds the first row.
        shape, target_shape = survey.feature.shape or (1,), survey.target.wire_shape
        statement = self._sql.culprit(survey.scan, shape, target_shape)
        values = [survey.target.values] if survey.target.is_class else []
        rows = self._control.run(statement, (survey.divisor, *values))
        if not rows:
            return None
        return int(rows[0][0]), self._told(survey, rows[0], shape, target_shape)

    def _told(
        self,
        survey: Survey,
        row: Sequence[Any],
        shape: tuple[int, ...],
        target_shape: tuple[int, ...],
    ) -> InvalidData:
        number, address, fault, got, target_fault, target_got, label, weight = row
        of_copy = survey.is_staged and not self._sql.in_one_statement
        where = self._sql.named_row(number, survey.source, None if of_copy else address)
        column, target = survey.feature.column, survey.target.column
        if fault:
            where += f", {target.name} = {label!r}" if label is not None else ""
            return _of_row(where, column, fault, got, shape)
        if weight is not None:
            return InvalidData(
                f"{where}: column {survey.weight and survey.weight.name!r} holds {weight} as a sample weight; "
                "allowed: finite numbers from 0",
                hint="put a weight from 0 there in a view, or leave the row out",
            )
        if target_fault == "class" and survey.target.places:
            what, hint = not_one_hot(label, target, survey.target.places)
            return InvalidData(f"{where}: column {target.name!r} {what}", hint)
        if target_fault == "class":
            what, hint = unseen(label, target.name, survey.target.values)
            return InvalidData(f"{where}: column {target.name!r} {what}", hint)
        if target_fault == ELEMENT and not target.is_array:
            target_fault = NULL  # a number is read as an array of one
        return _of_row(where, target, target_fault, target_got, target_shape)


def _of_row(
    where: str, column: Column, fault: str, got: Sequence[int] | None, shape: tuple[int, ...]
) -> InvalidData:
    what = reason(fault, got, shape, "the shape of the first row")
    return InvalidData(f"{where}: column {column.name!r} {what}", remedy(fault, got, shape, column))


def _readings(survey: Survey) -> list[Reading]:
    """The columns, each with SQL of what is read of it."""
    found = [reading for feature in survey.features for reading in feature.readings("s")]
    found += [(target.column.name, _label(target)) for target in survey.targets]
    if survey.weight is not None:
        found.append((survey.weight.name, survey.scan.weight or "NULL"))
    return found


def _pairs(survey: Survey) -> list[tuple[tuple[int, int], Survey]]:
    """Pairs of an input and an output, with their places: first ones, inputs, outputs."""
    found = [((0, 0), replace(survey, others=NO_OTHERS))]
    for place, feature in enumerate(survey.others.features, 1):
        scan = scan_of(survey.scan.table, feature, survey.target)
        pair = replace(survey, scan=scan, feature=feature, weight=None, others=NO_OTHERS)
        found.append(((place, 0), pair))
    for place, target in enumerate(survey.others.targets, 1):
        scan = scan_of(survey.scan.table, survey.feature, target)
        pair = replace(survey, scan=scan, target=target, weight=None, others=NO_OTHERS)
        found.append(((0, place), pair))
    return found


def extras_of(others: Others) -> tuple[Extra, ...]:
    """Columns that are read and written for further inputs and outputs."""
    features = [
        Extra(one.column.name, one.value("s"), is_whole=one.column.is_whole)
        for one in others.features
    ]
    return (*features, *map(_extra, others.targets))


def _extra(target: Target) -> Extra:
    kind = target.cast if target.is_class else None
    name, whole = target.column.name, target.column.is_whole
    return Extra(name, _label(target), kind, whole, target.equals)


def _label(target: Target) -> str:
    """SQL of a class, or of the array of a float target."""
    if target.places:
        return one_hot_place(f"s.{quote(target.column.name)}", target.places)
    label = f"s.{quote(target.column.name)}::{target.cast}"
    return label if target.is_class or target.column.is_array else f"ARRAY[{label}]"


def scan_of(
    table: QualifiedName, feature: Input, target: Target, weight: Column | None = None
) -> SourceScan:
    """Parts of ``table`` that are read."""
    weights = None if weight is None else f"s.{quote(weight.name)}::double precision"
    return SourceScan(
        table,
        feature,
        _label(target),
        target.cast if target.is_class else None,
        weights,
        origins=(_origin(feature.column), _origin(target.column), _origin(weight)),
        equals=target.equals,
        varies=target.varies,
    )


def _origin(column: Column | None) -> Origin:
    return Origin() if column is None else Origin(column.name, column.is_whole)


def _check_shape(
    name: str, got: tuple[int, ...], wanted: tuple[int, ...], training: Earlier
) -> None:
    if got != wanted:
        raise InvalidData(
            f"column {name!r}: got rows of shape {_shown(got)}; "
            f"those of {training.name} have shape {_shown(wanted)}",
            hint="give arrays of that shape, or pack the training table anew",
        )


def _shown(shape: Sequence[int]) -> str:
    return str(tuple(shape))
