"""Predictions out of fold: of each row by the model of a configuration that has not seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_db.core.folds import Folds
from cerebro_db.errors import InvalidArgument, InvalidData, NotSupported, UndefinedRun
from cerebro_db.executors.fold_rows import FoldRows, read_fold_rows
from cerebro_db.models.trained import ROLE, ModelTable, load_model_table
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.catalog.runs import RESTORED, Catalog
from cerebro_db.postgres.dialects.segments.prediction import SegmentPrediction
from cerebro_db.postgres.dialects.statements.sources import Piece
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.fingerprint import fingerprint as packed_fingerprint
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.requests.predicting import FoldPredictionRequest, PredictionRequest
from cerebro_db.scoring.prediction import resolved, wanted_of
from cerebro_db.scoring.prediction_job import PredictionJob, Work
from cerebro_db.scoring.prediction_models import Ensemble, models_of_table, shown_classes
from cerebro_db.scoring.prediction_source import Buffers

_HINT = "folds of cerebro.cerebro_fit_multiple makes such tables; cerebro.folds shows their configurations"


class FoldsJob(PredictionJob):
    """A prediction whose rows are those of all folds, each by a model of its own.

    Args:
        host: of the call.
        control: a session of it.
        folds: the work of each.
    """

    def __init__(self, host: JobHost, control: Session, folds: Sequence[Work]) -> None:
        super().__init__(host, control)
        self._folds = folds

    def _insert(
        self,
        workers: Sequence[Session],
        work: Work,
        table: QualifiedName,
        pieces: Sequence[Piece],
        counted: int,
    ) -> None:
        for one in self._folds:
            assert isinstance(one.source, Buffers)
            super()._insert(workers, one, table, pieces, one.source.rows)


def predict_folds(host: JobHost, request: FoldPredictionRequest) -> None:
    """Make a table of predictions out of fold, or nothing at all.

    Raises:
        InvalidArgument: the models are of no folds, or the configuration has not a model of each.
        InvalidData: the packed table is not as it was.
        NotSupported: rows lie on segments.
    """
    if isinstance(host.dialect.prediction, SegmentPrediction):
        raise NotSupported(
            "cerebro.cerebro_predict_folds: got a server with segments; allowed: PostgreSQL",
            hint="cerebro.cerebro_predict, with the mst_key of each model, predicts all rows of the packed table",
        )
    with control_session(host.pool, host.search_path) as session:
        table = load_model_table(session, request.model_table)
        keys = _keys(session, table, request.mst_key)
        packed = _source(session, table)
        works = _works(session, host, request, table, packed, keys)
        FoldsJob(host, session, works).run(works[0])


def _keys(session: Session, table: ModelTable, wanted: int | None) -> list[int]:
    """The keys of the models of a configuration, in the order of the folds."""
    if not (table.info.has("configuration") and table.info.has("fold")):
        raise InvalidArgument(
            f"{ROLE}: got {table.relation.name}, whose models are of no folds; allowed: a table of a run with folds",
            hint=_HINT,
        )
    found: dict[int, list[int]] = {}
    sql = (
        f"SELECT i.configuration::integer, i.mst_key::integer FROM {table.info.name.sql} i "
        "WHERE i.configuration IS NOT NULL AND i.mst_key IS NOT NULL ORDER BY i.fold"
    )
    for configuration, key in session.run(sql):
        found.setdefault(configuration, []).append(key)
    chosen = next(iter(found)) if wanted is None and len(found) == 1 else wanted
    if chosen not in found:
        got = "NULL" if wanted is None else wanted
        listed = ", ".join(map(str, sorted(found)[:20]))
        raise InvalidArgument(
            f"mst_key: got {got}; allowed: a configuration of the run: {listed}", hint=_HINT
        )
    keys = found[chosen]
    missing = [fold for fold, key in enumerate(keys, 1) if key not in table.mst_keys]
    if missing:
        raise InvalidArgument(
            f"mst_key: got {chosen}, which has no model of fold {missing[0]}; allowed: a configuration with a model "
            "of each fold",
            hint="cerebro.leaderboard tells why it has failed",
        )
    return keys


def _source(session: Session, table: ModelTable) -> PackedTable:
    """The packed table of the run, as it was."""
    summary = table.relation.name.suffixed("_summary")
    rows = session.run(f"SELECT s.run_id::bigint, s.source_table::text FROM {summary.sql} s")
    run_id, name = rows[0]
    packed = load_packed(session, name, "source_table")
    try:
        before = Catalog(session).run(run_id).tables.source.fingerprint
    except UndefinedRun:  # it was dropped, and nobody knows
        return packed
    if before not in (RESTORED, packed_fingerprint(session, packed, before)):
        raise InvalidData(
            f"source_table: {packed.relation.name} has been changed since the run began, so that nobody knows which "
            "rows a model has seen",
            hint="train again, under another model_output_table",
        )
    return packed


def _works(
    session: Session,
    host: JobHost,
    request: FoldPredictionRequest,
    table: ModelTable,
    packed: PackedTable,
    keys: Sequence[int],
) -> list[Work]:
    """The work of each fold."""
    models = [_model(session, host, table, key) for key in keys]
    given = PredictionRequest(
        None,
        str(packed.relation.name),
        None,
        None,
        request.output_table,
        request.pred_type,
        request.use_gpus,
        num_workers=request.num_workers,
        replace=request.replace,
    )
    work = resolved(session, host.dialect, given, models[0], wanted_of(request.pred_type))
    if packed.fold_kind is None:
        sources = [_fold(work.source, packed, fold, len(keys)) for fold in range(len(keys))]
    else:
        sources = _numbered(session, work.source, packed, len(keys))
    return [
        replace(work, ensemble=model, source=source)
        for source, model in zip(sources, models, strict=True)
    ]


def _model(session: Session, host: JobHost, table: ModelTable, key: int) -> Ensemble:
    found = models_of_table(session, table, [key])
    values = shown_classes(session, found.class_values, found.class_kinds, host.styles)
    return replace(found, class_values=values)


def _fold(source: Any, packed: PackedTable, fold: int, count: int) -> Buffers:
    """The rows of a fold."""
    assert isinstance(source, Buffers)
    rows = sum(
        len(range((fold - buffer_id - partition.partition_key) % count, rows, count))
        for partition in packed.partitions
        for buffer_id, rows in partition.buffers
    )
    return replace(source, sql=replace(source.sql, fold=(fold, count)), rows=rows)


def _numbered(session: Session, source: Any, packed: PackedTable, count: int) -> list[Buffers]:
    """The rows of each fold, where they have fold numbers."""
    assert isinstance(source, Buffers)
    found = read_fold_rows(session, packed, Folds(count, (), packed.fold_kind))
    return [_chosen(source, packed, found, fold) for fold in range(count)]


def _chosen(source: Buffers, packed: PackedTable, found: FoldRows, fold: int) -> Buffers:
    total, wanted = 0, {}
    for partition in packed.partitions:
        mask = found.mask(partition.partition_key, fold, held_out=True)
        total += int(mask.sum())
        ids, rows = zip(*partition.buffers, strict=True)
        pieces = np.split(mask, np.cumsum(rows)[:-1])
        bits = [np.packbits(one, bitorder="little").tobytes() for one in pieces]
        wanted[partition.partition_key] = list(zip(ids, bits, strict=True))
    return replace(source, sql=replace(source.sql, wanted=wanted), rows=total)
