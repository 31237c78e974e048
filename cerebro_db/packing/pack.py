"""The packing job: rows of a table, shuffled and spread, become buffers of a packed table.

One control session holds the snapshot that all others share, so that every worker reads the
same rows at the same addresses. Each statement of a worker fills one buffer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from cerebro_db.columns.encoded import Encoding
from cerebro_db.columns.images import check_ignores
from cerebro_db.columns.inputs import Input, encoded_input
from cerebro_db.configs.rounding import gathered
from cerebro_db.errors import (
    CerebroError,
    DuplicateTable,
    InvalidArgument,
)
from cerebro_db.packing.columns import (
    Others,
    check_counts,
    check_names,
    listed_inputs,
    listed_targets,
    wanted_classes,
)
from cerebro_db.packing.drift import Observed, observe, with_statistics
from cerebro_db.packing.earlier import Earlier, check_follows, followed, of_packed
from cerebro_db.packing.earlier import earlier as earlier_packing
from cerebro_db.packing.fitting import Fitter
from cerebro_db.packing.layout import Layout, lay_out
from cerebro_db.packing.request import PackRequest, PackSummary
from cerebro_db.packing.row_faults import Damaged, columns_named, find_damaged, left_out
from cerebro_db.packing.segments import SpreadWork, choose_segments, spread
from cerebro_db.packing.source import (
    Target,
    check_source,
    compared,
    within_limits,
)
from cerebro_db.packing.survey import Survey, Surveyor, extras_of
from cerebro_db.packing.work import (
    ENCODING_SUFFIX,
    Work,
    buffer_size,
    check_size,
    feature_for,
    readable_encoding,
    summary_fields,
    weight_of,
)
from cerebro_db.postgres.calls.host import JobHost
from cerebro_db.postgres.calls.settings import (
    as_seen,
    is_seen,
    isolation,
    notify_of_other_styles,
    styles_while_read,
)
from cerebro_db.postgres.catalog.drift import Drift, Read, record
from cerebro_db.postgres.dialects.segments.packing import SegmentPacking
from cerebro_db.postgres.dialects.statements.packing import UNFINISHED, PackingStatements
from cerebro_db.postgres.dialects.statements.packing_extras import add_columns
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import END_HOLDER, holder_of, try_lock, unlock
from cerebro_db.postgres.sessions.parallel import Statement, borrowed, run_all, run_each
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.completeness import check_complete, count_of, scanned_elsewhere
from cerebro_db.postgres.tables.kinds import PACKED
from cerebro_db.postgres.tables.leftovers import drop_leftovers, free_name, packing_key
from cerebro_db.postgres.tables.outputs import new_outputs, replaced
from cerebro_db.postgres.tables.packed import SUMMARY_SUFFIX, load_packed
from cerebro_db.postgres.tables.relations import Relation, find
from cerebro_db.postgres.tables.search_path import CallerPath, forget_search_path, use_search_path
from cerebro_db.relay.machine import cores


def pack(host: JobHost, request: PackRequest) -> PackSummary:
    """Make a packed table and its summary, or nothing at all.

    Args:
        host: of the call; gets one line when all is done, unless it is models that are scored.
        request: what to pack.
    """
    request.check()
    with borrowed(host.pool, 1) as (control,):
        summary = _Job(host, control).run(request)
    if not request.is_scored:
        host.notice(str(summary))
    return summary


def check(host: JobHost, request: PackRequest) -> None:
    """Refuse a request that could not be followed now; rows are not looked at.

    Args:
        host, request: as above.
    """
    request.check()
    with borrowed(host.pool, 1) as (control,):
        _Job(host, control).check(request)


# Partitions of rows on which models are scored: one from so many rows on, and not more than so many.
_SCORED_ROWS, _MOST_SCORED = 500_000, 8


class _Job:
    """State of one call of ``pack``."""

    def __init__(self, host: JobHost, control: Session) -> None:
        self._host, self._pool = host, host.pool
        self._dialect, self._sql = host.dialect, host.dialect.packing
        self._control = control
        self._observed: Observed | None = None  # where an earlier encoding is used

    def run(self, request: PackRequest) -> PackSummary:
        """Pack, between the caller's search_path and the clean-up."""
        began = time.monotonic()
        drop_leftovers(self._control, self._host.notice)
        with self._search_path(self._host.search_path):
            work = self._resolved(request)
            notify_of_other_styles(
                self._control, work.source, work.feature.recorded, self._host.notice
            )
            with self._locked(work.output), self._tidied(work):
                survey, layout = self._built(work)
        return PackSummary(
            output=work.output,
            rows=len(layout.addresses),
            shapes=tuple(feature.shape for feature in survey.features),
            partitions=len(layout.rows_per_partition()),
            buffers=len(layout.slots),
            buffer_size=layout.buffer_size,
            classes=tuple(target.num_classes for target in survey.targets),
            seconds=time.monotonic() - began,
        )

    def check(self, request: PackRequest) -> None:
        """Look up all names, and no rows."""
        with self._search_path(self._host.search_path):
            self._resolved(request)

    # -- names ---------------------------------------------------------------
    def _resolved(self, request: PackRequest) -> Work:
        source = find(self._control, request.source_table, "source_table")
        check_source(source)
        is_seen(self._control, source)  # or refused
        training = earlier = None
        if request.is_validation:
            training = load_packed(self._control, request.training_table, "training_table")
            earlier = of_packed(training)
        elif request.encoding_of is not None:
            earlier = earlier_packing(self._control, request.encoding_of)
        encoding = (ENCODING_SUFFIX,) if request.encoding else ()
        outputs = new_outputs(
            self._control,
            request.output_table,
            "output_table",
            PACKED,
            suffixes=("", SUMMARY_SUFFIX, *encoding),
            replace=request.replace,
            inputs=[source.oid, *([training.relation.oid] if training else [])],
        )
        target, *targets = listed_targets(request, source)
        if earlier is not None and training is None and not request.is_scored:
            check_follows(request, source, target, earlier)
        feature, *features = self._features(request, source, target, earlier)
        others = Others(tuple(features), tuple(targets))
        check_names(
            [one.column.name for one in (feature, *features)],
            [one.column.name for one in (target, *targets)],
        )
        check_ignores(request.ignores, feature.can_be_damaged)
        if earlier is not None:
            check_counts(earlier, (feature, *features), (target, *targets))
            target, *targets = [
                followed(self._control, one, earlier, place)
                for place, one in enumerate((target, *targets))
            ]
        target, *targets = [
            compared(self._control, source, one, earlier.targets[place] if earlier else None)
            for place, one in enumerate((target, *targets))
        ]
        others = replace(others, targets=tuple(targets))
        classes = wanted_classes(request, (target, *targets))
        weight = weight_of(request, source)
        segments = choose_segments(
            self._control, self._dialect.hosts, request.distribution_rules, training
        )
        return Work(
            request,
            source,
            feature,
            target,
            training,
            outputs,
            weight,
            segments,
            others=others,
            classes=classes,
            earlier=earlier,
        )

    def _features(
        self,
        request: PackRequest,
        source: Relation,
        target: Target,
        earlier: Earlier | None,
    ) -> tuple[Input, ...]:
        if not request.makes_features and (earlier is None or earlier.encoding is None):
            listed = request.independent_varname
            if found := listed_inputs(source, listed, "independent_varname"):
                return found
        feature = feature_for(request, source, target, earlier)
        return (within_limits(self._control, feature),)

    # -- around the work -----------------------------------------------------
    @contextlib.contextmanager
    def _search_path(self, path: CallerPath) -> Iterator[None]:
        use_search_path(self._control, path)
        try:
            yield
        finally:
            self._control.recover()
            forget_search_path(self._control)

    @contextlib.contextmanager
    def _locked(self, output: QualifiedName) -> Iterator[None]:
        """Keep other sessions from packing into the same table."""
        key = packing_key(output)
        if not try_lock(self._control, key):
            raise DuplicateTable(
                f"output_table: {output} is being packed by another session, "
                f"{holder_of(self._control, key)}",
                hint=f"choose another name, or {END_HOLDER}",
            )
        try:
            yield
        finally:
            self._control.recover()
            if not self._control.closed:
                unlock(self._control, key)

    @contextlib.contextmanager
    def _tidied(self, work: Work) -> Iterator[None]:
        """Drop what an unfinished packing has left, of this or an earlier call."""
        for table in (work.build, work.stage):
            free_name(self._control, table, UNFINISHED)
        try:
            yield
        except BaseException:
            self._undo(self._sql.drop((work.build, work.stage)))
            raise

    def _undo(self, drop: str) -> None:
        """Drop what was begun, in the session that began it: there may be no connection for another one.

        If that is gone, and no other can be had, the next call of the role clears what is left.
        """
        self._control.recover()
        with contextlib.suppress(CerebroError):
            self._control.run_through(drop)
            return
        with (
            contextlib.suppress(CerebroError),
            self._pool.undisturbed(),
            borrowed(self._pool, 1) as (session,),
        ):
            session.run(drop)

    # -- the work ------------------------------------------------------------
    def _built(self, work: Work) -> tuple[Survey, Layout]:
        if isinstance(self._sql, SegmentPacking):
            return self._spread(self._sql, work)
        table = self._readable(work)
        self._control.run(self._sql.create(work.build, *work.names))
        if extras := extras_of(work.others):
            self._control.run(add_columns(work.build, extras))
        snapshot = self._control.run(self._sql.begin_reading)[0][0]
        counted = self._control.run(count_of(table.sql))[0][0]
        work = self._fitted(work, table)
        damaged = self._damaged(work, table, snapshot)
        surveyor = Surveyor(self._sql, self._control, damaged)
        survey = _survey(surveyor, work, table)
        if damaged is not None and damaged.rows:
            self._tell_damaged(survey, damaged)
        read = len(survey.addresses) + (damaged.rows if damaged else 0)
        check_complete("source_table", work.source.name, counted, read)
        layout = _layout(work, survey)
        try:
            self._fill(work, survey, layout, snapshot)
        except StatementFailed as failure:
            # Class 22: something about the data; the reading transaction is still open.
            if not failure.sqlstate.startswith("22"):
                raise
            raise surveyor.explained(survey, failure) from None
        self._control.run("COMMIT; BEGIN")
        self._finish(work, survey, layout)
        return survey, layout

    def _spread(self, sql: SegmentPacking, work: Work) -> tuple[Survey, Layout]:
        request = work.request
        spread_work = SpreadWork(
            source=work.source.name,
            build=work.build,
            columns=work.columns,
            names=work.names,
            seed=request.shuffle_seed,
            # As many as the training table has, on its segments.
            partitions=None if work.training else request.num_partitions,
            segments=work.segments.segments,
            like=work.segments.like,
            survey=lambda surveyor: _survey(surveyor, self._fitted(work, sql.staged), sql.staged),
            buffer_size=lambda survey: buffer_size(work, survey),
            ignored=work.feature if request.ignores else None,
            notify=self._host.notice,
        )
        survey, layout, used = spread(sql, self._control, spread_work)
        check_size(survey, layout)
        self._report_rounding(work, [self._control])
        work = replace(work, feature=survey.feature, segments=work.segments.followed(used))
        self._finish(work, survey, layout)
        return survey, layout

    def _fitted(self, work: Work, table: QualifiedName) -> Work:
        """With the numbers of an encoding that is new, or the statistics of rows for an earlier one."""
        wanted, plan = work.request.encoding, work.feature.recorded
        if not isinstance(plan, Encoding):
            return work
        read = Read.plain(table)
        if work.earlier is not None:
            return self._compared(work, work.earlier, read, plan)
        if wanted is None or wanted.max_categories is None or wanted.min_coverage is None:
            return work
        fitter = Fitter(
            self._control,
            work.source.name,
            table,
            wanted.max_categories,
            wanted.min_coverage,
            self._host.notice,
        )
        found = with_statistics(self._control, read, fitter.fitted(plan))
        return self._with_styles(work, found)

    def _with_styles(self, work: Work, encoding: Encoding) -> Work:
        """With an encoding, and the settings with which its rows are read."""
        styles = styles_while_read(self._control, work.source)
        found = structs.replace(encoding, styles=styles)
        return replace(work, feature=encoded_input(found))

    def _compared(self, work: Work, earlier: Earlier, read: Read, encoding: Encoding) -> Work:
        """With an earlier encoding, after a look at how far the rows have moved."""
        if work.request.is_scored:
            return work
        with columns_named(self._control, read.sql, work.feature.readings("s")):
            self._observed = observe(self._control, read, encoding)
        for message in self._observed.notices(earlier.name):
            self._host.notice(message)
        if work.training is not None:
            return work
        found = with_statistics(self._control, read, self._observed.encoding)
        return self._with_styles(work, found)

    def _record(self, work: Work) -> None:
        """Write down how far the rows have moved."""
        if self._observed is None or work.earlier is None:
            return
        drift = Drift(
            "packing" if work.training is None else "validation",
            self._host.job_id,
            work.earlier.name,
            str(work.source.name),
            str(work.output),
            self._observed.rows,
            self._observed.columns,
        )
        record(self._control, drift)

    def _readable(self, work: Work) -> QualifiedName:
        """A plain table with the rows of the source: itself, or a copy."""
        source = work.source
        staged = self._control.run(self._sql.needs_staging, (source.oid,))[0][0]
        if not staged and not scanned_elsewhere(self._control, source.name):
            return source.name
        inputs = (work.feature, *work.others.features)
        wide = [one.column.name for one in inputs if one.is_wide]
        stage = self._sql.stage(work.stage, source.name, work.columns, wide)
        copied = self._sql.copied(work.stage, source.name, work.columns)
        begin = f"BEGIN ISOLATION LEVEL {isolation(self._control)}"
        self._control.run(f"{begin}; {stage}{as_seen(self._control, copied)}; COMMIT")
        return work.stage

    def _damaged(self, work: Work, table: QualifiedName, snapshot: str) -> Damaged | None:
        """The rows to leave out."""
        feature = work.feature
        if not work.request.ignores or not feature.can_be_damaged:
            return None
        parameters = (table.schema, table.name)
        blocks = self._control.run(self._sql.blocks, parameters)[0][0]
        with self._workers(cores(), snapshot) as workers:
            return find_damaged(
                self._sql, workers, table, feature.damage(feature.value("s")), blocks
            )

    def _tell_damaged(self, survey: Survey, damaged: Damaged) -> None:
        """Notify of the rows that are left out, as the user finds them."""
        first = []
        for number, address, fault in damaged.first_among(survey.addresses):
            known = None if survey.is_staged else address
            first.append((self._sql.named_row(number, survey.source, known), fault))
        column = survey.feature.column.name
        self._host.notice(left_out(damaged.rows, survey.source, column, first))

    @contextlib.contextmanager
    def _workers(self, count: int, snapshot: str) -> Iterator[list[Session]]:
        """Sessions that read what the control session reads."""
        with borrowed(self._pool, count) as workers:
            run_each(workers, (self._sql.begin_writing, (snapshot,)))
            yield workers
            run_each(workers, ("COMMIT", ()))

    def _fill(self, work: Work, survey: Survey, layout: Layout, snapshot: str) -> None:
        with self._workers(min(cores(), len(layout.rows_per_partition())), snapshot) as workers:
            run_all(workers, _fillings(self._sql, work, survey, layout))
            self._report_rounding(work, workers)

    def _report_rounding(self, work: Work, sessions: Sequence[Session]) -> None:
        """Report the values that float32 does not hold."""
        found = gathered(text for session in sessions for text in session.reports())
        for name, rounding in found.items():
            is_first = name == work.names[0]
            column = (is_first and work.feature.column_of(rounding.place)) or name
            self._host.notice(rounding.notice(column))

    def _finish(self, work: Work, survey: Survey, layout: Layout) -> None:
        """Give the table its name, and end the transaction that is open."""
        fields = summary_fields(
            work.request,
            survey,
            layout,
            work.output,
            work.training,
            work.segments,
            work.earlier,
        )
        more, told = readable_encoding(work)
        statement = self._sql.finish(
            work.build,
            work.output,
            work.output.suffixed(SUMMARY_SUFFIX),
            [(field.name, field.type) for field in fields],
            [work.stage] if survey.scan.table == work.stage else [],
            more,
        )
        values = [*(field.value for field in fields), *told]
        with replaced(self._control, work.outputs):
            self._control.run(statement, values)
        self._record(work)
        # Once this has begun a cancel request must not leave it unknown whether it ended.
        self._control.run_through("COMMIT")


def _fillings(
    sql: PackingStatements, work: Work, survey: Survey, layout: Layout
) -> Iterator[Statement]:
    """The statements that fill buffers, one each."""
    text = sql.fill(work.build, survey.scan, work.names)
    values, shape = survey.values, list(survey.feature.shape)
    for slot in layout.slots:
        first = [slot.partition_key, slot.buffer_id, survey.divisor]
        yield text, (*first, *values, layout.tids(slot), layout.positions(slot), shape)


def _layout(work: Work, survey: Survey) -> Layout:
    seed = work.request.shuffle_seed
    partitions = _partitions(work, len(survey.addresses))
    layout = lay_out(survey.addresses, partitions, buffer_size(work, survey), seed)
    check_size(survey, layout)
    return layout


def _survey(surveyor: Surveyor, work: Work, table: QualifiedName) -> Survey:
    return surveyor.survey(
        work.source.name,
        table,
        work.feature,
        work.target,
        work.divisor,
        work.classes,
        work.earlier,
        work.weight,
        work.others,
    )


def _partitions(work: Work, rows: int) -> int:
    if work.training is not None:
        return min(len(work.training.partitions), rows)
    if work.request.is_scored:  # whatever the processors are, so that sums are the same
        return min(_MOST_SCORED, rows // _SCORED_ROWS + 1, rows)
    wanted = work.request.num_partitions
    if wanted is not None and wanted > rows:
        raise InvalidArgument(
            f"num_partitions: got {wanted}; allowed: at most {rows}, "
            f"the number of rows of {work.source.name}"
        )
    return wanted or min(cores(), rows)
