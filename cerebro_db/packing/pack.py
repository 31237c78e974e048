"""The packing job: rows of a table, shuffled and spread, become buffers of a packed table.

One control session holds the snapshot that all others share, so that every worker reads the
same rows at the same addresses. Each statement of a worker fills one buffer. Where rows are spread
over segments one statement does it all, in a transaction of the control session.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from cerebro_db.columns.encoded import Encoding
from cerebro_db.columns.images import IGNORE
from cerebro_db.columns.inputs import encoded_inputs
from cerebro_db.configs.rounding import gathered
from cerebro_db.errors import CerebroError, DuplicateTable, InvalidArgument
from cerebro_db.models.trained import ModelTable
from cerebro_db.packing.drift import Observed, observe, with_statistics
from cerebro_db.packing.earlier import Earlier
from cerebro_db.packing.fitting import Fitter
from cerebro_db.packing.fold_rules import check_known, numbers_of
from cerebro_db.packing.layout import Layout, Slot, check_size, default_buffer_size, lay_out
from cerebro_db.packing.resolve import Work, check_alone, check_names, resolved
from cerebro_db.packing.summary import PackSummary, readable_encoding, summary_fields
from cerebro_db.packing.survey import Damaged, Surveyor, columns_named, find_damaged, left_out
from cerebro_db.packing.targets import Target
from cerebro_db.postgres.calls.host import JobHost
from cerebro_db.postgres.calls.settings import (
    as_seen,
    isolation,
    notify_of_other_styles,
    styles_while_read,
)
from cerebro_db.postgres.catalog.drift import Drift, Read, record
from cerebro_db.postgres.dialects.segments.packing import SegmentPacking, Spreading
from cerebro_db.postgres.dialects.statements.packing import UNFINISHED, Scan
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import END_HOLDER, holder_of, try_lock, unlock
from cerebro_db.postgres.sessions.parallel import Statement, borrowed, run_all, run_each
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.completeness import check_complete, count_of, scanned_elsewhere
from cerebro_db.postgres.tables.leftovers import drop_leftovers, free_name, packing_key
from cerebro_db.postgres.tables.outputs import replaced
from cerebro_db.postgres.tables.packed import SUMMARY_SUFFIX
from cerebro_db.postgres.tables.search_path import CallerPath, forget_search_path, use_search_path
from cerebro_db.relay.machine import cores
from cerebro_db.requests.packing import PackColumnsRequest, PackingRequest


def pack(host: JobHost, request: PackingRequest, models: ModelTable | None = None) -> PackSummary:
    """Make a packed table and its summary, or nothing at all.

    Args:
        host: of the call; gets one line when all is done, unless it is models that are scored.
        request: what to pack.
        models: that are scored on the rows, which are packed as those of their training were.
    """
    check_alone(request)
    with borrowed(host.pool, 1) as (control,):
        job = _SpreadJob if isinstance(host.dialect.packing, SegmentPacking) else _Job
        summary = job(host, control).run(request, models)
    if models is None:
        host.notice(str(summary))
    return summary


def check(host: JobHost, request: PackingRequest) -> None:
    """Refuse a request that could not be followed now; rows are not looked at.

    Args:
        host, request: as above.
    """
    check_alone(request)
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

    def run(self, request: PackingRequest, models: ModelTable | None) -> PackSummary:
        """Pack, between the caller's search_path and the clean-up."""
        began = time.monotonic()
        drop_leftovers(self._control, self._host.notice)
        with self._search_path(self._host.search_path):
            work = resolved(self._control, self._dialect, request, models)
            notify_of_other_styles(self._control, work.source, work.recorded, self._host.notice)
            with self._locked(work.output), self._tidied(work):
                work, layout = self._built(work)
        return PackSummary(
            output=work.output,
            rows=len(layout.addresses),
            shapes=tuple(one.shape for one in work.inputs),
            partitions=len(layout.rows_per_partition()),
            buffers=len(layout.slots),
            buffer_size=layout.buffer_size,
            classes=tuple(one.num_classes for one in work.targets),
            seconds=time.monotonic() - began,
        )

    def check(self, request: PackingRequest) -> None:
        """Look up all names, and no rows."""
        with self._search_path(self._host.search_path):
            resolved(self._control, self._dialect, request, None)

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
    def _built(self, work: Work) -> tuple[Work, Layout]:
        """Fill the packed table, and give it its name; the work with what was found out about the rows."""
        table = self._readable(work)
        snapshot = self._control.run(self._sql.begin_reading)[0][0]
        counted = self._control.run(count_of(table.sql))[0][0]
        work = self._fitted(work, table)
        # The transaction that holds the snapshot only reads.
        with borrowed(self._pool, 1) as (session,):
            session.run(self._sql.create(work.build, work.names, work.folds is not None))
        damaged = self._damaged(work, table, snapshot)
        surveyor = Surveyor(self._sql, self._control, work.source.name, damaged)
        scan = Scan(table, work.inputs, work.targets, work.weight)
        scan, addresses = surveyor.survey(scan, work.classes, work.earlier)
        if damaged is not None and damaged.rows:
            is_copy = table == work.stage
            first = [
                (self._sql.named_row(number, work.source.name, None if is_copy else address), fault)
                for number, address, fault in damaged.first_among(addresses)
            ]
            self._notify_of_left_out(work, damaged.rows, first)
        read = len(addresses) + (damaged.rows if damaged else 0)
        check_complete("source_table", work.source.name, counted, read)
        work = _surveyed(work, scan)
        partitions = _partitions(work, len(addresses))
        layout = lay_out(addresses, partitions, _buffer_size(work), work.seed)
        check_size(work.inputs, layout)
        layout = self._numbered(work, scan, layout)
        with self._explained(surveyor, scan):
            self._fill(work, scan, layout, snapshot)
        self._control.run("COMMIT; BEGIN")
        self._finish(work, layout, [work.stage] if table == work.stage else [])
        return work, layout

    @contextlib.contextmanager
    def _explained(self, surveyor: Surveyor, scan: Scan[Target]) -> Iterator[None]:
        """Name the row for which a buffer cannot be filled; the transaction that reads is still open."""
        try:
            yield
        except StatementFailed as failure:
            # Class 22: something about the data.
            if not failure.sqlstate.startswith("22"):
                raise
            raise surveyor.explained(scan, failure) from None

    def _fitted(self, work: Work, table: QualifiedName) -> Work:
        """With the numbers of an encoding that is new, or the statistics of rows for an earlier one."""
        plan, request = work.recorded, work.request
        if not isinstance(plan, Encoding) or work.is_scored:
            return work
        read = Read.plain(table)
        if work.earlier is None:
            assert isinstance(request, PackColumnsRequest)
            target, notify = work.targets[0].column, self._host.notice
            fitter = Fitter(
                self._control, work.source.name, table, work.columns, target, request, notify
            )
            return self._with_statistics(work, read, fitter.fitted(plan))
        return self._compared(work, work.earlier, read, plan)

    def _with_statistics(self, work: Work, read: Read, encoding: Encoding) -> Work:
        """With an encoding, its statistics, and the settings with which its rows are read."""
        found = with_statistics(self._control, read, encoding)
        styles = styles_while_read(self._control, work.source)
        inputs = encoded_inputs(structs.replace(found, styles=styles))
        # A survey may have chosen kinds that make an input of their own.
        names = [one.name for one in inputs], [one.name for one in work.targets]
        check_names(*names, work.folds is not None)
        return replace(work, inputs=tuple(one.divided(work.inputs[0].divisor) for one in inputs))

    def _compared(self, work: Work, earlier: Earlier, read: Read, encoding: Encoding) -> Work:
        """With an earlier encoding, after a look at how far the rows have moved."""
        readings = [one for each in work.inputs for one in each.readings("s")]
        with columns_named(self._control, read.sql, readings):
            self._observed = observe(self._control, read, encoding)
        for message in self._observed.notices(earlier.name):
            self._host.notice(message)
        if work.training is not None:
            return work
        return self._with_statistics(work, read, self._observed.encoding)

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
        wide = [one.name for one in work.inputs if one.is_wide]
        stage = self._sql.stage(work.stage, source.name, work.columns, wide)
        copied = self._sql.copied(work.stage, source.name, work.columns)
        begin = f"BEGIN ISOLATION LEVEL {isolation(self._control)}"
        self._control.run(f"{begin}; {stage}{as_seen(self._control, copied)}; COMMIT")
        return work.stage

    def _damaged(self, work: Work, table: QualifiedName, snapshot: str) -> Damaged | None:
        """The rows to leave out."""
        if work.request.on_error != IGNORE:
            return None
        parameters = (table.schema, table.name)
        blocks = self._control.run(self._sql.blocks, parameters)[0][0]
        with self._workers(cores(), snapshot) as workers:
            return find_damaged(self._sql, workers, table, _damage(work), blocks)

    def _notify_of_left_out(self, work: Work, rows: int, first: Sequence[tuple[str, str]]) -> None:
        self._host.notice(left_out(rows, work.source.name, work.inputs[0].name, first))

    @contextlib.contextmanager
    def _workers(self, count: int, snapshot: str) -> Iterator[list[Session]]:
        """Sessions that read what the control session reads."""
        with borrowed(self._pool, count) as workers:
            run_each(workers, (self._sql.begin_writing, (snapshot,)))
            yield workers
            run_each(workers, ("COMMIT", ()))

    def _numbered(self, work: Work, scan: Scan[Target], layout: Layout) -> Layout:
        """The layout with the fold numbers of the rows, where they are to have any."""
        if work.folds is None:
            return layout
        kind, name = work.folds
        ranks, missing = self._control.run(self._sql.ranks(scan, name))[0]
        check_known(work.folds, missing)
        values = np.frombuffer(ranks, ">i4").astype(np.int64)
        return replace(layout, fold_numbers=numbers_of(kind, values, layout.order))

    def _fill(self, work: Work, scan: Scan[Target], layout: Layout, snapshot: str) -> None:
        text = self._sql.fill(work.build, scan, work.folds is not None)
        fillings: Iterator[Statement] = (
            (
                text,
                (slot.partition_key, slot.buffer_id, *layout.numbers(slot), *_rows(layout, slot)),
            )
            for slot in layout.slots
        )
        with self._workers(min(cores(), len(layout.rows_per_partition())), snapshot) as workers:
            run_all(workers, fillings)
            self._report_rounding(work, workers)

    def _report_rounding(self, work: Work, sessions: Sequence[Session]) -> None:
        """Report the values that float32 does not hold."""
        inputs = {one.name: one for one in work.inputs}
        found = gathered(text for session in sessions for text in session.reports())
        for name, rounding in found.items():
            column = name in inputs and inputs[name].column_of(rounding.place)
            self._host.notice(rounding.notice(column or name))

    def _finish(self, work: Work, layout: Layout, drops: Sequence[QualifiedName] = ()) -> None:
        """Give the table its name, drop others, and end the transaction that is open."""
        fields = summary_fields(work, layout)
        more, rows = readable_encoding(work)
        statement = self._sql.finish(
            work.build,
            work.output,
            work.output.suffixed(SUMMARY_SUFFIX),
            [(name, kind) for name, kind, _ in fields],
            drops,
            more,
        )
        values = [*(value for _, _, value in fields), *rows]
        with replaced(self._control, work.outputs):
            self._control.run(statement, values)
        self._record(work)
        # Once this has begun a cancel request must not leave it unknown whether it ended.
        self._control.run_through("COMMIT")


class _SpreadJob(_Job):
    """A call where rows are spread over segments: all is done in one transaction of one session."""

    def _built(self, work: Work) -> tuple[Work, Layout]:
        sql, control = self._sql, self._control
        assert isinstance(sql, SegmentPacking)
        control.run(sql.begin)
        all_keys = dict(control.run(sql.segment_keys))
        segments = self._segments(sql, work, sorted(all_keys))
        keys = [all_keys[segment] for segment in segments]
        self._stage(sql, work)
        damaged = self._left_out(sql, work) if work.request.on_error == IGNORE else None
        surveyor = Surveyor(sql, control, work.source.name, damaged)
        work = self._fitted(work, sql.staged)
        control.run(sql.create(work.build, work.names))
        scan = Scan(sql.staged, work.inputs, work.targets, work.weight)
        scan, addresses = surveyor.survey(scan, work.classes, work.earlier)
        work, rows = _surveyed(work, scan), len(addresses)
        partitions = _spread_partitions(work, len(keys), rows)
        layout = lay_out(addresses, partitions, _buffer_size(work), None)
        spreading = Spreading(rows, keys[:partitions], _buffer_size(work))
        control.run("SAVEPOINT before_filling")
        with self._explained(surveyor, scan):
            control.run(sql.rank)
            control.run(sql.fill_all(work.build, scan, spreading))
        check_size(work.inputs, layout)
        self._report_rounding(work, [control])
        work = replace(work, segments=work.segments.followed(segments[:partitions]))
        self._finish(work, layout)
        return work, layout

    @contextlib.contextmanager
    def _explained(self, surveyor: Surveyor, scan: Scan[Target]) -> Iterator[None]:
        """Name the row, once the rows can be looked at again."""
        with super()._explained(surveyor, scan):
            try:
                yield
            except StatementFailed as failure:
                if failure.sqlstate.startswith("22"):
                    self._control.run("ROLLBACK TO SAVEPOINT before_filling")
                raise

    def _stage(self, sql: SegmentPacking, work: Work) -> None:
        """Copy the source, with a key for each row that shuffles it."""
        source = work.source.name
        if self._control.run(sql.needs_staging, (work.source.oid,))[0][0]:
            text, source = sql.copy(source, work.columns)
            self._control.run(as_seen(self._control, text))
        seeds = () if work.seed is None else (work.seed,)
        self._control.run(sql.shuffle(source, work.columns, bool(seeds)), seeds)

    def _left_out(self, sql: SegmentPacking, work: Work) -> Damaged | None:
        """Delete the rows whose images cannot be read, and notify of them."""
        self._control.run(sql.mark_damaged(_damage(work)))
        rows, addresses, faults = self._control.run(sql.marked)[0]
        if not rows:
            return None
        self._control.run(sql.delete_marked)
        where = [sql.named_row(0, work.source.name, address) for address in addresses]
        self._notify_of_left_out(work, rows, list(zip(where, faults, strict=True)))
        return Damaged(rows, faults=tuple(faults))

    def _segments(self, sql: SegmentPacking, work: Work, every: list[int]) -> list[int]:
        """The segments that are used, in the order of the partitions."""
        like, chosen = work.segments.like, work.segments.segments
        if like:
            found: dict[int, int] = dict(self._control.run(sql.segments_of, (list(like),)))
            # Keys of a cluster that had other segments may be unknown here.
            return list(dict.fromkeys(found[key] for key in like if key in found)) or every
        return every if chosen is None else list(chosen)


def _surveyed(work: Work, scan: Scan[Target]) -> Work:
    """The work with shapes and classes."""
    return replace(work, inputs=scan.inputs, targets=scan.targets)


def _rows(layout: Layout, slot: Slot) -> tuple[str, bytes | None]:
    """The rows of a buffer, and their order in it."""
    return layout.tids(slot), layout.positions(slot)


def _damage(work: Work) -> str:
    """SQL of why a row is left out."""
    return work.inputs[0].damage(work.inputs[0].value("s"))


def _buffer_size(work: Work) -> int:
    """Most rows of a buffer: the caller's number, or as many as make a good size."""
    return work.request.buffer_size or default_buffer_size(work.inputs, work.targets)


def _partitions(work: Work, rows: int) -> int:
    if work.training is not None:
        return min(len(work.training.partitions), rows)
    if work.is_scored:  # whatever the processors are, so that sums are the same
        return min(_MOST_SCORED, rows // _SCORED_ROWS + 1, rows)
    wanted = work.request.num_partitions
    if wanted is not None and wanted > rows:
        raise InvalidArgument(
            f"num_partitions: got {wanted}; allowed: at most {rows}, "
            f"the number of rows of {work.source.name}"
        )
    return wanted or min(cores(), rows)


def _spread_partitions(work: Work, segments: int, rows: int) -> int:
    """Number of partitions: at most one on each segment; as many as the training table has, on its segments."""
    wanted = None if work.training is not None else work.request.num_partitions
    if wanted is not None and wanted > segments:
        raise InvalidArgument(
            f"num_partitions: got {wanted}; allowed: at most {segments}, the number of segments that are used"
        )
    return min(wanted or segments, rows)
