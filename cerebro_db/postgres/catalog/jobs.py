"""Jobs and schedules in the catalog: read through views of what is the caller's, written by functions."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from cerebro_db.configs.messages import plain_text
from cerebro_db.errors import CerebroError, InvalidArgument, UndefinedJob
from cerebro_db.postgres.sessions.session import Session

# Actions after which a job is not started again, and the status that it has then.
ENDS = ("finished", "failed", "cancelled", "paused", "skipped")
OPEN = ("queued", "running", "interrupted")
_STANDS = ("queued", "started", *ENDS)

Calls = Sequence[tuple[str, Mapping[str, Any]]]
"""Names of functions and their arguments, in the order in which they are called."""


class Job(NamedTuple):
    """A job as it was submitted.

    Attributes:
        session: what the calls need to know of the session that submitted them.
        on_success: the alias of a registered model that the best model competes for; None for none.
    """

    job_id: int
    calls: Calls
    session: Mapping[str, Any]
    priority: int
    schedule: str | None
    on_success: str | None
    lock_key: int


class Course(NamedTuple):
    """Progress of a job.

    Attributes:
        stands: the last event that decides its status.
        done: how many of its calls.
        run_id: of the call that is next, where that has begun.
        last_run: of any of its calls.
    """

    stands: str
    done: int
    run_id: int | None
    last_run: int | None


class Jobs:
    """Reads and writes of one call.

    Args:
        session: nothing else uses it meanwhile.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self,
        calls: Calls,
        session: Mapping[str, Any],
        priority: int,
        schedule: str | None = None,
        on_success: str | None = None,
    ) -> int:
        """Write down a job; returns its number. It is queued by an event."""
        key = secrets.randbits(64) - 2**63
        values = [json.dumps(calls), json.dumps(session), priority, schedule, on_success, key]
        return int(self._session.write("_add_job", *values))

    def log(
        self, job_id: int, action: str, run_id: int | None = None, message: str | None = None
    ) -> None:
        """Add an event to a job."""
        self._session.write("_tell_of_job", job_id, action, run_id, plain_text(message))

    def job(self, job_id: int) -> Job:
        """A job of the caller.

        Raises:
            UndefinedJob: there is none, or it is someone else's.
        """
        rows = self._run(
            "SELECT job_id, calls::text, session::text, priority, schedule, on_success, lock_key "
            "FROM cerebro._jobs WHERE job_id = %s AND owner = cerebro._role()",
            [job_id],
        )
        if not rows:
            raise _undefined(job_id)
        number, calls, session, *rest = rows[0]
        return Job(
            number, [(name, given) for name, given in json.loads(calls)], json.loads(session), *rest
        )

    def course(self, job_id: int) -> Course:
        """Progress of a job by its events."""
        rows = self._run(
            "SELECT action, run_id FROM cerebro._job_events WHERE job_id = %s AND action <> 'told' "
            "ORDER BY event_id",
            [job_id],
        )
        stands, done, run_id, last = "queued", 0, None, None
        for action, number in rows:
            if action in _STANDS:
                stands = action
            elif action == "run":
                run_id = last = number
            elif action == "done":
                done, run_id = done + 1, None
        return Course(stands, done, run_id, last)

    def is_cancelled(self, job_id: int) -> str | None:
        """Role that has cancelled a job since it was queued; None for nobody."""
        rows = self._run(
            "SELECT pg_catalog.pg_get_userbyid(role)::text FROM cerebro._job_events "
            "WHERE job_id = %s AND action = 'cancel' LIMIT 1",
            [job_id],
        )
        return str(rows[0][0]) if rows else None

    def status(self, job_id: int | None) -> tuple[str, int | None]:
        """Status of a job in ``cerebro.jobs``, and its run_id.

        Raises:
            UndefinedJob: the caller has no such job.
        """
        sql = "SELECT status, run_id FROM cerebro.jobs WHERE job_id = %s"
        rows = self._run(sql, [job_id])
        if not rows:
            raise _undefined(job_id)
        return rows[0][0], rows[0][1]

    def try_lock(self, job_id: int) -> bool:
        """Lock a job until the transaction ends; false where somebody drives it."""
        sql = (
            "SELECT pg_catalog.pg_try_advisory_xact_lock(j.lock_key) FROM cerebro._jobs j "
            "WHERE j.job_id = %s"
        )
        return self._run(sql, [job_id]) == [(True,)]

    def lock_key(self, job_id: int) -> int:
        """The key of the lock that the driver of a job holds, which the caller sees."""
        rows = self._run("SELECT lock_key FROM cerebro._jobs WHERE job_id = %s", [job_id])
        return int(rows[0][0])

    def of_run(self, run_id: int) -> list[int]:
        """Jobs of a run that have not ended."""
        rows = self._run(
            "SELECT DISTINCT e.job_id FROM cerebro._job_events e "
            "WHERE e.run_id = %s AND e.action = 'run' AND NOT EXISTS ("
            "    SELECT 1 FROM cerebro._job_events o WHERE o.job_id = e.job_id "
            "    AND o.action = ANY (%s::text[])) ORDER BY 1",
            [run_id, list(ENDS)],
        )
        return [row[0] for row in rows]

    def start(self) -> int:
        """Have jobs started that wait; returns how many were."""
        return int(self._run("SELECT cerebro._start_jobs()")[0][0])

    def may_start(self, job_id: int) -> bool:
        """True if there is room for a job beside those that go on."""
        return bool(self._run("SELECT cerebro._may_start(%s)", [job_id])[0][0])

    def old_runs(self) -> list[int]:
        """Runs of the caller that are older than is kept, and that nothing needs."""
        return [row[0] for row in self._run("SELECT run_id FROM cerebro._old_runs ORDER BY 1")]

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._session.run(sql, parameters)


class Schedule(NamedTuple):
    """A schedule as it is stored."""

    name: str
    cron: str
    calls: Calls
    session: Mapping[str, Any]
    on_success: str | None
    priority: int
    timer: str


class Schedules:
    """Schedules of the caller.

    Args:
        session: nothing else uses it meanwhile.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, name: str | None) -> Schedule | None:
        """A schedule of the caller; None where there is none."""
        rows = self._session.run(
            "SELECT name, cron, calls::text, session::text, on_success, priority, timer "
            "FROM cerebro._schedules WHERE name = %s AND owner = cerebro._role()",
            [name],
        )
        if not rows:
            return None
        name, cron, calls, session, *rest = rows[0]
        return Schedule(str(name), cron, json.loads(calls), json.loads(session), *rest)

    def known(self, name: str | None) -> Schedule:
        """A schedule of the caller.

        Raises:
            UndefinedJob: there is none.
        """
        if name is None:
            raise InvalidArgument(
                "name: got NULL; allowed: that of a schedule", hint="cerebro.schedules shows yours"
            )
        found = self.find(name)
        if found is None:
            raise UndefinedJob(f"name: got {name!r}; you have no schedule of that name")
        return found

    def add(self, one: Schedule, due: datetime) -> None:
        """Store a schedule; one of its name is gone.

        Args:
            one: the schedule.
            due: when it starts first.
        """
        given = json.dumps(one.calls), json.dumps(one.session), one.on_success, one.priority
        self._session.write("_add_schedule", one.name, one.cron, *given, one.timer, due)

    def starts(self, name: str, due: datetime) -> None:
        """Note when a schedule starts next. Until the transaction ends no other session starts it."""
        self._session.write("_set_due", name, due)

    def drop(self, name: str) -> None:
        """Forget a schedule of the caller."""
        self._session.write("_drop_schedule", name)

    def going_on(self, name: str) -> int | None:
        """The job of a schedule that has not ended; None where there is none."""
        rows = self._session.run(
            "SELECT j.job_id FROM cerebro._jobs j WHERE j.schedule = %s AND j.owner = cerebro._role() "
            "AND NOT EXISTS (SELECT 1 FROM cerebro._job_events e WHERE e.job_id = j.job_id "
            "AND e.action = ANY (%s::text[])) ORDER BY 1 LIMIT 1",
            [name, list(ENDS)],
        )
        return rows[0][0] if rows else None

    # -- pg_cron ---------------------------------------------------------------
    @property
    def has_pg_cron(self) -> bool:
        """True if this database has the extension."""
        sql = "SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'"
        return bool(self._session.run(sql))

    @property
    def may_use_pg_cron(self) -> bool:
        """True if the caller may have it run statements in this database."""
        sql = (
            "SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE') FROM pg_catalog.pg_extension e "
            "JOIN pg_catalog.pg_namespace n ON n.nspname = 'cron' WHERE e.extname = 'pg_cron'"
        )
        return self._session.run(sql) == [(True,)]

    def database_of_pg_cron(self) -> str | None:
        """The database that the server's pg_cron works in; None where it is not loaded."""
        sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'cron.database_name'"
        rows = self._session.run(sql)
        return str(rows[0][0]) if rows else None

    def plan(self, name: str, cron: str, statement: str) -> None:
        """Have pg_cron run a statement as the caller; one of that name gives way."""
        self._session.run("SELECT cron.schedule(%s, %s, %s)", [name, cron, statement])

    def unplan(self, name: str) -> None:
        """Have pg_cron forget a statement of the caller, if it knows one of that name."""
        self._session.run(
            "SELECT cron.unschedule(j.jobid) FROM cron.job j "
            "WHERE j.jobname = %s AND j.username = current_user",
            [name],
        )


def _undefined(job_id: int | None) -> CerebroError:
    if job_id is None:
        return InvalidArgument(
            "job_id: got NULL; allowed: that of a job", hint="cerebro.jobs shows yours"
        )
    return UndefinedJob(f"job_id: got {job_id}; you have no job of that number")
