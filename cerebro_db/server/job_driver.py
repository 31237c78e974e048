"""Driver of a job: makes its calls without a session that waits for them, as the role that submitted it."""

from __future__ import annotations

import secrets
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from cerebro_db.core.statuses import GOING_ON
from cerebro_db.errors import (
    CerebroError,
    RunCancelled,
    RunInterrupted,
    Unexpected,
)
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.calls.settings import SessionSettings, work_for
from cerebro_db.postgres.catalog import drift
from cerebro_db.postgres.catalog.jobs import ENDS, Job, Jobs
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.sessions.locks import transaction, try_lock, unlock
from cerebro_db.postgres.sessions.pool import SessionPool, is_alive
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.search_path import CallerPath, SearchPath
from cerebro_db.postgres.tables.times import STYLES, Styles
from cerebro_db.requests.declared import RUN, Function
from cerebro_db.runs import job_drivers, lifecycle
from cerebro_db.runs.calling import made_in
from cerebro_db.runs.driver import drive_on
from cerebro_db.runs.guards import status_after
from cerebro_db.runs.promotion import promote_if_better
from cerebro_db.server.job_calls import (
    RESUME,
    function_of,
    limits_of,
    request_of,
    steps_of,
)

FORGET = "keep_runs"  # the call of a job that removes what is older than is kept
_LOOK_SECONDS = 0.5
# Until a session that holds the job is had again: a server that recovers from a crash takes some. One that was stopped
# may be restarted; a driver does not wait for it beyond that, as whoever starts the server has jobs go on.
_FIRST_PAUSE, _LONGEST_PAUSE, _PATIENCE = 0.5, 5.0, 180.0
_RESTART_SECONDS = 2.0
# The message of one that was stopped: by itself, and by the system where nobody listens.
_STOPPED = ("is shutting down", "Connection refused", "No such file or directory")
# While workers, or connections, are all in use.
_CROWDED_PAUSE, _CROWDED_SECONDS = 2.0, 3600.0


@dataclass(frozen=True)
class Surroundings:
    """Surroundings of the calls of a job: the session that submitted it; a ``JobHost`` of them.

    Attributes:
        pool: sessions of the role that submitted it.
        driver: gets each line.
    """

    pool: SessionPool
    dialect: PostgreSQL
    search_path: CallerPath
    styles: Styles
    driver: JobDriver

    @property
    def job_id(self) -> int:
        """The number of the job."""
        return self.driver.job_id

    def notice(self, message: str) -> None:
        """Write a line into the log of the job."""
        self.driver.say(message)


def session_of(search_path: CallerPath, settings: SessionSettings) -> dict[str, Any]:
    """Facts of a session for the calls of a job, as JSON has them."""
    path: Any = search_path
    if isinstance(path, SearchPath):
        path = [list(path.schemas), path.first, path.temporary]
    return {"search_path": path, "settings": dict(settings)}


def _path_of(given: Mapping[str, Any]) -> CallerPath:
    path = given.get("search_path", "")
    if isinstance(path, str):
        return path
    schemas, first, temporary = path
    return SearchPath(tuple(schemas), first, temporary)


def _settings_of(given: Mapping[str, Any]) -> SessionSettings:
    if "settings" in given:
        return dict(given["settings"])
    styles = given.get("styles", ("ISO, MDY", "postgres", "UTC"))  # of an earlier version
    return dict(zip(STYLES, styles, strict=True))


class _Lost(Exception):
    """The session that holds the job is gone, and with it the right to go on."""


class JobDriver:
    """Driver of a job: makes its calls one after another, as the role that submitted it.

    Args:
        dsn: of the server, as the owner of the job.
        dialect: of the server.
        job_id: of the job.
    """

    def __init__(self, dsn: str, dialect: PostgreSQL, job_id: int) -> None:
        self._dialect, self._job_id = dialect, job_id
        self._pool = SessionPool(dsn, dialect.session_settings(), self._tick)
        self._session: Session | None = None  # that holds the job
        self._file: TextIO | None = None  # by which it can be ended
        self._job: Job | None = None
        self._next_look, self._looks, self._is_cancelled = 0.0, False, False

    @property
    def job_id(self) -> int:
        """The number of the job."""
        return self._job_id

    # -- the job ---------------------------------------------------------------
    def begins(self) -> bool:
        """Take the job; false where it has ended, somebody else has it, or there is no room.

        Raises:
            LoopbackFailed: its owner cannot connect.
            StatementFailed: its owner has not the rights that it takes.
        """
        with self._pool.undisturbed():
            (session,) = self._pool.take(1)
        taken = False
        try:
            taken = self._taken(session)
        finally:
            if not taken:
                session.close()
        self._session = session if taken else None
        return taken

    def _taken(self, session: Session) -> bool:
        jobs = Jobs(session)
        job = jobs.job(self._job_id)
        # Whoever starts jobs does so one after another (_start_jobs): there is room until this returns.
        if not try_lock(session, job.lock_key):
            return False
        if jobs.course(job.job_id).stands in ENDS or not jobs.may_start(job.job_id):
            return False
        self._file = job_drivers.hold(job.job_id, job.lock_key)
        jobs.log(job.job_id, "started")
        self._job = job
        return True

    def run(self) -> None:
        """Make the calls of the job that are left, and write down how it ended."""
        try:
            while True:
                try:
                    status, error = self._outcome()
                    self._ends(status, error)
                    return
                except _Lost:
                    if not self._has_again():
                        return
        finally:
            self._close()

    def say(self, message: str) -> None:
        """Write a line into the log of the job, where that can be."""
        with suppress(CerebroError):
            if self._is_held():
                self._jobs.log(self._job_id, "told", message=message)

    @property
    def _jobs(self) -> Jobs:
        assert self._session is not None
        return Jobs(self._session)

    def _outcome(self) -> tuple[str, str | None]:
        """Status of the job when nothing is left to do, and why."""
        try:
            return self._made()
        except Exception as error:
            if not self._is_held():
                raise _Lost from error
            if not isinstance(error, CerebroError):
                return "failed", _defect(error)
            status = status_after(error)
            hint = f" ({error.hint})" if error.hint else ""
            return "cancelled" if status == "cancelled" else "failed", f"{error.message}{hint}"

    def _made(self) -> tuple[str, str | None]:
        assert self._job is not None
        job = self._job
        settings = _settings_of(job.session)
        work_for(self._pool, settings)
        path, styles = _path_of(job.session), Styles.of(settings)
        host = Surroundings(self._pool, self._dialect, path, styles, self)
        course = self._jobs.course(job.job_id)
        run_id, last = course.run_id, course.last_run
        for name, given in job.calls[course.done :]:
            run_id = self._begun(host, name, given, run_id, last)
            if run_id is None:
                continue
            status, error = self._driven(host, run_id, name, given)
            if status != "finished":
                return status, error
            run_id, last = None, run_id
            self._jobs.log(job.job_id, "done", last)
        if job.on_success is not None and last is not None:
            self._compete(host, last, job.on_success)
        return "finished", None

    def _begun(
        self,
        host: Surroundings,
        name: str,
        given: Mapping[str, Any],
        run_id: int | None,
        last: int | None,
    ) -> int | None:
        """Make a call; the run that is left to be driven, or None where all is done.

        Args:
            host: of the calls.
            name: of the function.
            given: its arguments; whoever owns a job may have written anything.
            run_id: that the call has registered already, if it has.
            last: the run of a call before.
        """
        if name == FORGET:
            self._forget()
            self._jobs.log(self._job_id, "done", last)
            return None
        if name == RESUME and run_id is not None:
            return run_id
        function = function_of(name)
        checked = function.checked(given, has_run=last is not None)
        steps = steps_of(function)
        if steps is not None and steps.queue is not None:
            request = request_of(host, function, checked)
            return run_id or steps.queue(host, request, self._registered)
        if steps is not None and steps.work is not None:
            steps.work(host, request_of(host, function, checked))
            self._jobs.log(self._job_id, "done", last)
            return None
        self._called(host, function, checked, last)
        return None

    def _called(
        self, host: Surroundings, function: Function, given: dict[str, Any], last: int | None
    ) -> None:
        """Call a function, and write down that it is done with what it has done."""
        if last is not None and RUN in function.arguments:
            given.setdefault(RUN, last)
        with (
            control_session(self._pool, None) as session,
            session.keeping_notices() as notices,
            transaction(session),
        ):
            made_in(session, host, function, given)
            Jobs(session).log(self._job_id, "done", last)
        for message in notices:
            self.say(message)

    def _compete(self, host: Surroundings, run_id: int, alias: str) -> None:
        version = promote_if_better(host, run_id, alias)
        how = f"version {version} is {alias} now" if version else "no better"
        self.say(f"the best model of run {run_id} was compared with {alias}: {how}")

    def _registered(self, session: Session, run_id: int) -> None:
        Jobs(session).log(self._job_id, "run", run_id)

    def _driven(
        self, host: Surroundings, run_id: int, name: str, given: Mapping[str, Any]
    ) -> tuple[str, str | None]:
        """Go on with a run, unless somebody has stopped it; status and error afterwards."""
        status, error = self._run_stands(run_id)
        until = time.monotonic() + _CROWDED_SECONDS
        while status in (*GOING_ON, "interrupted"):
            try:
                drive_on(self._pool, self._dialect, run_id, limits_of(name, given), host.notice)
            except RunInterrupted as crowded:  # all workers of the role are in use, for example
                if time.monotonic() >= until or not self._is_held():
                    raise
                self.say(f"run {run_id} waits: {crowded.message}")
                self._sleep(_CROWDED_PAUSE)
                status, error = self._run_stands(run_id)
                continue
            return self._run_stands(run_id)
        return status, error

    def _run_stands(self, run_id: int) -> tuple[str, str | None]:
        with control_session(self._pool, None) as control:
            run = Catalog(control).run(run_id)
        return run.status, run.error

    def _forget(self) -> None:
        """Remove runs of this role that are older than is kept."""
        removed = []
        with control_session(self._pool, None) as control:
            for run_id in Jobs(control).old_runs():
                with suppress(CerebroError), transaction(control):  # somebody is at it
                    lifecycle.drop_run(control, self._dialect, run_id)
                    removed.append(run_id)
            with suppress(CerebroError), transaction(control):
                drift.forget(control)
        if removed:
            self.say(f"runs that are forgotten: {', '.join(map(str, removed))}")

    # -- its session -----------------------------------------------------------
    def _tick(self) -> None:
        """Look whether the job is this driver's still, and shall go on.

        Raises:
            RunInterrupted: the session that holds it is lost.
            RunCancelled: somebody has cancelled it; this is logged once.
        """
        if self._looks or time.monotonic() < self._next_look:
            return
        if not self._is_held():
            raise RunInterrupted("the session that holds the job is lost")
        self._looks = True
        try:
            who = None if self._is_cancelled else self._jobs.is_cancelled(self._job_id)
        finally:
            self._looks, self._next_look = False, time.monotonic() + _LOOK_SECONDS
        if who is not None:
            self._is_cancelled = True
            raise RunCancelled(f"cancelled by {who}")

    def _is_held(self) -> bool:
        return self._session is not None and is_alive(self._session)

    def _has_again(self) -> bool:
        """Take the job once more after its session was lost; true if it is this driver's."""
        self._let_go()
        began, pause = time.monotonic(), _FIRST_PAUSE
        self._pool.close()
        while time.monotonic() - began < _PATIENCE:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                return self.begins()
            except CerebroError as error:
                if "does not exist" in error.message:  # the database, or the role
                    return False
                if any(text in error.message for text in _STOPPED):
                    if time.monotonic() - began > _RESTART_SECONDS:
                        return False
                    pause = _FIRST_PAUSE
                # Else the server is not there yet.
        return False

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._tick()
            time.sleep(0.1)

    def _ends(self, status: str, error: str | None) -> None:
        """Write down how the job ended, and let others have its place."""
        assert self._session is not None
        assert self._job is not None
        try:
            jobs = self._jobs
            run_id = jobs.course(self._job_id).last_run
            if run_id is not None and status in ("failed", "cancelled"):
                before = (*GOING_ON, "interrupted")  # where it did not come to be driven
                Catalog(self._session).run_stopped(run_id, status, error or status, before)
            jobs.log(self._job_id, status, run_id, error)
            unlock(self._session, self._job.lock_key)
            jobs.start()
        except CerebroError as failure:
            if not self._is_held():
                raise _Lost from failure
            # Its owner may not write any more: whoever starts jobs finds that out, and writes it down.

    def _close(self) -> None:
        self._let_go()
        if self._session is not None:
            self._session.close()
        self._pool.close()


def _defect(error: Exception) -> str:
    """One line for the log of the job about a defect; the traceback goes to the log of the keeper."""
    number = secrets.token_hex(4)
    trace = "".join(traceback.format_exception(error))
    sys.stderr.write(f"Cerebro-DB: unexpected error {number}: {trace}")
    sys.stderr.flush()
    short = Unexpected(f"unexpected error {number}, {type(error).__name__}")
    return (
        f"{short.message} (the log of the keeper of drivers has its traceback, under that number)"
    )
