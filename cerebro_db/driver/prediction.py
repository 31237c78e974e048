"""Prediction: a trained model asked about the rows of a table, the answers in a new table."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from cerebro_db.configs.predictions import Answer, PredictionType, prediction_type
from cerebro_db.database.dialects import PostgreSQL
from cerebro_db.database.dialects.postgresql_prediction import (
    ARRAY_COLUMNS,
    CLASS_COLUMNS,
    VALUE_COLUMNS,
    PostgreSQLPrediction,
    RowSource,
)
from cerebro_db.database.names import QualifiedName, quote
from cerebro_db.database.relations import Column, column, find, new_table
from cerebro_db.database.sessions import Session, SessionPool, StatementFailed, Tick, no_tick
from cerebro_db.driver.control import (
    control_session,
    may_score,
    preparation,
    release,
    runs_tensorflow,
    transaction,
)
from cerebro_db.driver.crew import Statement
from cerebro_db.driver.packing_source import Feature, feature_of
from cerebro_db.driver.packing_survey import reason
from cerebro_db.driver.trained import ModelTable, load_model_table, load_models, recipe
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    InvalidData,
    NotSupported,
    WrongObjectType,
)
from cerebro_db.training.buffers import wire_bytes

# A batch is large enough to keep a worker busy and small in its memory.
MAX_BATCH_ROWS = 4096
BATCH_BYTES = 32 * 2**20
_TAKEN = ("class_name", "class_value", "prob", "rank", "estimated")


@dataclass(frozen=True)
class PredictionRequest:
    """The arguments of ``cerebro_predict``, as given; search_path is for the names."""

    model_table: str | None
    test_table: str | None
    id_col: str | None
    independent_varname: str | None
    output_table: str | None
    pred_type: str | float | None = Answer.PROB
    use_gpus: bool | None = False
    mst_key: int | None = None
    search_path: str | None = None


@dataclass(frozen=True)
class Work:
    """A request whose names are resolved."""

    table: ModelTable
    mst_key: int
    type: PredictionType
    id: Column
    feature: Feature
    source: RowSource
    output: QualifiedName

    @property
    def batch_rows(self) -> int:
        """Rows of one call of the worker."""
        size = wire_bytes(self.table.input_shape, self.feature.element_oid)
        return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // size))

    @property
    def ranks(self) -> int:
        """How many classes are asked for, of each row."""
        classes = self.table.targets.num_classes
        if self.type.answer is Answer.RESPONSE:
            return 1
        return min(classes, int(self.type.number)) if self.type.answer is Answer.TOP else classes


def predict(
    pool: SessionPool, dialect: PostgreSQL, request: PredictionRequest, tick: Tick = no_tick
) -> QualifiedName:
    """Make a table of predictions, or nothing at all; returns its name.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to predict.
        tick: called while waiting; may raise to cancel.

    Raises:
        InvalidArgument: several models and no mst_key, or a pred_type that the target has not.
        InvalidData: a row has no id, or features that are no row of the model.
    """
    if dialect.training.binds_workers:
        raise NotSupported("cerebro_predict does not work on a server with segments yet")
    wanted = prediction_type(Answer.PROB if request.pred_type is None else request.pred_type)
    use_gpus = bool(request.use_gpus)
    with control_session(
        pool,
        request.search_path,
        tick,
        fits=lambda session: may_score(session, use_gpus),
        prefer=runs_tensorflow,
    ) as session:
        return _Job(session, dialect.prediction, tick).run(request, wanted, use_gpus)


class _Job:
    """One call, in one session that is worker as well: its transaction makes the table."""

    def __init__(self, session: Session, sql: PostgreSQLPrediction, tick: Tick) -> None:
        self._session, self._sql, self._tick = session, sql, tick

    def run(
        self, request: PredictionRequest, wanted: PredictionType, use_gpus: bool
    ) -> QualifiedName:
        """Resolve the names, load the model, predict."""
        work = self._resolved(request, wanted)
        model = load_models(self._session, work.table, [work.mst_key], self._tick)[0]
        task = json.dumps(
            recipe(model, work.table.targets)
            | {
                "shape": list(work.table.input_shape),
                "divisor": work.table.normalizing_const,
                "ranks": work.ranks,
            }
        )
        self._session.run(*preparation(self._session, use_gpus), self._tick)
        try:
            self._written(work, task)
        except StatementFailed as failure:
            # Class 22: something about the data.
            if not failure.sqlstate.startswith("22"):
                raise
            raise self._explained(work, failure) from None
        finally:
            release(self._session)
        return work.output

    def _resolved(self, request: PredictionRequest, wanted: PredictionType) -> Work:
        session, tick = self._session, self._tick
        table = load_model_table(session, request.model_table, tick)
        if request.mst_key is not None:
            table.check_key(request.mst_key)
        mst_key = table.only_key() if request.mst_key is None else request.mst_key
        _check_type(table, wanted)
        source = find(session, request.test_table, "test_table", tick)
        if source.has("partition_key") and source.has("buffer_id"):
            raise WrongObjectType(
                f"test_table: {source.name} is packed; allowed: a table with a row for each example"
            )
        id_column = column(source, request.id_col, "id_col")
        _check_id(id_column)
        feature = feature_of(column(source, request.independent_varname, "independent_varname"))
        features = f"t.{quote(feature.column.name)}"
        if feature.cast:
            features = f"{features}::{feature.cast}"
        output = new_table(session, request.output_table, "output_table", (), tick)
        rows = RowSource(source.name, f"t.{quote(id_column.name)}", features)
        return Work(table, mst_key, wanted, id_column, feature, rows, output)

    def _written(self, work: Work, task: str) -> None:
        run, sql, tick = self._session.run, self._sql, self._tick
        with transaction(self._session, tick):
            if run(sql.is_empty(work.source), (), tick)[0][0]:
                raise InvalidData(f"test_table: {work.source.table} has no rows")
            id_type = work.id.type.replace("%", "%%")
            run(sql.create(work.output, work.id.name, id_type, _columns(work.table)), (), tick)
            run(sql.settings, (), tick)
            begin = sql.begin(work.table.states)
            token = run(begin, (task, work.mst_key), tick)[0][0]
            run(*self._insertion(work, token), tick)

    def _insertion(self, work: Work, token: int) -> Statement:
        table, name = work.table, work.table.dependent_varname
        if table.targets.kind != "class":
            sql = self._sql.values(work.output, work.source, table.targets.shape)
            return sql, (name, work.batch_rows, token)
        above = work.type.number if work.type.answer is Answer.ABOVE else -math.inf
        classes = list(table.class_values)
        places = (work.ranks, work.ranks)
        sql = self._sql.classes(work.output, work.source)
        return sql, (name, classes, *places, work.batch_rows, token, work.ranks, above)

    def _explained(self, work: Work, failure: CerebroError) -> CerebroError:
        """The error that names the row because of which the worker failed."""
        shape = work.table.input_shape
        try:
            rows = self._session.run(
                self._sql.culprit(work.source, shape), (work.table.normalizing_const,), self._tick
            )
        except CerebroError:  # the server already fails on reading that row, and says why
            return failure
        if not rows:
            return failure
        number, row_id, fault, got = rows[0]
        where = f"row {number} of the scan of {work.source.table}"
        if row_id is None:
            return InvalidData(f"{where}: column {work.id.name!r} is NULL; allowed: no NULL")
        what = reason(fault, got, shape)
        if fault == "shape" and got is not None:
            what = f"has shape {tuple(got)}; allowed: {shape}, the shape of the model's rows"
        return InvalidData(
            f"{where}, {work.id.name} = {row_id}: column {work.feature.column.name!r} {what}"
        )


def _columns(table: ModelTable) -> str:
    if table.targets.kind == "class":
        return CLASS_COLUMNS
    return ARRAY_COLUMNS if table.targets.shape else VALUE_COLUMNS


def _check_type(table: ModelTable, wanted: PredictionType) -> None:
    if table.targets.kind != "class" and wanted.answer is not Answer.RESPONSE:
        raise InvalidArgument(
            f"pred_type: got {wanted.answer.value!r}; allowed: 'response', as "
            f"{table.dependent_varname!r} is a float target and has no classes"
        )


def _check_id(id_column: Column) -> None:
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
