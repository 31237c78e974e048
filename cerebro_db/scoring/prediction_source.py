"""Source of a prediction: a table with a row for each example, or a packed one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import pack

from msgspec import structs

from cerebro_db.columns.images import check_ignores
from cerebro_db.columns.inputs import ROLE as INPUTS
from cerebro_db.columns.inputs import Input, without_nulls
from cerebro_db.columns.values import Column
from cerebro_db.errors import CerebroError, InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.packing.features import id_columns, kind_of
from cerebro_db.packing.resolve import read_inputs
from cerebro_db.packing.survey import left_out, looked_at, unreadable
from cerebro_db.postgres.calls.settings import is_seen, seen_rows
from cerebro_db.postgres.catalog.drift import Read
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.packing import FAULTS_SHOWN
from cerebro_db.postgres.dialects.statements.sources import PackedSource, RowSource
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.completeness import scanned_elsewhere
from cerebro_db.postgres.tables.packed import PackedTable, is_packed, load_packed
from cerebro_db.postgres.tables.relations import Relation, column, find, split_names
from cerebro_db.scoring.prediction_models import Ensemble
from cerebro_db.training.buffers import wire_bytes
from cerebro_db.training.scores.id_fault import HINT as ID_HINT
from cerebro_db.training.scores.id_fault import IdFault

ROLE = "test_table"
_RAW = "give the raw rows as test_table, or pack them with cerebro.cerebro_pack_validation and the training table"
# Columns of predictions.
TAKEN = ("class_name", "class_value", "prob", "rank", "estimated")
_FLOAT_BYTES = 4
_COMPOSITE = "C"
# Categories of types, and bytea, uuid and macaddr, whose values can be compared and hashed.
_COMPARABLE, _COMPARABLE_TYPES = frozenset("BDEINSTV"), (17, 829, 2950)


@dataclass(frozen=True)
class Rows:
    """A table or a view whose rows have an id.

    Attributes:
        table: what a user has named.
        ids: its columns that name a row.
    """

    sql: RowSource
    table: Relation
    ids: tuple[Column, ...]

    @property
    def features(self) -> tuple[Input, ...]:
        """What is read of each row."""
        return self.sql.inputs

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of each input, for messages."""
        return tuple(feature.column.name for feature in self.features)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Those of the table that are read."""
        listed = [one.name for one in self.ids]
        listed += [name for feature in self.features for name in feature.sources]
        return tuple(dict.fromkeys(listed))

    def looked_at(self, session: Session) -> Rows:
        """The source with what is known of its numbers once all rows are seen.

        Raises:
            InvalidData: a column that is encoded has a number that its features do not hold.
        """
        for one in self.features:
            one.check_rows(session.run, self.sql.rows, "t")
        inputs = tuple(looked_at(session, self.sql.rows, "t", one) for one in self.features)
        return replace(self, sql=replace(self.sql, inputs=inputs))

    @property
    def whole(self) -> tuple[int, ...]:
        """Places of the inputs that hold whole numbers only."""
        return tuple(place for place, one in enumerate(self.features) if one.column.is_whole)

    def column_of(self, name: str, place: int) -> str:
        """Name of the column of which a worker has reported a value, by its place in a row."""
        return self.features[0].column_of(place) or name

    def read(self) -> Read:
        """The rows, to be looked at."""
        return Read(self.sql.rows, "t", self.sql.addressed and not self.sql.seen)

    def row_bytes(self, ensemble: Ensemble) -> int:
        """Bytes of a row on its way to a worker."""
        return sum(
            wire_bytes(shape, feature.element_oid)
            for shape, feature in zip(ensemble.shapes, self.features, strict=True)
        )

    def left_out(
        self, found: Sequence[tuple[int, list[str | None] | None, list[str] | None]]
    ) -> str:
        """The notice of rows that are left out, of each statement; empty where there are none."""
        rows = sum(count for count, *_ in found)
        listed = ", ".join(one.name for one in self.ids)
        first = [
            ("a row without id" if row_id is None else f"{listed} = {row_id}", fault)
            for _, ids, faults in found
            for row_id, fault in zip(ids or (), faults or (), strict=True)
        ]
        column = self.features[0].column.name
        return left_out(rows, self.table.name, column, first[:FAULTS_SHOWN]) if rows else ""

    def explained(
        self, session: Session, dialect: PostgreSQL, ensemble: Ensemble, failure: StatementFailed
    ) -> CerebroError:
        """The error that names the row because of which a worker failed."""
        if (beyond := self._beyond(session, dialect, ensemble, failure)) is not None:
            return beyond
        try:
            rows = session.run(dialect.prediction.culprit(self.sql))
        except CerebroError:  # the server already fails on reading that row
            session.recover()
            readings = [one for feature in self.features for one in feature.readings("t")]
            return unreadable(session.run, f"{self.sql.table.sql} t", readings, failure)
        if not rows:
            return failure
        number, row_id, place, fault, got = rows[0]
        where = dialect.prediction.named_row(number, self.sql.table)
        names = ", ".join(one.name for one in self.ids)
        if row_id is None:
            listed = " or ".join(repr(one.name) for one in self.ids)
            return InvalidData(
                f"{where}: column {listed} is NULL; allowed: no NULL",
                without_nulls([one.name for one in self.ids]),
            )
        feature = self.features[place]
        what, hint = feature.refusal(fault, got, None, "the shape of the model's rows")
        return InvalidData(f"{where}, {names} = {row_id}: column {feature.name!r} {what}", hint)

    def _beyond(
        self, session: Session, dialect: PostgreSQL, ensemble: Ensemble, failure: StatementFailed
    ) -> CerebroError | None:
        """The error for an id beyond an embedding; None for another failure."""
        fault = IdFault.of(failure.message)
        if fault is None or fault.input_place is None or self.features[0].can_be_damaged:
            return None
        statement = dialect.prediction.row_with(self.sql, fault.input_place)
        try:
            rows = session.run(statement, (ensemble.divisor, fault.place + 1, fault.id))
        except CerebroError:
            session.recover()
            return failure
        if not rows:
            return failure
        number, row_id = rows[0]
        where = dialect.prediction.named_row(number, self.sql.table)
        names = ", ".join(one.name for one in self.ids)
        column = self.features[fault.input_place].column.name
        return InvalidData(
            f"{where}, {names} = {row_id}: column {column!r}: {fault.at_place}", ID_HINT
        )


@dataclass(frozen=True)
class Buffers:
    """A packed table, whose rows are named by partition, buffer and place."""

    sql: PackedSource
    table: Relation
    columns: tuple[str, ...] = ()
    whole: tuple[int, ...] = ()
    rows: int = 0

    def column_of(self, name: str, place: int) -> str:
        """Name of the column of which a worker has reported a value."""
        return name

    def row_bytes(self, ensemble: Ensemble) -> int:
        """Bytes of a row on its way to a worker."""
        return self.sql.row_bytes

    def explained(
        self, session: Session, dialect: PostgreSQL, ensemble: Ensemble, failure: StatementFailed
    ) -> CerebroError:
        """The error of the worker: packing has checked each row, but not what a model makes of it."""
        fault = IdFault.of(failure.message)
        if fault is None or fault.input_place is None:
            return failure
        (column, size), data = self.sql.columns[fault.input_place], pack("<f", fault.value)
        statement = dialect.prediction.buffer_with(self.sql.table, column)
        rows = session.run(statement, (size, 4 * fault.place + 1, data))
        if not rows:
            return failure
        partition, buffer, row = rows[0]
        return InvalidData(
            f"partition_key = {partition}, buffer_id = {buffer}, row_number = {row}: column "
            f"{column!r}: {fault.at_place}",
            ID_HINT,
        )


def test_source(
    session: Session,
    dialect: PostgreSQL,
    ensemble: Ensemble,
    names: tuple[str | None, str | None, str | None],
    on_error: str,
    taken: Sequence[str],
) -> Rows | Buffers:
    """Source that a user names as test_table, id_col and independent_varname.

    Args:
        on_error: whether rows of images that cannot be read are left out.
        taken: names of columns of the output that no id may have.

    Raises:
        CerebroError: there is none of that name, or it does not fit the models.
    """
    text, id_text, feature_text = names
    found = find(session, text, ROLE)
    if is_packed(found):
        check_ignores(on_error, can_be_damaged=False)
        packed = load_packed(session, text, ROLE)
        return _buffers(packed, ensemble, id_text, feature_text)
    ids = _ids(found, id_text, taken)
    inputs = _inputs(session, found, feature_text, ensemble)
    addressed = not session.run(dialect.packing.needs_staging, (found.oid,))[0][0]
    if not dialect.has_segments:
        addressed = addressed and not scanned_elsewhere(session, found.name)
    source = RowSource(
        found.name,
        ids=tuple((one.name, one.type) for one in ids),
        keys=tuple(map(_key, ids)),
        inputs=inputs,
        addressed=addressed,
        comparable=all(map(_is_comparable, ids)),
        ignores=check_ignores(on_error, inputs[0].can_be_damaged),
    )
    rows = Rows(source, found, ids)
    if addressed or not is_seen(session, found):
        return rows
    columns = [one for one in found.columns if one.name in rows.read_columns]
    seen = seen_rows(session, found.name, columns, "t")
    some = seen_rows(session, found.name, columns, "t", " LIMIT 1")
    return replace(rows, sql=replace(source, seen=seen, some=some))


def feature_source(
    session: Session,
    dialect: PostgreSQL,
    ensemble: Ensemble,
    names: tuple[str | None, str | None],
    role: str,
) -> RowSource | PackedSource:
    """Features of the rows of a table, raw or packed, whose names do not matter.

    Args:
        names: of the table, and of its columns of features.
        role: the argument that names the table.

    Raises:
        CerebroError: there is none of that name, or it does not fit the models.
    """
    text, feature_text = names
    found = find(session, text, role)
    if is_packed(found):
        return _buffers(load_packed(session, text, role), ensemble, None, None).sql
    inputs = _inputs(session, found, feature_text, ensemble)
    source = RowSource(found.name, (), (), inputs, addressed=False)
    if not is_seen(session, found):
        return source
    read = {name for one in inputs for name in one.sources}
    columns = [one for one in found.columns if one.name in read]
    return replace(source, seen=seen_rows(session, found.name, columns, "t"))


def _inputs(
    session: Session, table: Relation, text: str | None, ensemble: Ensemble
) -> tuple[Input, ...]:
    """The inputs of rows, as many as the models have, each of the shape that these want."""
    kind, wanted = kind_of(ensemble.encoding), len(ensemble.shapes)
    found = kind.matched(table, text, ensemble.encoding, wanted)
    if len(found) != wanted:
        columns = "one column" if wanted == 1 else f"{wanted} columns separated by commas"
        raise InvalidArgument(
            f"{INPUTS}: got {'NULL' if text is None else repr(text)}; allowed: {columns}, in the order of "
            "the model's inputs"
        )
    pairs = zip(read_inputs(session, found, ensemble.divisor), ensemble.shapes, strict=True)
    return tuple(structs.replace(one, shape=shape) for one, shape in pairs)


def _ids(table: Relation, text: str | None, taken: Sequence[str]) -> tuple[Column, ...]:
    ids = id_columns(table, text, taken)
    for one in ids:
        if one.is_array:
            raise WrongObjectType(
                f"id_col: the column {one.name!r} is of type {one.type}; "
                "allowed: any type but arrays",
                hint="name the columns that tell the rows apart, such as those of the primary key: "
                "'id', or 'a, b'",
            )
    return ids


def _key(column: Column) -> str:
    """A column as what an array of it can be taken apart again: of rows, their text."""
    name = f"t.{quote(column.name)}"
    return f"{name}::text" if column.category == _COMPOSITE else name


def _is_comparable(column: Column) -> bool:
    return column.category in _COMPARABLE or column.type_oid in _COMPARABLE_TYPES


def _buffers(
    packed: PackedTable, ensemble: Ensemble, id_text: str | None, feature_text: str | None
) -> Buffers:
    name = packed.relation.name
    if id_text is not None:
        raise InvalidArgument(
            f"id_col: got {id_text!r}; allowed: NULL, as {name} is packed and its rows are named by "
            "partition_key, buffer_id and row_number"
        )
    if feature_text is not None:
        _check_packed_names(packed, feature_text)
    shapes = tuple(one.shape for one in packed.inputs)
    types = sorted({one.dtype for one in packed.inputs})
    if shapes != ensemble.shapes or types != ["float32"]:
        got, wanted = (one[0] if len(one) == 1 else one for one in (shapes, ensemble.shapes))
        raise InvalidArgument(
            f"{ROLE}: {name} has rows of shape {got} and type {', '.join(types)}; "
            f"allowed: {wanted} and float32, as the model was trained with"
        )
    if packed.normalizing_const != ensemble.divisor:
        raise InvalidArgument(
            f"{ROLE}: {name} was packed with the normalizing constant {packed.normalizing_const}; "
            f"allowed: {ensemble.divisor}, as the model was trained with",
            hint=_RAW,
        )
    if packed.encoding != ensemble.encoding:
        raise InvalidArgument(
            f"{ROLE}: {name} was packed with another encoding than what the model was trained on",
            hint=_RAW,
        )
    columns = ((one.name, _FLOAT_BYTES * math.prod(one.shape)) for one in packed.inputs)
    return Buffers(PackedSource(name, tuple(columns)), packed.relation, rows=packed.rows)


def _check_packed_names(packed: PackedTable, text: str) -> None:
    role, inputs = "independent_varname", packed.inputs
    if len(inputs) > 1:
        listed = [column(packed.relation, one, role).name for one in split_names(text, role)]
        good = listed == [one.name for one in inputs]
    else:
        column(packed.relation, text, role)
        good = text in (inputs[0].name, quote(inputs[0].name))
    if not good:
        allowed = ", ".join(repr(one.name) for one in inputs)
        raise InvalidArgument(
            f"{role}: got {text!r}; allowed: {allowed}, the features of {packed.relation.name}, "
            "or NULL"
        )
