"""Evaluation: loss and metrics of trained models on a packed table, in one scan of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.columns.images import ImageEncoding, check_ignores
from cerebro_db.configs.grids.outputs import (
    AUC,
    CONFUSION,
    first_metric,
    is_exact,
    loss_names,
)
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.executors.tasks import input_task, target_task, worker_task
from cerebro_db.models.registered import Origin, named_models, origin_of
from cerebro_db.models.trained import (
    ModelTable,
    TrainedModel,
    load_models,
    one_or_all,
    recipe,
)
from cerebro_db.postgres.calls.gpus import check_gpus, gpu_places
from cerebro_db.postgres.calls.host import (
    NO_RUN,
    JobHost,
    control_session,
    preparation,
    retried_once,
)
from cerebro_db.postgres.calls.slots import slots
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.statements.orders import ScanOrder
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.parallel import Statement, gather
from cerebro_db.postgres.sessions.session import Session, close_all
from cerebro_db.postgres.tables.buffers import PartitionInfo
from cerebro_db.postgres.tables.fingerprint import cause_of
from cerebro_db.postgres.tables.kinds import CONFUSION as CONFUSION_MATRICES
from cerebro_db.postgres.tables.kinds import SCORES, Kind
from cerebro_db.postgres.tables.outputs import Outputs, new_outputs, replaced
from cerebro_db.postgres.tables.packed import PackedTable, is_packed, load_packed
from cerebro_db.postgres.tables.relations import Relation, find
from cerebro_db.relay.machine import cores
from cerebro_db.requests.predicting import ScoringRequest
from cerebro_db.scoring.prediction_models import shown_classes
from cerebro_db.scoring.raw_rows import RawRows, check_raw_arguments, packed_rows

# Workers that must import TensorFlow first pay off from so many rows on, each scored by one model.
MANY_ROWS = 2_000_000
# As text they stay below a gigabyte.
MOST_PREDICTIONS = 150_000_000
_DATASET = "test"
_ROLE = "test_table"
_OTHER_PACKING = "give the raw rows as test_table, or pack them with cerebro.cerebro_pack_validation and the training table"
_COLUMNS = (
    "loss double precision",
    "metric double precision",
    "metrics_type text[]",
    "loss_type text",
    "mst_key integer",
    "metrics double precision[]",
)


@dataclass(frozen=True)
class Score:
    """Loss and metrics of one model; of several outputs also the loss of each is a metric."""

    mst_key: int
    loss: float
    loss_type: str
    names: list[str]
    metrics: list[float]
    has_metric: bool = True

    def row(self) -> list[Any]:
        """As the output table has it."""
        first = self.metrics[0] if self.has_metric and self.metrics else None
        names, metrics = self.names or None, self.metrics or None
        return [self.loss, first, names, self.loss_type, self.mst_key, metrics]


def evaluate(host: JobHost, request: ScoringRequest) -> list[Score]:
    """Score models on a packed table or on raw rows, and write the scores into a new table.

    Args:
        host: of the call; gets notices of fewer workers.
        request: what to score.

    Raises:
        InvalidArgument: the test table was not packed like the training table.
        ObjectInUse, TooManyConnections: there is no worker for it, or no connection.
    """
    with control_session(host.pool, host.search_path) as control:
        table = named_models(control, request.model_table)
        found, models, outputs = resolved(control, table, request, SCORES)
        with test_rows(host, control, table, request, found) as test:
            scores = _scored(host, control, table, test, models, bool(request.use_gpus))
        with transaction(control):
            _write(control, outputs, scores, origin_of(table))
    return scores


def scores_on(
    host: JobHost, control: Session, table: ModelTable, test: PackedTable, mst_keys: Sequence[int]
) -> list[Score]:
    """Score models on a packed table.

    Args:
        host: of the call; gets notices of fewer workers.
        control: a session, which holds the slots of the workers.
        table: of the models.
        test: packed like the table that they were trained on, which is not checked here.
        mst_keys: which models.
    """
    models = load_models(control, table, mst_keys)
    return _scored(host, control, table, test, models, False)


def _scored(
    host: JobHost,
    control: Session,
    table: ModelTable,
    test: PackedTable,
    models: Sequence[TrainedModel],
    use_gpus: bool,
) -> list[Score]:
    details = {model.mst_key: AUC for model in models if _has_exact(model)}
    results = ScoringJob(host, table, test, models, details).run(control, use_gpus)
    return [_score(model, results[model.mst_key]) for model in models]


def resolved(
    control: Session,
    table: ModelTable,
    request: ScoringRequest,
    kind: Kind,
    keys: Sequence[int] | None = None,
) -> tuple[Relation, list[TrainedModel], Outputs]:
    """The test table, the models and the outputs of a request.

    Args:
        control: a session.
        table: of the models.
        request: names them.
        kind: of the outputs.
        keys: of the models; None for what the request says, all of them by default.
    """
    found = find(control, request.test_table, _ROLE)
    if keys is None and request.mst_key is not None:
        table.check_key(request.mst_key)
        keys = (request.mst_key,)
    keys = table.mst_keys if keys is None else keys
    models = load_models(control, table, keys)
    outputs = new_outputs(
        control,
        request.output_table,
        "output_table",
        kind,
        replace=request.replace,
        inputs=[found.oid],
    )
    return found, models, outputs


@contextmanager
def test_rows(
    host: JobHost,
    control: Session,
    table: ModelTable,
    request: ScoringRequest,
    found: Relation,
) -> Iterator[PackedTable]:
    """The rows of a request: a packed table, or raw rows that are packed meanwhile as the models need them."""
    if not is_packed(found):
        named = request.dependent_varname, request.independent_varname
        rows = RawRows(found, *named, request.on_error)
        check_ignores(request.on_error, isinstance(table.encoding, ImageEncoding))
        rows.read_for(table)
        with packed_rows(host, control, table, rows) as test:
            yield test
        return
    test = load_packed(control, request.test_table, _ROLE)
    check_ignores(request.on_error, can_be_damaged=False)
    check_raw_arguments(
        test,
        dependent_varname=request.dependent_varname,
        independent_varname=request.independent_varname,
    )
    check_alike(table, test)
    yield test


def is_alike(table: ModelTable, test: PackedTable) -> bool:
    """True if the rows of a packed table mean what those of the training did."""
    try:
        check_alike(table, test)
    except InvalidArgument:
        return False
    return True


def check_alike(table: ModelTable, test: PackedTable) -> None:
    """Refuse a packed table whose rows mean something else than those of the training."""
    ours = {
        "rows of shape": one_or_all(table.input_shapes),
        "targets of the kind": one_or_all([one.kind for one in table.targets.each]),
        "targets of shape": one_or_all([one.shape for one in table.targets.each]),
        "class values": one_or_all(table.class_values),
        "the normalizing constant": table.normalizing_const,
    }
    theirs = {
        "rows of shape": one_or_all([one.shape for one in test.inputs]),
        "targets of the kind": one_or_all([one.kind for one in test.targets]),
        "targets of shape": one_or_all([one.shape for one in test.targets]),
        "class values": one_or_all([one.class_values for one in test.targets]),
        "the normalizing constant": test.normalizing_const,
    }
    if table.encoding != test.encoding:
        raise InvalidArgument(
            f"test_table: got {test.relation.name} with another encoding of its columns than "
            "that of the training",
            hint=_OTHER_PACKING,
        )
    for what, wanted in ours.items():
        if theirs[what] != wanted:
            raise InvalidArgument(
                f"test_table: got {test.relation.name} with {what} {theirs[what]}; "
                f"the models were trained with {wanted}",
                hint=_OTHER_PACKING,
            )


def _has_exact(model: TrainedModel) -> bool:
    return any(is_exact(metric) for output in model.outputs for metric in output.metrics)


class ScoringJob:
    """The scans of one call and their sums.

    Args:
        host: of the call.
        table: of the models.
        test: what they are scored on.
        models: which of the table.
        details: what needs all predictions, by mst_key, of those that need any.
        study: what else is computed of all models, as :mod:`cerebro_db.training.scores.studies` takes it.
        keeps: numbers of each row that it needs at once.
    """

    def __init__(
        self,
        host: JobHost,
        table: ModelTable,
        test: PackedTable,
        models: Sequence[TrainedModel],
        details: Mapping[int, str],
        study: Mapping[str, Any] | None = None,
        *,
        keeps: int = 0,
    ) -> None:
        self._host = host
        self._sql, self._hosts = host.dialect.training, host.dialect.hosts
        self._table, self._test, self._models = table, test, models
        self._recipes = {model.mst_key: recipe(model, table) for model in models}
        for mst_key, detail in details.items():
            self._recipes[mst_key]["detail"] = detail
        for one in self._recipes.values() if study is not None else ():
            one["study"] = dict(study or {})
        self._check_size(list(details.values()).count(AUC))
        if keeps * test.rows > MOST_PREDICTIONS:
            raise InvalidArgument(
                f"test_table: got {test.rows} rows, of each of which {keeps} numbers are needed at once; allowed: "
                f"{MOST_PREDICTIONS // keeps} rows",
                hint="give fewer rows, drawn at random, in a view",
            )

    def _check_size(self, models: int) -> None:
        """All predictions of a partition, and those of a model, go from session to session."""
        outputs = sum(
            max(1, one.num_classes, math.prod(one.shape)) for one in self._table.targets.each
        )
        largest = max((partition.rows for partition in self._test.partitions), default=0)
        numbers = outputs * max(largest * models, self._test.rows if models else 0)
        if numbers > MOST_PREDICTIONS:
            raise InvalidArgument(
                f"test_table: the exact AUC of {models} models needs {numbers} predictions at once; "
                f"allowed: {MOST_PREDICTIONS}",
                hint="evaluate one model at a time (mst_key), or on fewer rows",
            )

    def run(self, control: Session, use_gpus: bool) -> dict[int, dict[str, Any]]:
        """Scan every partition, by as many workers as are worth their start; results by mst_key.

        All of it once more where a trainer has ended.

        Args:
            control: session that holds the slots of the workers.
            use_gpus: where they compute.

        Raises:
            ObjectInUse, TooManyConnections: there is no worker, or no connection for one.
        """
        if use_gpus:
            check_gpus(control, self._hosts, [self._test])
        return retried_once(lambda: self._run(control, use_gpus), self._host.notice)

    def _run(self, control: Session, use_gpus: bool) -> dict[int, dict[str, Any]]:
        with self._workers(control, use_gpus) as workers:
            settings = Catalog(workers[0]).settings()
            places = gpu_places(workers[0], self._hosts, use_gpus)
            task = worker_task(NO_RUN, None, use_gpus, 0, settings, places, functions=True)
            scans = [self._scan(partition, task) for partition in self._test.partitions]
            try:
                results = [json.loads(rows[0][0]) for rows in gather(workers, scans)]
            except StatementFailed as error:
                raise cause_of(error, control, [self._test.relation]) from None
            self._check(results)
            return {key: self._combined(workers[0], key, results) for key in self._recipes}

    @contextmanager
    def _workers(self, control: Session, use_gpus: bool) -> Iterator[list[Session]]:
        with slots(control, self._wanted(), self._host.notice) as count:
            sessions = self._host.pool.take(count)
            try:
                if not self._sql.binds_workers:  # elsewhere a scan makes processes ready by itself
                    for place, session in enumerate(sessions):
                        session.send(*preparation(use_gpus, place))
                    for session in sessions:
                        session.settle()
                yield sessions
            finally:
                close_all(sessions)

    def _wanted(self) -> int:
        """Number of workers that are worth their start."""
        many = self._test.rows * len(self._models) >= MANY_ROWS
        return min(cores(), len(self._test.partitions)) if many else 1

    def _scan(self, partition: PartitionInfo, preparation: str) -> Statement:
        keys = list(self._recipes)
        task = {
            "run_id": NO_RUN,
            "dataset": _DATASET,
            "partition_key": partition.partition_key,
            "buffers": {
                "ids": [buffer_id for buffer_id, _ in partition.buffers],
                "rows": [rows for _, rows in partition.buffers],
            },
            "targets": target_task(self._table.targets)
            | {"weighted": self._test.sample_weight is not None},
            **input_task(self._table.input_shapes),
        }
        order = ScanOrder(
            states=[self._table.states],
            partition_key=partition.partition_key,
            task=json.dumps(task),
            mst_keys=keys,
            versions=None,
            tasks=[json.dumps(self._recipes[key]) for key in keys],
            reads=True,
            preparation=preparation,
        )
        return self._sql.scan(self._test, order)

    def _check(self, results: Sequence[dict[str, Any]]) -> None:
        for result in results:
            for mst_key, error in result["errors"].items():
                raise self._failed(mst_key, error)

    def _failed(self, mst_key: str, error: str) -> InvalidData:
        return InvalidData(
            f"model_table: {self._table.relation.name}, mst_key {mst_key}: {error}",
            hint="of several models, mst_key := ... scores one alone",
        )

    def _combined(
        self, session: Session, mst_key: int, results: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Sums of a model over all partitions, in the order of their keys."""
        partials = [result["partials"][str(mst_key)] for result in results]
        task = {"configurations": [self._recipes[mst_key] | {"partials": partials}]}
        first = [self._test.partitions[0].partition_key]  # that session has scanned it
        combine = "cerebro._combine_measures(%s)"
        call = self._sql.call(self._test, first, combine, [json.dumps(task)])
        rows = session.run(*call)
        combined: dict[str, Any] = json.loads(rows[0][0])[str(mst_key)]
        if "error" in combined:
            raise self._failed(str(mst_key), combined["error"])
        return combined


def _score(model: TrainedModel, result: dict[str, Any]) -> Score:
    loss_type = loss_names(model.outputs)
    has_metric = first_metric(model.outputs) is not None
    return Score(
        model.mst_key,
        result["loss"],
        loss_type,
        result["names"],
        result["metrics"],
        has_metric,
    )


def _write(session: Session, outputs: Outputs, scores: Sequence[Score], origin: Origin) -> None:
    columns, output = ", ".join((*_COLUMNS, *origin.columns)), outputs.table()
    with replaced(session, outputs):
        session.run(f"CREATE TABLE {output.sql} ({columns}); {SCORES.comment(output)}")
        for score in scores:
            row = [*replace(score, mst_key=origin.key(score.mst_key)).row(), *origin.values]
            values = "%s, %s, %s::text[], %s, %s, %s::double precision[]"
            values += ", %s" * len(origin.values)
            session.run(f"INSERT INTO {output.sql} VALUES ({values})", row)


_MOST_ROWS = 10_000


def confusion_matrix(host: JobHost, request: ScoringRequest) -> QualifiedName:
    """Count rows by class and predicted class; returns the table's name.

    Args:
        host: of the call; gets notices of fewer workers.
        request: as for an evaluation.

    Raises:
        InvalidArgument: the target has no classes, or the test table was not packed like the
            training table.
    """
    with control_session(host.pool, host.search_path) as control:
        table = named_models(control, request.model_table)
        if all(target.kind != "class" for target in table.targets.each):
            names = ", ".join(map(repr, table.dependent_varnames))
            raise InvalidArgument(
                f"model_table: {table.relation.name} predicts {names}, a float "
                "target; allowed: classes",
                hint="cerebro.cerebro_evaluate scores models of float targets",
            )
        found, models, outputs = resolved(control, table, request, CONFUSION_MATRICES)
        details = {model.mst_key: CONFUSION for model in models}
        with test_rows(host, control, table, request, found) as test:
            job = ScoringJob(host, table, test, models, details)
            results = job.run(control, bool(request.use_gpus))
        origin = origin_of(table)
        kinds, styles = table.class_kinds, host.styles
        values = shown_classes(control, table.class_values, kinds, styles)
        rows = _rows(replace(table, class_values=values), results, origin)
        with transaction(control), replaced(control, outputs):
            _write_counts(control, outputs.name, rows, table, origin)
    return outputs.name


def _rows(
    table: ModelTable, results: Mapping[int, dict[str, Any]], origin: Origin
) -> list[list[Any]]:
    names, values = table.dependent_varnames, table.class_values
    return [
        [origin.key(mst_key), names[place], values[place][actual], values[place][predicted], count]
        for mst_key, result in results.items()
        for place, actual, predicted, count in result["counts"]
    ]


def _write_counts(
    session: Session,
    output: QualifiedName,
    rows: Sequence[Sequence[Any]],
    table: ModelTable,
    origin: Origin,
) -> None:
    several = len(table.dependent_varnames) > 1
    columns = ["mst_key integer", *(["class_name text"] if several else [])]
    columns += ["actual text", "predicted text", "num_rows bigint", *origin.columns]
    session.run(
        f"CREATE TABLE {output.sql} ({', '.join(columns)}); {CONFUSION_MATRICES.comment(output)}"
    )
    for start in range(0, len(rows), _MOST_ROWS):
        listed = [list(column) for column in zip(*rows[start : start + _MOST_ROWS], strict=True)]
        session.run(
            f"INSERT INTO {output.sql} SELECT u.mst_key, {'u.name, ' if several else ''}u.actual, "
            f"u.predicted, u.num_rows{', %s' * len(origin.values)} FROM "
            "unnest(%s::integer[], %s::text[], %s::text[], %s::text[], %s::bigint[]) "
            "AS u(mst_key, name, actual, predicted, num_rows)",
            [*origin.values, *listed],
        )
