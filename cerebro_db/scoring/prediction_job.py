"""Predictions of all rows of a table by one or several workers, all of one snapshot, or none at all."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.columns.encoded import Encoding
from cerebro_db.configs.rounding import gathered
from cerebro_db.errors import CerebroError, DuplicateTable, InvalidState
from cerebro_db.executors.tasks import worker_task
from cerebro_db.models.trained import no_state
from cerebro_db.packing.drift import Observed, observe
from cerebro_db.postgres.calls.host import (
    NO_RUN,
    SCORING_THREADS,
    JobHost,
    preparation,
    retried_once,
)
from cerebro_db.postgres.calls.settings import as_seen, notify_of_other_styles
from cerebro_db.postgres.calls.slots import slots
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.segments.prediction import Brought, SegmentPrediction
from cerebro_db.postgres.dialects.statements.answers import Answer, Several
from cerebro_db.postgres.dialects.statements.orders import Statement
from cerebro_db.postgres.dialects.statements.prediction import UNFINISHED
from cerebro_db.postgres.dialects.statements.sources import Piece
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import END_HOLDER, holder_of, transaction, try_lock
from cerebro_db.postgres.sessions.parallel import gather_made, run_each
from cerebro_db.postgres.sessions.session import Session, close_all, reset_all
from cerebro_db.postgres.tables.completeness import check_complete, count_of
from cerebro_db.postgres.tables.leftovers import draft_key, drop_leftovers, free_name
from cerebro_db.postgres.tables.outputs import Outputs, publish, replaced
from cerebro_db.relay.machine import cores
from cerebro_db.scoring.prediction_models import Ensemble, Member
from cerebro_db.scoring.prediction_source import ROLE, Buffers, Rows

# A batch is large enough to keep a worker busy and small in its memory.
MAX_BATCH_ROWS = 4096
BATCH_BYTES = 32 * 2**20
BATCH_NUMBERS = 2 * 2**20
# Several workers pay off from so many pieces on.
MANY_PIECES = 128
# Whether some columns are known to be different in all rows. Parameters: oid, names, oid.
_IS_KEY = """
SELECT 1 FROM pg_catalog.pg_index i
 WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
   AND i.indpred IS NULL AND i.indexprs IS NULL
   AND i.indkey::smallint[] <@ ARRAY(
       SELECT a.attnum FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attname = ANY (%s::name[]))
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_inherits h WHERE h.inhparent = %s)
"""


@dataclass(frozen=True)
class Work:
    """A call whose names are resolved.

    Attributes:
        ensemble: the models.
        source: the rows.
        answer: what is inserted for each of them.
        outputs: the table to be made.
        num_workers: as the caller wants it; None for a number that is worth their start.
        use_gpus: as the caller wants it.
    """

    ensemble: Ensemble
    source: Rows | Buffers
    answer: Answer
    outputs: Outputs
    num_workers: int | None
    use_gpus: bool

    @property
    def output(self) -> QualifiedName:
        """The table to be made."""
        return self.outputs.name

    @property
    def batch_rows(self) -> int:
        """Rows of one call of a worker."""
        fitting = BATCH_BYTES // max(1, self.source.row_bytes(self.ensemble))
        answers = BATCH_NUMBERS // max(1, self.answer.numbers)
        return max(1, min(MAX_BATCH_ROWS, fitting, answers))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Number of classes of each output that are asked for, of each row."""
        if isinstance(self.answer, Several):
            return tuple(answer.ranks for answer in self.answer.answers)
        return (self.answer.ranks,)

    @property
    def first_task(self) -> str:
        """Task of a worker that comes with the first model."""
        return self.ensemble.first_task(self.ranks, self.source.columns, self.source.whole)


class Job(ABC):
    """One call, all of whose statements are of one snapshot.

    Args:
        host: of the call; gets notices of ids that several rows have, and of fewer workers.
        control: a session; its transaction gives the output its name.
    """

    def __init__(self, host: JobHost, control: Session) -> None:
        self._dialect, self._control = host.dialect, control
        self._notify, self._looks = host.notice, host.job_id is not None
        self.observed: Observed | None = None  # of a job, where models have an encoding of columns

    def run(self, work: Work) -> None:
        """Make the output, once more from the start where a trainer has ended.

        Raises:
            InvalidData: a row has no id, or features that are no row of the models.
            ObjectInUse, TooManyConnections: there is no worker for it, or no connection.
        """
        drop_leftovers(self._control, self._notify)
        if isinstance(work.source, Rows):
            notify_of_other_styles(
                self._control, work.source.table, work.ensemble.encoding, self._notify
            )
        retried_once(lambda: self._run(work), self._notify)

    def _run(self, work: Work) -> None:
        try:
            sql = self._dialect.prediction
            self._control.run(sql.begin)
            self._made(self._read(work))
        except StatementFailed as failure:
            # Class 22: something about the data.
            if not failure.sqlstate.startswith("22"):
                raise
            self._control.recover()
            explained = work.source.explained
            raise explained(self._control, self._dialect, work.ensemble, failure) from None
        finally:
            self._control.reset()

    def _look(self, work: Work) -> None:
        """See how far the rows have moved from those that the encoding was computed from."""
        encoding = work.ensemble.encoding
        if self._looks and isinstance(work.source, Rows) and isinstance(encoding, Encoding):
            self.observed = observe(self._control, work.source.read(), encoding)

    def _read(self, work: Work) -> Work:
        """The same call, of rows that statements can read as the caller's session sees them."""
        return work

    def _made(self, work: Work) -> None:
        if self._control.run(self._dialect.prediction.is_empty(work.source.sql))[0][0]:
            self._create(work)
            self._publish(work)
            return
        self._look(work)
        if isinstance(work.source, Rows):
            rows = work.source.looked_at(self._control)
            work, counted = replace(work, source=rows), self._tell_repeated(rows)
        else:
            counted = work.source.rows
        self._predicted(work, counted)

    def _tell_repeated(self, source: Rows) -> int:
        """The number of rows; tells of those whose predictions nobody can tell apart."""
        names = [one.name for one in source.ids]
        if self._control.run(_IS_KEY, (source.table.oid, names, source.table.oid)):
            return int(self._control.run(count_of(source.sql.rows))[0][0])
        ids, rows, total = self._control.run(self._dialect.prediction.repeated(source.sql))[0]
        if ids:
            listed = ", ".join(names)
            self._notify(
                f"id_col: {rows} rows of {source.table.name} share {ids} value"
                f"{'' if ids == 1 else 's'} of {listed}, so that their predictions cannot be "
                "distinguished"
            )
        return int(total)

    def _check_inserted(self, work: Work, counted: int, inserted: int) -> None:
        """Refuse an output that lacks rows, where each row of the source has a known number of them."""
        a_row = work.answer.rows_each
        if a_row is not None and not (isinstance(work.source, Rows) and work.source.sql.ignores):
            check_complete(ROLE, work.source.table.name, counted * a_row, inserted)

    def _tell_left_out(self, work: Work, found: Sequence[Any]) -> None:
        """Tell of rows whose images cannot be read."""
        if isinstance(work.source, Rows) and (notice := work.source.left_out(found)):
            self._notify(notice)

    def _report_rounding(self, work: Work, sessions: Sequence[Session]) -> None:
        """Report the values that float32 does not hold."""
        found = gathered(text for session in sessions for text in session.reports())
        for name, rounding in found.items():
            self._notify(rounding.notice(work.source.column_of(name, rounding.place)))

    def _reserve(self, work: Work, session: Session) -> None:
        """Keep the name of the unfinished table for this call, until its session ends or is given back.

        Args:
            work: whose table it is.
            session: drops what is left there of a call whose process was killed.
        """
        build = work.outputs.unfinished()
        key = draft_key(build)
        if not try_lock(self._control, key):
            raise DuplicateTable(
                f"output_table: {work.output} is being made by another session, "
                f"{holder_of(self._control, key)}",
                hint=f"choose another name, or {END_HOLDER}",
            )
        free_name(session, build, UNFINISHED)

    def _create(self, work: Work) -> None:
        """Make the table, empty."""
        if work.outputs.replace:
            self._reserve(work, self._control)
        sql = self._dialect.prediction
        columns, source = work.answer.columns, work.source.sql
        create = sql.create(work.outputs.draft(), source, columns, unfinished=False)
        self._control.run(create)

    def _publish(self, work: Work) -> None:
        """Give the table its name, and commit."""
        publish(self._control, work.outputs)
        # A cancel request must not leave it unknown whether this was done.
        self._control.run_through("COMMIT")

    @abstractmethod
    def _predicted(self, work: Work, counted: int) -> None:
        """Predict, and commit.

        Args:
            work: what is predicted.
            counted: rows of the source.
        """


class PredictionJob(Job):
    """One call, whose workers all read the same tables.

    Args:
        host: of the call.
        control: a session of it, the first worker. Its transaction holds the snapshot.
    """

    def __init__(self, host: JobHost, control: Session) -> None:
        super().__init__(host, control)
        self._pool, self._sql = host.pool, host.dialect.prediction

    def _predicted(self, work: Work, counted: int) -> None:
        extent = self._extent(work)
        if extent and isinstance(work.source, Rows):
            reached = self._control.run(self._sql.reached(work.source.sql), (0, extent[0][0]))
            check_complete(ROLE, work.source.table.name, counted, reached[0][0])
        pieces = self._sql.pieces(work.source.sql, extent)
        wanted = _workers(work.num_workers, len(pieces))
        with (
            slots(self._control, wanted, self._notify, ready=1) as count,
            self._others(work, count - 1) as others,
        ):
            if others:
                self._together(work, others, pieces, counted)
            else:
                self._create(work)
                self._insert([self._control], work, work.outputs.draft(), pieces, counted)
                self._publish(work)

    def _extent(self, work: Work) -> list[tuple[Any, ...]]:
        statement = self._sql.extent(work.source.sql)
        return self._control.run(*statement) if statement else []

    # -- several workers -------------------------------------------------------
    @contextmanager
    def _others(self, work: Work, count: int) -> Iterator[list[Session]]:
        """The workers beside the first, ready to predict; they end with this."""
        others = self._pool.take(count)
        try:
            for place, session in enumerate([self._control, *others]):
                session.send(*preparation(work.use_gpus, place))
            for session in [self._control, *others]:
                session.settle()
            yield others
        finally:
            close_all(others)

    def _together(
        self, work: Work, others: Sequence[Session], pieces: Sequence[Piece], counted: int
    ) -> None:
        """All insert into a table that the others can see; it gets its name when it is complete."""
        build, source = work.outputs.unfinished(), work.source.sql
        self._reserve(work, others[0])
        create = self._sql.create(build, source, work.answer.columns, unfinished=True)
        try:
            others[0].run(create)
            snapshot = self._control.run(self._sql.export)[0][0]
            run_each(others, (self._sql.follow, (snapshot,)))
            self._insert([self._control, *others], work, build, pieces, counted)
            run_each([self._control, *others], ("COMMIT", ()))
            with (
                transaction(self._control),
                replaced(self._control, work.outputs),
            ):
                self._control.run(self._sql.finish(build, work.output))
        except BaseException:
            reset_all([*others, self._control])
            # If even this fails, the next call for the same output clears what is left.
            with suppress(CerebroError):
                self._control.run_through(self._sql.drop(build))
            raise

    # -- the work --------------------------------------------------------------
    def _insert(
        self,
        workers: Sequence[Session],
        work: Work,
        table: QualifiedName,
        pieces: Sequence[Piece],
        counted: int,
    ) -> None:
        source, answer, batch_rows = work.source.sql, work.answer, work.batch_rows
        tokens = self._loaded(workers, work)

        def maker(piece: Piece) -> Callable[[Session], Statement]:
            return lambda session: self._sql.insertion(
                table, source, answer, tokens[session], batch_rows, piece
            )

        before = sum(session.inserted for session in workers)
        found = gather_made(workers, map(maker, pieces))
        inserted = sum(session.inserted for session in workers) - before
        self._check_inserted(work, counted, inserted)
        self._tell_left_out(work, [row for rows in found for row in rows])
        self._report_rounding(work, workers)

    def _loaded(self, workers: Sequence[Session], work: Work) -> dict[Session, int]:
        """Load the models in every worker; the tokens by which they are found there."""
        first, *more = work.ensemble.members
        task = work.first_task
        begin = (self._sql.load(first.stored), (task, first.key))
        run_each(workers, begin)
        tokens = {session: _token(session, first) for session in workers}
        for member in more:
            task, sql = json.dumps(member.task), self._sql.extend(member.stored)
            for session in workers:
                session.send(sql, (tokens[session], task, member.key))
            for session in workers:
                session.settle()
                _token(session, member)
        return tokens


def _token(session: Session, member: Member) -> int:
    """Token of a worker that has loaded a model."""
    rows = session.rows()
    if len(rows) != 1:
        raise no_state(str(member.stored.table), member.key)
    return int(rows[0][0])


def _workers(wanted: int | None, pieces: int) -> int:
    """Number of workers that are worth their start."""
    if wanted is not None:
        return min(wanted, pieces)
    return min(cores(), pieces) if pieces >= MANY_PIECES else 1


class SpreadJob(Job):
    """One call: one transaction of one session, whose own process loads no model.

    Args:
        host: of the call.
        sql: statements of its server.
        control: the session.
    """

    def __init__(self, host: JobHost, sql: SegmentPrediction, control: Session) -> None:
        super().__init__(host, control)
        self._sql = sql

    def _read(self, work: Work) -> Work:
        source = work.source
        if not isinstance(source, Rows) or not source.sql.seen:
            return work
        text, copy = self._sql.seen(source.sql, source.read_columns)
        self._control.run(as_seen(self._control, text))
        return replace(work, source=replace(source, sql=copy))

    def _predicted(self, work: Work, counted: int) -> None:
        run, source = self._control.run, work.source.sql
        self._create(work)
        self._bring(work)
        if isinstance(work.source, Rows):
            text, copy = self._sql.copy(work.source.sql)
            ignores = work.source.sql.ignores
            if ignores or run(self._sql.needs_copy, (source.table.text,))[0][0]:
                run(text)
                if ignores:
                    self._tell_left_out(work, run(self._sql.left_out))
                work = replace(work, source=replace(work.source, sql=copy))
        statement = self._sql.predict(
            work.outputs.draft(), work.source.sql, work.answer, work.batch_rows
        )
        before = self._control.inserted
        run(*statement)
        self._check_inserted(work, counted, self._control.inserted - before)
        self._report_rounding(work, [self._control])
        self._publish(work)

    def _bring(self, work: Work) -> None:
        """The models, to all segments."""
        run = self._control.run
        keys = [key for _, key in run(self._sql.segment_keys)]
        run(self._sql.stage, (keys, self._preparation(work)))
        first, *more = work.ensemble.members
        tasks = [work.first_task]
        tasks += [json.dumps(member.task) for member in more]
        for number, (member, task) in enumerate(zip([first, *more], tasks, strict=True)):
            brought = Brought(number, member.stored, member.key, task)
            run(*self._sql.bring(brought))
        found = dict(run(self._sql.brought))
        for number, member in enumerate(work.ensemble.members):
            if number not in found:
                raise no_state(str(member.stored.table), member.key)
            if not found[number]:
                raise InvalidState(f"{member.stored.table}: got NULL for a chunk of a state")

    def _preparation(self, work: Work) -> str:
        """Task that makes a process of a segment a worker."""
        settings = Catalog(self._control).settings()
        return worker_task(NO_RUN, SCORING_THREADS, work.use_gpus, 0, settings)
