"""The driver of a run: takes its lock and its workers, makes attempts, and makes another one where sessions are lost."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cerebro_db.configs.settings import Settings
from cerebro_db.core.ports import Decider, NoDecider
from cerebro_db.errors import (
    CerebroError,
    ConfigurationFailed,
    DuplicateTable,
    LoopbackFailed,
    ObjectInUse,
    RunCancelled,
    RunFailed,
    RunInterrupted,
)
from cerebro_db.models.fit_checks import functions_of
from cerebro_db.postgres.calls.gpus import check_gpus
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.calls.settings import work_for_run
from cerebro_db.postgres.calls.slots import slots
from cerebro_db.postgres.catalog.runs import Catalog, Driving, StoredRun
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.errors import Deadlocked, SessionLost, StatementFailed
from cerebro_db.postgres.sessions.locks import transaction, try_lock_here
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.postgres.tables.outputs import new_output
from cerebro_db.requests.fitting import RunRequest
from cerebro_db.runs.attempt import Attempt, Limits
from cerebro_db.runs.configurations import frozen_notice
from cerebro_db.runs.guards import (
    check_resumable,
    check_still_driven,
    check_unfinished,
    check_version,
    driven_by_another,
    locked,
    reason_of,
    status_after,
)
from cerebro_db.runs.losses import notice_of_losses
from cerebro_db.runs.memory import memory_workers, within_memory
from cerebro_db.runs.requests import Stopped
from cerebro_db.runs.reservation import reserved
from cerebro_db.runs.setup import RunSetup, TrainRequest, set_up
from cerebro_db.runs.stored import load_setup, register, with_output, with_workers
from cerebro_db.runs.strategy_checks import check_together
from cerebro_db.runs.tensorboard import check_events
from cerebro_db.runs.warm_start import check_previous

# After these the run goes on by itself.
_LOST = (SessionLost, LoopbackFailed, Deadlocked)
# Seconds before the first try to go on, doubled with each; a server that crashed takes some.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
FIXED = NoDecider()
_ANEW = "call the function again, with another model, parameters or data where these are the cause"
Registered = Callable[[int], None]
Queued = Callable[[Session, int], None]
"""Writes down, in the transaction of a session, who begins with a run."""
SetUp = Callable[[Session, PostgreSQL], RunSetup]
"""Makes the setup of a run, with all that its request names in the database."""


class _NotFree(CerebroError):
    """A session that was lost still holds what the next attempt needs."""


class Drive:
    """Driver of one run.

    Args:
        pool: of sessions of the run's owner.
        dialect: of the server.
        limits: of this driver.
        notify: gets a line an epoch.
        decider: decides which configurations the run has.
        registered: gets the run_id.
    """

    def __init__(
        self,
        pool: SessionPool,
        dialect: PostgreSQL,
        limits: Limits,
        notify: Callable[[str], None],
        decider: Decider,
        registered: Registered,
    ) -> None:
        self._pool, self._dialect, self._decider = pool, dialect, decider
        self._registered = registered
        self._limits, self._notify = limits, notify
        seconds = limits.max_seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._run_id = 0
        self._replaces_driver = False
        self._output: QualifiedName | None = None
        # Status and error of the only model of a run, where it was not trained to the end.
        self._only: tuple[str, str] | None = None
        self._driving: Driving | None = None
        # Hops that were done at the last loss of sessions, and losses without any in between.
        self._hops, self._lost = -1, 0
        self._retries = Settings().worker_retries

    def begin(self, request: RunRequest, set_up: SetUp) -> int:
        """Set up a new run and drive it; returns its run_id."""

        def first() -> None:
            with control_session(self._pool, request.search_path) as control:
                setup = self._admitted(control, set_up)
                with (
                    self._slots(control, setup, is_new=True) as setup,
                    reserved(control, setup, self._notify),
                ):
                    self._run_id = register(control, self._dialect, setup)
                    self._tell_strategy(setup)
                    self._attempt(control, setup)

        return self._drive(first)

    def check(self, request: RunRequest, set_up: SetUp) -> None:
        """Refuse a request that no run could be made of now."""
        with control_session(self._pool, request.search_path) as control:
            self._admitted(control, set_up)

    def queue(self, request: RunRequest, queued: Queued, set_up: SetUp) -> int:
        """Set up a new run that another driver is to begin; returns its run_id."""
        with control_session(self._pool, request.search_path) as control:
            setup = self._admitted(control, set_up)
            memory_workers(control, setup)
            with reserved(control, setup, self._notify):
                return register(control, self._dialect, setup, queued=queued)

    def queue_again(self, run_id: int | None, queued: Queued) -> int:
        """Leave a run that stopped to another driver; returns its run_id."""
        with control_session(self._pool, None) as control:
            run = self._resumable(control, run_id)
            if not self._limits.any_version:
                check_version(run)
        if self._limits.model_output_table is not None:
            self._output = self._new_output(self._limits.model_output_table)
        with control_session(self._pool, None) as control, transaction(control):
            key, catalog = run.lock_key, Catalog(control)
            if not try_lock_here(control, key):
                raise driven_by_another(control, run.run_id, key)
            if self._output is not None:
                catalog.output_renamed(run.run_id, self._output)
            catalog.run_queued(run.run_id)
            queued(control, run.run_id)
        return run.run_id

    def _admitted(self, control: Session, set_up: SetUp) -> RunSetup:
        """Setup of a new run, for which the server has all that it takes, with groups that fit into memory."""
        setup = set_up(control, self._dialect)
        functions_of(control, setup.possible)
        check_gpus(control, self._dialect.hosts, setup.gpu_tables)
        check_events(control, setup.possible)
        if setup.spec.warm_start:
            check_previous(control, self._pool, setup)
        return within_memory(control, setup)

    def _resumable(self, control: Session, run_id: int | None) -> StoredRun:
        run = Catalog(control).run(run_id)
        check_resumable(run)
        return run

    def _tell_strategy(self, setup: RunSetup) -> None:
        if frozen := frozen_notice(setup.configurations, setup.models):
            self._notify(frozen)
        line = setup.spec.strategy.notice(len(setup.packed.partitions))
        if line is not None:
            self._notify(line)
        of_losses = (
            None if setup.spec.search is not None else notice_of_losses(setup.configurations)
        )
        if of_losses is not None:
            self._notify(of_losses)

    def resume(self, run_id: int | None) -> int:
        """Drive a run that was begun some other time; returns its run_id."""

        def first() -> None:
            with control_session(self._pool, None) as control:
                run = self._resumable(control, run_id)
            self._run_id = run.run_id
            work_for_run(self._pool, run.spec.session)
            if self._limits.model_output_table is not None:
                self._output = self._new_output(self._limits.model_output_table)
            with control_session(self._pool, None) as control:
                self._attempt_reserved(control)

        return self._drive(first)

    def go_on(self, run_id: int) -> int:
        """Drive a run whose driver is gone since a moment; returns its run_id."""
        self._run_id, self._replaces_driver = run_id, True
        return self._drive(self._again)

    def _new_output(self, name: str) -> QualifiedName:
        with control_session(self._pool, self._limits.search_path) as control:
            return new_output(control, name, "model_output_table")

    # -- attempts --------------------------------------------------------------
    def _drive(self, first: Callable[[], None]) -> int:
        """Make the first attempt, and others as long as sessions are lost."""
        lost: CerebroError | None = None
        while True:
            try:
                if lost is None:
                    first()
                else:
                    self._wait_after(lost)
                    self._again()
                break
            except Stopped as stopped:
                return self._stopped(stopped)
            except (*_LOST, _NotFree) as error:
                if self._driving is None and not self._replaces_driver:
                    raise
                lost = error
            except (Exception, KeyboardInterrupt) as error:
                self._failed(error)
                raise
        self._check_only()
        return self._run_id

    def _again(self) -> None:
        with control_session(self._pool, None) as control:
            run = Catalog(control).run(self._run_id)
        if run.status == "finished":  # the sessions were lost right after the end
            return
        work_for_run(self._pool, run.spec.session)
        with control_session(self._pool, None) as control:
            try:
                self._attempt_reserved(control)
            except ObjectInUse as error:  # by a session of ours that does not know its end yet
                raise _NotFree(error.message) from None

    def _attempt_reserved(self, control: Session) -> None:
        run = Catalog(control).run(self._run_id)
        if not self._limits.any_version:
            check_version(run)
        setup = with_workers(load_setup(control, self._dialect, run), self._limits.num_workers)
        setup = with_output(setup, self._output)
        check_gpus(control, self._dialect.hosts, setup.gpu_tables)
        with (
            self._slots(control, setup) as setup,
            reserved(control, setup, self._notify),
        ):
            self._attempt(control, setup)

    @contextmanager
    def _slots(
        self, control: Session, setup: RunSetup, *, is_new: bool = False
    ) -> Iterator[RunSetup]:
        """Reserve worker slots, and give the setup with as many workers as it got."""
        fitting = memory_workers(control, setup)
        with slots(control, setup.num_workers, self._notify, fitting) as got:
            if is_new:
                setup = setup.for_workers(got)
            check_together(setup.spec.strategy.name, setup.at_once, got)
            yield setup.with_workers(got)

    def _attempt(self, control: Session, setup: RunSetup) -> None:
        catalog = Catalog(control)
        with locked(control, self._run_id, catalog.lock_key(self._run_id)):
            found = catalog.driving(self._run_id)  # now that nobody else can change that
            check_unfinished(found, self._run_id)
            if self._replaces_driver:  # what others ask for was meant for whoever drives
                self._replaces_driver = False
            elif self._driving is None:  # what nobody answered was meant for an earlier driver
                catalog.forget_requests(self._run_id)
            else:
                check_still_driven(found, self._driving, self._run_id)
            if self._output is not None:
                catalog.output_renamed(self._run_id, self._output)
            self._retries = catalog.settings().worker_retries
            self._driving = catalog.driven(self._run_id)
            self._registered(self._run_id)
            try:
                attempt = Attempt(
                    self._pool,
                    self._dialect,
                    self._limits,
                    self._deadline,
                    self._notify,
                    self._decider,
                )
                self._only = attempt.make(control, catalog, catalog.run(self._run_id), setup)
            except _LOST:
                raise
            except BaseException as error:
                self._record_in(control, error)
                raise

    # -- ends ------------------------------------------------------------------
    def _check_only(self) -> None:
        """Raise the error of the only model of a run."""
        if self._only is not None:
            status, error = self._only
            kind = RunCancelled if status == "cancelled" else ConfigurationFailed
            raise kind(
                f"run {self._run_id} {status}: {error}",
                hint=f"{_ANEW}; no table was made or changed",
            )

    def _stopped(self, stopped: Stopped) -> int:
        """Record a pause or a cancel that another session requested; only a cancel is an error."""
        self._record(stopped.status, stopped.reason)
        if stopped.status == "paused":
            self._notify(f"run {self._run_id} paused: {stopped.reason}; {self._resume_hint}")
            return self._run_id
        raise self._cancelled(stopped.reason) from None

    @property
    def _resume_hint(self) -> str:
        return f"SELECT cerebro.cerebro_resume({self._run_id}) goes on with it"

    def _cancelled(self, reason: str) -> RunCancelled:
        return RunCancelled(f"run {self._run_id} was {reason}", hint=self._resume_hint)

    def _failed(self, error: BaseException) -> None:
        """Record how the run stopped, and add to the error how to resume.

        Raises:
            RunCancelled: it was cancelled by its caller.
        """
        status = status_after(error)
        if self._driving is not None:
            self._record(status, reason_of(error))
        if self._run_id and status == "cancelled":
            raise self._cancelled(reason_of(error)) from error
        if self._run_id and isinstance(error, CerebroError):
            self._tell_how_to_go_on(error)

    def _tell_how_to_go_on(self, error: CerebroError) -> None:
        """Add the way to go on to an error after which the run can."""
        if error.sqlstate == DuplicateTable.sqlstate:
            error.hint = (
                "drop it, or give another name: SELECT cerebro.cerebro_resume"
                f"({self._run_id}, model_output_table := 'another_name')"
            )
        elif self._driving is not None and isinstance(error, StatementFailed | RunFailed):
            error.message = f"run {self._run_id} failed: {error.message}"
            first = error.hint or error.last_resort
            own = error.hint != RunFailed.advice and first
            error.hint = f"{first}; then {self._resume_hint}" if own else self._resume_hint

    def _wait_after(self, error: CerebroError) -> None:
        """Wait a little before the next attempt.

        Raises:
            RunInterrupted: there were too many without a hop in between.
            Stopped: the seconds of this driver are over.
        """
        what = "goes on after a deadlock" if isinstance(error, Deadlocked) else "lost its sessions"
        self._notify(f"run {self._run_id} {what}: {error.message}")
        with suppress(CerebroError), control_session(self._pool, None) as control:
            hops = Catalog(control).count_hops(self._run_id)
            self._hops, self._lost = hops, 0 if hops > self._hops >= 0 else self._lost
        if self._lost >= self._retries:
            raise RunInterrupted(
                f"run {self._run_id} was interrupted: {error.message}",
                hint=self._resume_hint,
            ) from None
        self._sleep(min(_FIRST_PAUSE * 2**self._lost, _LONGEST_PAUSE))
        self._lost += 1

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._pool.tick()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise Stopped("paused", f"max_seconds := {self._limits.max_seconds:g} are over")
            time.sleep(min(left, POLL_SECONDS))

    def _record_in(self, control: Session, error: BaseException) -> None:
        """Record how the run stopped before its lock is free, so that its status is right from then on."""
        status = error.status if isinstance(error, Stopped) else status_after(error)
        control.reset()
        with suppress(CerebroError):
            if not control.closed:
                reason = error.reason if isinstance(error, Stopped) else reason_of(error)
                with control.undisturbed():
                    Catalog(control).run_stopped(self._run_id, status, reason)

    def _record(self, status: str, reason: str) -> None:
        """Record how the run stopped, unless another driver has it by now."""
        with (
            suppress(CerebroError),
            self._pool.undisturbed(),
            control_session(self._pool, None) as control,
        ):
            catalog = Catalog(control)
            with transaction(control):
                key = catalog.lock_key(self._run_id)
                if try_lock_here(control, key):
                    catalog.run_stopped(self._run_id, status, reason)


def no_notice(message: str) -> None:
    """For callers that want no progress."""


def fit_multiple(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: TrainRequest,
    notify: Callable[[str], None] = no_notice,
    decider: Decider = FIXED,
    registered: Registered = lambda run_id: None,
) -> int:
    """Train every configuration of a model selection table; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to train.
        notify: gets a line an epoch.
        decider: decides which configurations the run has while it goes on.
        registered: gets the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    limits = Limits(max_seconds=request.max_seconds)
    return Drive(pool, dialect, limits, notify, decider, registered).begin(
        request, functools.partial(set_up, request)
    )


def queue(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: TrainRequest,
    queued: Queued,
    notify: Callable[[str], None] = no_notice,
) -> int:
    """Set up a run that another driver is to begin; returns the run_id.

    Args:
        pool, dialect, request, notify: as above.
        queued: writes down who begins with it, in the transaction that registers it.

    Raises:
        CerebroError: the request is wrong, and nothing was registered.
    """
    return Drive(pool, dialect, Limits(), notify, FIXED, lambda run_id: None).queue(
        request, queued, functools.partial(set_up, request)
    )


def queue_again(
    pool: SessionPool, dialect: PostgreSQL, run_id: int | None, limits: Limits, queued: Queued
) -> int:
    """Leave a run that stopped to another driver; returns the run_id.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is finished, or still going on.
    """
    drive = Drive(pool, dialect, limits, no_notice, FIXED, lambda run_id: None)
    return drive.queue_again(run_id, queued)


def check(pool: SessionPool, dialect: PostgreSQL, request: TrainRequest) -> None:
    """Refuse a request that no run could be made of now."""
    Drive(pool, dialect, Limits(), no_notice, FIXED, lambda run_id: None).check(
        request, functools.partial(set_up, request)
    )


def resume(
    pool: SessionPool,
    dialect: PostgreSQL,
    run_id: int | None,
    limits: Limits,
    notify: Callable[[str], None] = no_notice,
    decider: Decider = FIXED,
    registered: Registered = lambda run_id: None,
) -> int:
    """Go on with a run that stopped; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count, the one that began the run.
        dialect: of the server.
        run_id: which run.
        limits: of this driver.
        notify: gets a line an epoch.
        decider: decides which configurations the run has while it goes on.
        registered: gets the run_id as soon as this driver drives it.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is finished, or still going on.
    """
    return Drive(pool, dialect, limits, notify, decider, registered).resume(run_id)


def drive_on(
    pool: SessionPool,
    dialect: PostgreSQL,
    run_id: int,
    limits: Limits,
    notify: Callable[[str], None],
) -> int:
    """Go on with a run whose driver is gone since a moment, its locks perhaps not yet; returns the run_id.

    Args:
        pool, dialect, run_id, limits, notify: as above.
    """
    return Drive(pool, dialect, limits, notify, FIXED, lambda run_id: None).go_on(run_id)
