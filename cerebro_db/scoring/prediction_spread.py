"""Predictions where tables are spread over segments: each predicts the rows that lie there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from cerebro_db.errors import InvalidState
from cerebro_db.executors.tasks import worker_task
from cerebro_db.models.trained import no_state
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.control import NO_RUN, SCORING_THREADS
from cerebro_db.postgres.dialects.choice import Brought, PostgreSQL, SpreadPrediction
from cerebro_db.postgres.sessions import Session
from cerebro_db.scoring.prediction_job import Job, Work
from cerebro_db.scoring.prediction_source import Rows


class SpreadJob(Job):
    """One call: one transaction of one session, whose own process loads no model.

    Args:
        dialect: of the server.
        sql: its statements.
        control: the session.
    """

    def __init__(
        self,
        dialect: PostgreSQL,
        sql: SpreadPrediction,
        control: Session,
        notify: Callable[[str], None],
    ) -> None:
        super().__init__(dialect, control, notify)
        self._sql = sql

    def _predicted(self, work: Work) -> None:
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
        run(*statement)
        self._publish(work)

    def _bring(self, work: Work) -> None:
        """The models, to all segments."""
        run = self._control.run
        keys = [key for _, key in run(self._sql.segment_keys)]
        run(self._sql.stage, (keys, self._preparation(work)))
        first, *more = work.asked.members
        tasks = [work.asked.first_task(work.ranks)]
        tasks += [json.dumps(member.task) for member in more]
        for number, (member, task) in enumerate(zip([first, *more], tasks, strict=True)):
            brought = Brought(number, member.stored, member.key, task)
            run(*self._sql.bring(brought))
        found = dict(run(self._sql.brought))
        for number, member in enumerate(work.asked.members):
            if number not in found:
                raise no_state(str(member.stored.table), member.key)
            if not found[number]:
                raise InvalidState(f"{member.stored.table}: got NULL for a chunk of a state")

    def _preparation(self, work: Work) -> str:
        """Task that makes a process of a segment a worker."""
        settings = Catalog(self._control).settings()
        return worker_task(NO_RUN, SCORING_THREADS, work.use_gpus, 0, settings)
