"""Entries of the functions about jobs and schedules."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from cerebro_db.configs.messages import check_text, shown
from cerebro_db.core.statuses import DRIVEN, GOING_ON
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    NotPermitted,
    NotSupported,
    WrongRunStatus,
)
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.jobs import ENDS, OPEN, Calls, Jobs, Schedule, Schedules
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.names import literal
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.relay.keepers import DRIVER_SECONDS
from cerebro_db.requests import jobs as requests
from cerebro_db.requests.declared import Request
from cerebro_db.requests.fitting import ResumeRequest
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import queue_again
from cerebro_db.runs.job_drivers import end_drivers
from cerebro_db.runs.promotion import promote_if_better, promotion_of
from cerebro_db.server.caller import refuse_read_only
from cerebro_db.server.entry import entry, entry_of, hinted
from cerebro_db.server.host import Host, reached_as
from cerebro_db.server.job_calls import check_calls, function_of, makes_run, steps_of
from cerebro_db.server.job_driver import JobDriver, session_of

TIMERS = ("pg_cron", "crontab", "daemon")
_START_SECONDS = 5.0  # between looks of who waits for jobs that nobody has started
_ANSWER_SECONDS = 30.0
# Whoever holds a schedule of his in a transaction must not hold up the timer, which starts those of others next.
_BOUNDED = "SET LOCAL lock_timeout = '5s'"
_MOST_NAME = 63
_OTHER_TIMERS = (
    "or timer := 'daemon', for the program cerebro daemon, which must run then; or timer := 'crontab', for the line of "
    "crontab or the systemd timer that cerebro schedule --print writes"
)
# As cron and pg_cron have them; a step follows an asterisk or a range.
_ONE = r"(?:\d+|[A-Za-z]{3})"
_PART = rf"(?:(?:\*|{_ONE}-{_ONE})(?:/\d+)?|{_ONE})"
_FIELD = re.compile(rf"{_PART}(?:,{_PART})*")
# From which a cron expression is tried.
_A_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)


# -- calls with wait := false ----------------------------------------------------
def submitted_run(host: Host, request: Request, priority: int) -> int:
    """Register the run of a call and leave it to a driver of its own; returns the run_id."""

    def queued(session: Session, run_id: int) -> None:
        _queue(session, host, request, priority, run_id)

    steps = steps_of(request.function)
    assert steps is not None
    assert steps.queue is not None
    run_id = steps.queue(host, request, queued)
    _start(host)
    return run_id


def submitted_resume(host: Host, request: ResumeRequest) -> int:
    """Leave a run that stopped to a driver of its own; returns the run_id."""
    limits = Limits.of(request, host.search_path)

    def queued(session: Session, run_id: int) -> None:
        _queue(session, host, request, request.priority, run_id)

    found = queue_again(host.pool, host.dialect, request.run_id, limits, queued)
    _start(host)
    return found


def submitted_call(host: Host, request: Request, priority: int) -> int:
    """Check a call that makes no run, and leave it to a driver of its own; returns the job_id."""
    steps = steps_of(request.function)
    assert steps is not None
    steps.check(host, request)
    with control_session(host.pool, None) as session, transaction(session):
        job_id = _queue(session, host, request, priority)
    _start(host)
    return job_id


def _queue(
    session: Session, host: Host, request: Request, priority: int, run_id: int | None = None
) -> int:
    jobs, call = Jobs(session), (request.function.name, request.given())
    job_id = jobs.add([call], session_of(host.search_path, host.pool.caller), priority)
    if run_id is not None:
        jobs.log(job_id, "run", run_id)
    jobs.log(job_id, "queued", run_id)
    return job_id


def _start(host: Host) -> None:
    """Have jobs started; what keeps that from being done is no error of who has submitted one."""
    with control_session(host.pool, None) as session:
        try:
            Jobs(session).start()
        except CerebroError as error:
            host.notice(f"the job waits, as no driver could be started: {error.message}")


@entry
def work(plpy: Any, gd: dict[str, Any], job_id: int, role: str) -> bool:
    """Go on with a job as its owner, without the session that starts it; whether there was room for it.

    Only a function with the rights of the owner of the catalog calls this, which has read the role there.
    """
    driver = JobDriver(*reached_as(plpy, role), job_id)
    if not driver.begins():
        return False
    plpy.go_alone(True)
    driver.run()
    return True


@entry_of(requests.SubmitRequest)
def submit(plpy: Any, gd: dict[str, Any], request: requests.SubmitRequest) -> int:
    """Check calls, and leave them to a driver of their own; returns the job_id."""
    host, on_success = Host.apart(plpy, gd), request.on_success
    parsed = _parsed(request.calls)
    if on_success is not None:
        _check_success(parsed, on_success)
    check_calls(host, parsed, repeated=False)
    with control_session(host.pool, None) as session, transaction(session):
        jobs = Jobs(session)
        surroundings = session_of(host.search_path, host.pool.caller)
        job_id = jobs.add(parsed, surroundings, request.priority, on_success=on_success)
        jobs.log(job_id, "queued")
    _start(host)
    return job_id


# -- waiting, cancelling -----------------------------------------------------------
@entry
@hinted("cerebro_wait")
def wait_for(
    plpy: Any, gd: dict[str, Any], what: str, number: int | None, seconds: float | None
) -> str:
    """Wait for the end of a run or a job; returns its status.

    Args:
        plpy: the server's interface.
        gd: what the process keeps.
        what: ``run`` or ``job``.
        number: of it.
        seconds: at most; None for any time.
    """
    if seconds is not None and not seconds >= 0:
        raise InvalidArgument(
            f"timeout: got {seconds:g} seconds; allowed: from 0, or NULL for any time"
        )
    host = Host.apart(plpy, gd, writes=False)
    until = None if seconds is None else time.monotonic() + seconds
    next_start = time.monotonic() + _START_SECONDS
    with control_session(host.pool, None) as session:
        while True:
            status, ended = _status_of(session, what, number)
            if ended or (until is not None and time.monotonic() >= until):
                return status
            if time.monotonic() >= next_start:
                Jobs(session).start()
                next_start = time.monotonic() + _START_SECONDS
            session.tick()
            time.sleep(POLL_SECONDS)


def _status_of(session: Session, what: str, number: int | None) -> tuple[str, bool]:
    """Status of a run or a job, and whether it has stopped for good."""
    jobs = Jobs(session)
    if what == "job":
        status, _ = jobs.status(number)
        return status, status not in OPEN
    run = Catalog(session).run(number)
    return run.status, run.status not in DRIVEN and not jobs.of_run(run.run_id)


@entry_of(requests.CancelJobRequest)
def cancel(plpy: Any, gd: dict[str, Any], request: requests.CancelJobRequest) -> str:
    """Stop a job; returns its status afterwards."""
    host, job_id = Host.of(plpy, gd), request.job_id
    refuse_read_only(host.read_only)
    with control_session(host.pool, None) as session:
        jobs = Jobs(session)
        status, _ = jobs.status(job_id)
        assert job_id is not None
        if status not in OPEN:
            raise WrongRunStatus(
                f"job_id: got {job_id}, which is {status}; allowed: a job that is "
                f"{', '.join(OPEN[:-1])} or {OPEN[-1]}",
                hint="cerebro.jobs shows the status of your jobs",
            )
        jobs.log(job_id, "cancel")
        began = time.monotonic()
        while True:
            _end_waiting(session, job_id)
            if (status := jobs.status(job_id)[0]) not in OPEN:
                return status
            waited = time.monotonic() - began
            if waited >= _ANSWER_SECONDS:
                raise WrongRunStatus(
                    f"job {job_id}: its driver has not answered for {_ANSWER_SECONDS:g} seconds; what "
                    "was asked for stays asked",
                    hint="cerebro.jobs shows its status",
                )
            if waited >= DRIVER_SECONDS:
                end_drivers(jobs, [job_id])
            session.tick()
            time.sleep(POLL_SECONDS)


def _end_waiting(session: Session, job_id: int) -> None:
    """End a job that no driver works on, and its run."""
    with transaction(session):
        jobs = Jobs(session)
        if not jobs.try_lock(job_id):  # so that nobody begins with it meanwhile
            return
        course = jobs.course(job_id)
        if course.stands in ENDS:
            return
        who = session.run("SELECT current_user::text")[0][0]
        jobs.log(job_id, "cancelled", course.last_run, f"cancelled by {who}")
        if course.last_run is not None:
            before = (*GOING_ON, "interrupted")
            Catalog(session).run_stopped(
                course.last_run, "cancelled", f"cancelled by {who}", before
            )


# -- promotion -------------------------------------------------------------------
@entry_of(requests.PromotionRequest)
def promote(plpy: Any, gd: dict[str, Any], request: requests.PromotionRequest) -> int | None:
    """Let the best model of a run have an alias, if it is better than what has it."""
    return promote_if_better(Host.apart(plpy, gd), **request.given())


# -- schedules -------------------------------------------------------------------
@entry_of(requests.ScheduleRequest)
def schedule(plpy: Any, gd: dict[str, Any], request: requests.ScheduleRequest) -> None:
    """Have calls made at the times of a cron expression."""
    host, on_success = Host.apart(plpy, gd), request.on_success
    one = Schedule(
        _checked_name(request.name),
        _checked_cron(request.cron),
        _parsed(request.calls),
        session_of(host.search_path, host.pool.caller),
        on_success,
        request.priority,
        request.timer or _timer_there(host),
    )
    _check_timed(one.cron, one.timer)
    if on_success is not None:
        _check_success(one.calls, on_success)
    check_calls(host, one.calls, repeated=True)
    with control_session(host.pool, None) as session:
        schedules = Schedules(session)
        if one.timer == "pg_cron":
            _require_pg_cron(schedules, on_segments=host.dialect.has_segments)
        with transaction(session):
            _forget(schedules, one.name)
            schedules.add(one, _next_start(session, one))
            if one.timer == "pg_cron":
                _plan(schedules, one)


@entry_of(requests.UnscheduleRequest)
def unschedule(plpy: Any, gd: dict[str, Any], request: requests.UnscheduleRequest) -> None:
    """End a schedule."""
    host = Host.apart(plpy, gd)
    with control_session(host.pool, None) as session, transaction(session):
        schedules = Schedules(session)
        _forget(schedules, schedules.known(request.name).name)


@entry_of(requests.StartScheduleRequest)
def start_schedule(
    plpy: Any, gd: dict[str, Any], request: requests.StartScheduleRequest
) -> int | None:
    """Make the calls of a schedule as a job, unless the one before still goes on; returns the job_id."""
    host = Host.apart(plpy, gd)
    with control_session(host.pool, None) as session:
        schedules, jobs = Schedules(session), Jobs(session)
        one = schedules.known(request.name)
        with transaction(session):
            session.run(_BOUNDED)
            schedules.starts(one.name, _next_start(session, one))
            before = schedules.going_on(one.name)
            job_id = jobs.add(one.calls, one.session, one.priority, one.name, one.on_success)
            if before is None:
                jobs.log(job_id, "queued")
            else:
                why = f"job {before}, which the schedule has started before, has not ended"
                jobs.log(job_id, "skipped", message=why)
    if before is not None:
        host.notice(f"schedule {one.name} was skipped: {why}")
        return None
    _start(host)
    return job_id


def _next_start(session: Session, one: Schedule) -> datetime:
    """Time of the next start of a schedule, by the clock of its timer."""
    now = datetime.now().astimezone()
    if one.timer == "pg_cron":
        rows = session.run(
            "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'cron.timezone'"
        )
        now = now.astimezone(_zone(str(rows[0][0]) if rows else "GMT"))
    found: datetime = next(CronSim(one.cron, now))
    return found


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def _forget(schedules: Schedules, name: str) -> None:
    found = schedules.find(name)
    if found is None:
        return
    if found.timer == "pg_cron" and schedules.has_pg_cron:
        schedules.unplan(_job_name(name))
    schedules.drop(name)


def _plan(schedules: Schedules, one: Schedule) -> None:
    statement = f"SELECT cerebro.cerebro_start_schedule({literal(one.name)})"
    try:
        schedules.plan(_job_name(one.name), one.cron, statement.replace("%%", "%"))
    except StatementFailed as error:
        if error.sqlstate == NotPermitted.sqlstate:
            raise NotPermitted(
                f"timer: got 'pg_cron', which this role may not use: {error.message}",
                hint=f"an administrator can allow it: GRANT USAGE ON SCHEMA cron TO ...; {_OTHER_TIMERS}",
            ) from None
        raise


def _job_name(name: str) -> str:
    return f"cerebro {name}"


def _require_pg_cron(schedules: Schedules, *, on_segments: bool) -> None:
    """Refuse where pg_cron cannot be the timer.

    Raises:
        NotSupported: it is not there, or works in another database.
    """
    if schedules.has_pg_cron:
        return
    home = schedules.database_of_pg_cron()
    if on_segments:
        raise NotSupported(
            f"timer: got 'pg_cron', which there is not for this server; allowed: {', '.join(map(repr, TIMERS[1:]))}",
            hint=_OTHER_TIMERS.removeprefix("or "),
        )
    if home is None:
        why = "the server has not loaded it"
        hint = (
            "an administrator can install it (postgresql-15-cron on Debian, with the server's version), add it to "
            "shared_preload_libraries, restart, and CREATE EXTENSION pg_cron"
        )
    else:
        why = "it is not in this database"
        hint = f"it works in the database that cron.database_name says, {shown(home)}: CREATE EXTENSION pg_cron there"
    raise NotSupported(f"timer: got 'pg_cron'; {why}", hint=f"{hint}; {_OTHER_TIMERS}")


def _checked_name(name: str | None) -> str:
    if not name:
        raise InvalidArgument(
            f"name: got {'NULL' if name is None else repr(name)}; allowed: a text"
        )
    check_text("name", name, _MOST_NAME)
    if any(character in name for character in "\n\r\t"):
        raise InvalidArgument(f"name: got {shown(name)}; allowed: one line without tabs")
    if name == "keep_runs":
        raise InvalidArgument(
            "name: got 'keep_runs', which is that of the jobs that forget old runs"
        )
    return name


def _checked_cron(cron: str | None) -> str:
    """A cron expression of five fields, in one form.

    Raises:
        InvalidArgument: it is none, or no day is such a one.
    """
    text = " ".join((cron or "").split())
    example = "minute, hour, day of the month, month and day of the week, such as '0 3 * * *'"
    if len(text.split(" ")) != 5:
        got = "NULL" if cron is None else shown(cron)
        raise InvalidArgument(f"cron: got {got}; allowed: five fields, {example}")
    try:
        next(CronSim(text, _A_MOMENT))
    except CronSimError as error:
        raise InvalidArgument(f"cron: got {shown(text)}: {error}; allowed: {example}") from None
    except StopIteration:
        raise InvalidArgument(
            f"cron: got {shown(text)}, which is never; allowed: {example}"
        ) from None
    return text


def _check_timed(cron: str, timer: str) -> None:
    """Refuse what only some timers know: the last day of a month, or the second Monday.

    Raises:
        InvalidArgument: the timer does not know it.
    """
    if timer == "daemon" or all(map(_FIELD.fullmatch, cron.split(" "))):
        return
    raise InvalidArgument(
        f"cron: got {shown(cron)}; allowed with timer := {timer!r}: numbers, names of months and days, *, /, "
        "- and ,",
        hint="timer := 'daemon' knows more",
    )


def _timer_there(host: Host) -> str:
    """pg_cron where this database has it and the caller may use it, else the daemon."""
    with control_session(host.pool, None) as session:
        if Schedules(session).may_use_pg_cron:
            return "pg_cron"
    host.notice(
        "timer: 'daemon', as pg_cron is not in this database, or not for this role; the schedule is started while "
        "the program cerebro daemon runs"
    )
    return "daemon"


class _Pairs(list[tuple[str, Any]]):
    """Members of a JSON object, in their order."""


def _parsed(calls: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Calls as they are written: an object with functions by name, whose members are arguments by name.

    Raises:
        InvalidArgument: it is something else, or names what no schedule calls.
    """
    example = '{"function": {"argument": value, ...}, ...}'
    try:
        found = json.loads(calls or "null", object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, _Pairs) or not found:
        got = "NULL" if calls is None else shown(calls)
        raise InvalidArgument(f"calls: got {got}; allowed: an object of calls, such as {example}")
    parsed: list[tuple[str, dict[str, Any]]] = []
    has_run = False
    for name, given in found:
        function = function_of(name)
        parsed.append((name, function.checked(_as_object(name, given), has_run=has_run)))
        has_run = has_run or makes_run(function)
    return parsed


def _as_object(name: str, given: object) -> object:
    if not isinstance(given, _Pairs):
        return given
    found: dict[str, Any] = {}
    for argument, value in given:
        if argument in found:
            raise InvalidArgument(f"{name}: {argument}: got it twice; allowed: once")
        found[argument] = _plain(value)
    return found


def _plain(value: object) -> object:
    """A value without the order of its members."""
    if isinstance(value, _Pairs):
        return {name: _plain(one) for name, one in value}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _check_success(calls: Calls, on_success: str) -> None:
    """Refuse an alias for which the calls make no model, or nothing to compare it by.

    Raises:
        InvalidArgument: that is so.
    """
    promotion_of(on_success, "on_success")
    runs = [given for name, given in calls if makes_run(function_of(name))]
    if not runs:
        raise InvalidArgument(
            f"on_success: got {shown(on_success)}, and no call that trains; allowed with one"
        )
    if runs[-1].get("validation_table") is None:
        raise InvalidArgument(
            f"on_success: got {shown(on_success)}, and no validation_table; allowed with one, by which "
            "models are compared"
        )
