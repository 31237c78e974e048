"""What is predicted on: a table with a row for each example, or a packed one."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.database.dialects import PostgreSQL
from cerebro_db.database.dialects.postgresql_prediction import PackedSource, RowSource
from cerebro_db.database.names import quote
from cerebro_db.database.packed import PackedTable, load_packed
from cerebro_db.database.relations import Column, Relation, column, find
from cerebro_db.database.sessions import Session, StatementFailed, Tick
from cerebro_db.driver.packing_source import Feature, recorded_feature
from cerebro_db.driver.packing_survey import reason
from cerebro_db.driver.prediction_models import Asked
from cerebro_db.errors import CerebroError, InvalidArgument, InvalidData, WrongObjectType
from cerebro_db.training.buffers import wire_bytes

ROLE = "test_table"
_TAKEN = ("class_name", "class_value", "prob", "rank", "estimated")
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Rows:
    """A table or a view whose rows have an id."""

    sql: RowSource
    id: Column
    feature: Feature

    def row_bytes(self, asked: Asked) -> int:
        """What a row takes on its way to a worker."""
        return wire_bytes(asked.shape, self.feature.element_oid)

    def explained(
        self,
        session: Session,
        dialect: PostgreSQL,
        asked: Asked,
        failure: StatementFailed,
        tick: Tick,
    ) -> CerebroError:
        """The error that names the row because of which a worker failed."""
        statement = dialect.prediction.culprit(self.sql, asked.shape)
        try:
            rows = session.run(statement, (asked.divisor,), tick)
        except CerebroError:  # the server already fails on reading that row, and says why
            return failure
        if not rows:
            return failure
        number, row_id, fault, got = rows[0]
        where = dialect.prediction.named_row(number, self.sql.table)
        if row_id is None:
            return InvalidData(f"{where}: column {self.id.name!r} is NULL; allowed: no NULL")
        what = reason(fault, got, asked.shape)
        if fault == "shape" and got is not None:
            what = f"has shape {tuple(got)}; allowed: {asked.shape}, the shape of the model's rows"
        return InvalidData(
            f"{where}, {self.id.name} = {row_id}: column {self.feature.column.name!r} {what}"
        )


@dataclass(frozen=True)
class Buffers:
    """A packed table, whose rows are named by partition, buffer and place."""

    sql: PackedSource

    def row_bytes(self, asked: Asked) -> int:
        """What a row takes on its way to a worker."""
        return self.sql.row_bytes

    def explained(
        self,
        session: Session,
        dialect: PostgreSQL,
        asked: Asked,
        failure: StatementFailed,
        tick: Tick,
    ) -> CerebroError:
        """The error of the worker: packing has checked each row."""
        return failure


def test_source(
    session: Session,
    dialect: PostgreSQL,
    asked: Asked,
    names: tuple[str | None, str | None, str | None],
    tick: Tick,
) -> Rows | Buffers:
    """What a user names as test_table, id_col and independent_varname.

    Raises:
        CerebroError: there is none of that name, or it does not fit the models.
    """
    text, id_text, feature_text = names
    found = find(session, text, ROLE, tick)
    if found.has("partition_key") and found.has("buffer_id"):
        packed = load_packed(session, text, ROLE, tick)
        return _buffers(packed, asked, id_text, feature_text)
    id_column = _id_column(found, id_text)
    feature = recorded_feature(found, feature_text, asked.encoding)
    addressed = not session.run(dialect.packing.needs_staging, (found.oid,), tick)[0][0]
    ids = ((id_column.name, id_column.type),)
    row_id, features = f"t.{quote(id_column.name)}", feature.expression("t")
    rows = RowSource(found.name, ids, row_id, features, addressed, feature.image)
    return Rows(rows, id_column, feature)


def _id_column(table: Relation, text: str | None) -> Column:
    id_column = column(table, text, "id_col")
    if id_column.is_array:
        raise WrongObjectType(
            f"id_col: the column {id_column.name!r} is of type {id_column.type}; "
            "allowed: any type but arrays"
        )
    if id_column.name in _TAKEN:
        raise InvalidArgument(
            f"id_col: got {id_column.name!r}, which is a column of the output table",
            hint="select it under another name in a view",
        )
    return id_column


def _buffers(
    packed: PackedTable, asked: Asked, id_text: str | None, feature_text: str | None
) -> Buffers:
    name, given = packed.relation.name, packed.input
    if id_text is not None:
        raise InvalidArgument(
            f"id_col: got {id_text!r}; allowed: NULL, as {name} is packed and its rows are named by "
            "partition_key, buffer_id and row_number"
        )
    if feature_text is not None:
        column(packed.relation, feature_text, "independent_varname")
    if feature_text not in (None, given.name, quote(given.name)):
        raise InvalidArgument(
            f"independent_varname: got {feature_text!r}; allowed: {given.name!r}, "
            f"the features of {name}, or NULL"
        )
    if given.shape != asked.shape or given.dtype != "float32":
        raise InvalidArgument(
            f"{ROLE}: {name} has rows of shape {given.shape} and type {given.dtype}; "
            f"allowed: {asked.shape} and float32, as the model was trained with"
        )
    if packed.normalizing_const != asked.divisor:
        raise InvalidArgument(
            f"{ROLE}: {name} was packed with the normalizing constant {packed.normalizing_const}; "
            f"allowed: {asked.divisor}, as the model was trained with",
            hint="pack it with cerebro_pack_validation",
        )
    if packed.encoding != asked.encoding:
        raise InvalidArgument(
            f"{ROLE}: {name} was packed with another encoding than what the model was trained on",
            hint="pack it with cerebro_pack_validation",
        )
    row_bytes = _FLOAT_BYTES
    for size in given.shape:
        row_bytes *= size
    return Buffers(PackedSource(name, given.name, row_bytes))
