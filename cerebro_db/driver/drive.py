"""Drives one run to its end: takes its lock, its workers, and takes it up again where they are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import cerebro_db
from cerebro_db.configs.settings import Settings
from cerebro_db.database.catalog import Catalog, Driving, StoredRun
from cerebro_db.database.dialects.capabilities import ends_process
from cerebro_db.database.dialects.choice import PostgreSQL
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.relations import CallerPath
from cerebro_db.database.sessions import (
    POLL_SECONDS,
    Deadlocked,
    Session,
    SessionLost,
    SessionPool,
    StatementFailed,
    Tick,
    no_tick,
)
from cerebro_db.driver import results
from cerebro_db.driver.control import END_HOLDER, control_session, holder_of, transaction
from cerebro_db.driver.events import check_events
from cerebro_db.driver.fit_request import FitRequest
from cerebro_db.driver.fit_setup import RunSetup, set_up
from cerebro_db.driver.functions import functions_of
from cerebro_db.driver.gpus import check_gpus, gpu_places, gpu_tables
from cerebro_db.driver.leftovers import new_output
from cerebro_db.driver.registration import register, states_of
from cerebro_db.driver.requests import Requests, Stopped
from cerebro_db.driver.reservation import reserved
from cerebro_db.driver.rotation import RotationRun, check_schedule, rotates
from cerebro_db.driver.run import Run
from cerebro_db.driver.slots import worker_slots
from cerebro_db.driver.state_store import StateStore
from cerebro_db.driver.stored import (
    Progress,
    check_unchanged,
    load_progress,
    load_setup,
    with_output,
    with_workers,
)
from cerebro_db.driver.tasks import worker_task
from cerebro_db.driver.warm_start import check_previous
from cerebro_db.driver.workers import RunContext, give_back, stop, take_workers
from cerebro_db.errors import (
    CerebroError,
    ConfigurationFailed,
    DuplicateTable,
    LoopbackFailed,
    NotPermitted,
    ObjectInUse,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    WrongRunStatus,
)

_CANCELLED = ("57014", "QueryCanceled")
# After these the run goes on by itself.
_LOST = (SessionLost, LoopbackFailed, Deadlocked)
_RESUMABLE = ("interrupted", "cancelled", "paused", "failed")
# Seconds before the first try to go on, doubled with each; a server that crashed takes some.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# Workers of a driver that is gone notice that within seconds, or when their hop is done.
_ORPHANS_SECONDS = 120.0
_ANEW = "call the function again, with another model, parameters or data where these are the cause"


@dataclass(frozen=True)
class Limits:
    """What one driver of a run may do.

    Attributes:
        max_seconds: until it pauses the run; None for any time.
        num_workers: how many; None for as many as the run began with.
        any_version: whether it may go on with other versions of what computes.
        model_output_table: another name for the output; None for the one that the run began with.
        search_path: for that name.
    """

    max_seconds: float | None = None
    num_workers: int | None = None
    any_version: bool = False
    model_output_table: str | None = None
    search_path: CallerPath | None = None


class _NotFree(CerebroError):
    """A session that was lost still holds what the next attempt needs."""


class Drive:
    """One driver of one run.

    Args:
        pool: of sessions of the run's owner.
        dialect: of the server.
        limits: of this driver.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.
    """

    def __init__(
        self,
        pool: SessionPool,
        dialect: PostgreSQL,
        limits: Limits,
        tick: Tick,
        notify: Callable[[str], None],
    ) -> None:
        self._pool, self._dialect = pool, dialect
        self._limits, self._tick, self._notify = limits, tick, notify
        seconds = limits.max_seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._run_id = 0
        self._output: QualifiedName | None = None
        # Status and error of the only model of a run, where it was not trained to the end.
        self._only: tuple[str, str] | None = None
        self._driving: Driving | None = None
        # Hops that were done at the last loss of sessions, and losses without any in between.
        self._hops, self._lost = -1, 0
        self._retries = Settings().worker_retries

    def begin(self, request: FitRequest) -> int:
        """Set up a new run and drive it; returns its run_id."""

        def first() -> None:
            with control_session(self._pool, request.search_path, self._tick) as control:
                check_schedule(self._dialect, request)
                models, setup = set_up(control, self._dialect.training, request, self._tick)
                functions_of(control, setup.configurations, self._tick)
                check_gpus(control, self._dialect.hosts, gpu_tables(setup), self._tick)
                check_events(control, setup.configurations, self._tick)
                if setup.replaces:
                    check_previous(control, self._pool, setup, self._tick)
                with (
                    self._slots(control, setup) as setup,
                    reserved(control, setup, self._tick, self._notify),
                ):
                    self._run_id = register(control, self._dialect, setup, models, self._tick)
                    self._attempt(control, setup)

        return self._drive(first)

    def resume(self, run_id: int | None) -> int:
        """Drive a run that was begun some other time; returns its run_id."""

        def first() -> None:
            with control_session(self._pool, None, self._tick) as control:
                catalog = Catalog(control, self._tick)
                run = catalog.run(run_id)
                _check_resumable(run)
                self._run_id = run.run_id
            if self._limits.model_output_table is not None:
                self._output = self._new_output(self._limits.model_output_table)
            with control_session(self._pool, None, self._tick) as control:
                self._attempt_reserved(control)

        return self._drive(first)

    def _new_output(self, name: str) -> QualifiedName:
        with control_session(self._pool, self._limits.search_path, self._tick) as control:
            return new_output(control, name, "model_output_table", self._tick)

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
                if self._driving is None:
                    raise
                lost = error
            except (Exception, KeyboardInterrupt) as error:
                self._failed(error)
                raise
        self._check_only()
        return self._run_id

    def _again(self) -> None:
        with control_session(self._pool, None, self._tick) as control:
            run = Catalog(control, self._tick).run(self._run_id)
            if run.status == "finished":  # the sessions were lost right after the end
                return
            try:
                self._attempt_reserved(control)
            except ObjectInUse as error:  # by a session of ours that does not know its end yet
                raise _NotFree(error.message) from None

    def _attempt_reserved(self, control: Session) -> None:
        run = Catalog(control, self._tick).run(self._run_id)
        if not self._limits.any_version:
            _check_version(run)
        setup = with_workers(load_setup(control, run, self._tick), self._limits.num_workers)
        setup = with_output(setup, self._output)
        check_gpus(control, self._dialect.hosts, gpu_tables(setup), self._tick)
        with (
            self._slots(control, setup) as setup,
            reserved(control, setup, self._tick, self._notify),
        ):
            self._attempt(control, setup)

    def _slots(self, control: Session, setup: RunSetup) -> AbstractContextManager[RunSetup]:
        return worker_slots(control, self._pool, setup, self._tick, self._notify)

    def _attempt(self, control: Session, setup: RunSetup) -> None:
        catalog = Catalog(control, self._tick)
        with _locked(control, self._run_id, catalog.lock_key(self._run_id), self._tick):
            found = catalog.driving(self._run_id)  # now that nobody else can change that
            check_unfinished(found, self._run_id)
            if self._driving is None:  # what nobody answered was meant for an earlier driver
                catalog.forget_requests(self._run_id)
            else:
                check_still_driven(found, self._driving, self._run_id)
            if self._output is not None:
                catalog.output_renamed(self._run_id, self._output)
            self._retries = catalog.settings().worker_retries
            self._driving = catalog.driven(self._run_id)
            try:
                self._run(control, catalog, setup)
            except _LOST:
                raise
            except BaseException as error:
                self._record_in(control, error)
                raise

    def _run(self, control: Session, catalog: Catalog, setup: RunSetup) -> None:
        run = catalog.run(self._run_id)
        _wait_for_orphans(control, run, self._tick)
        store = self._store(catalog, run, setup)
        progress = load_progress(control, store, run, setup, self._tick)
        functions = functions_of(control, setup.configurations, self._tick)
        ended = self._train(
            self._context(control, catalog, run, store, setup, functions), setup, progress
        )
        check_unchanged(control, run, setup.packed, setup.validation, self._tick)
        if setup.selection is None and ended:
            ((status, error),) = ended.values()
            results.write_none(catalog, self._dialect, run, error)
            self._only = status, error
        else:
            results.write(catalog, self._dialect, setup, run, store, ended)

    def _store(self, catalog: Catalog, run: StoredRun, setup: RunSetup) -> StateStore:
        sql, configurations = self._dialect.training, len(setup.configurations)
        store = StateStore(states_of(run.row), configurations, catalog, sql)
        store.load()
        return store

    def _train(
        self, context: RunContext, setup: RunSetup, progress: Progress
    ) -> dict[int, tuple[str, str]]:
        kind = RotationRun if rotates(setup) else Run
        if kind(setup, progress, context, []).complete:
            return progress.ended
        use_gpus = bool(setup.request.use_gpus)
        workers = take_workers(self._pool, setup.num_workers, setup.threads, use_gpus, self._tick)
        try:
            ended = kind(setup, progress, context, workers).run()
        except BaseException:
            stop(workers, context)
            raise
        give_back(workers, context)
        return ended

    def _context(
        self,
        control: Session,
        catalog: Catalog,
        run: StoredRun,
        store: StateStore,
        setup: RunSetup,
        functions: Mapping[str, Any],
    ) -> RunContext:
        use_gpus = bool(setup.request.use_gpus)
        limits, settings = self._limits, catalog.settings()
        cache_bytes = settings.cache_mb * 2**20 if run.row.use_caching else 0
        return RunContext(
            run_id=self._run_id,
            states=states_of(run.row),
            pool=self._pool,
            store=store,
            catalog=catalog,
            dialect=self._dialect,
            packed=setup.packed,
            requests=Requests(catalog, self._run_id, self._deadline, limits.max_seconds),
            guard_key=_guard_key(run),
            functions=functions,
            cache_bytes=cache_bytes,
            preparation=worker_task(
                run.run_id,
                setup.threads,
                use_gpus,
                cache_bytes,
                settings,
                gpu_places(control, self._dialect.hosts, use_gpus, self._tick),
                keeps_errors=rotates(setup),
                functions=bool(functions),
            ),
            manifest={} if limits.any_version else run.manifest,
            tick=self._tick,
            notify=self._notify,
        )

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
        """Someone asked for it: a pause is no error, a cancelled run is."""
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
        """Write down how the run stopped, and have the error tell how to go on.

        Raises:
            RunCancelled: it was cancelled by its caller.
        """
        status = status_after(error)
        if self._driving is not None:
            self._record(status, _text(error))
        if self._run_id and status == "cancelled":
            raise self._cancelled(_text(error)) from error
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
        with suppress(CerebroError), control_session(self._pool, None, self._tick) as control:
            hops = Catalog(control, self._tick).count_hops(self._run_id)
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
            self._tick()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise Stopped("paused", f"max_seconds := {self._limits.max_seconds:g} are over")
            time.sleep(min(left, POLL_SECONDS))

    def _record_in(self, control: Session, error: BaseException) -> None:
        """Tell how the run stopped before its lock is free, so that nobody sees anything else."""
        status = error.status if isinstance(error, Stopped) else status_after(error)
        control.reset()
        with suppress(CerebroError):
            if not control.closed:
                reason = error.reason if isinstance(error, Stopped) else _text(error)
                Catalog(control, no_tick).run_stopped(self._run_id, status, reason)

    def _record(self, status: str, reason: str) -> None:
        """Tell how the run stopped, unless someone else drives it by now."""
        with suppress(CerebroError), control_session(self._pool, None) as control:
            catalog = Catalog(control, no_tick)
            with transaction(control):
                key = catalog.lock_key(self._run_id)
                if control.run("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", (key,))[0][0]:
                    catalog.run_stopped(self._run_id, status, reason)


def _check_resumable(run: StoredRun) -> None:
    if not run.is_mine:
        # It would read tables that its owner named with the rights of someone else.
        raise NotPermitted(
            f"run_id: got {run.run_id}, a run of another role; allowed: to go on with your own",
            hint="the role that began it can; cerebro.runs shows whose run it is",
        )
    if run.status not in _RESUMABLE:
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which is {run.status}; "
            f"allowed: a run that is {', '.join(_RESUMABLE[:-1])} or {_RESUMABLE[-1]}"
        )


def _check_version(run: StoredRun) -> None:
    if run.row.cerebro_version != cerebro_db.__version__:
        raise WrongRunStatus(
            f"run {run.run_id} began with version {run.row.cerebro_version} of Cerebro-DB; this "
            f"server has {cerebro_db.__version__}, whose results may not be the same",
            hint="any_version := true goes on all the same",
        )


@contextmanager
def _locked(session: Session, run_id: int, key: int, tick: Tick) -> Iterator[None]:
    """While this lasts nobody else drives the run."""
    if not session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,), tick)[0][0]:
        raise ObjectInUse(
            f"run {run_id} is driven by another session at this moment: its lock is held by "
            f"{holder_of(session, key, tick)}",
            hint=END_HOLDER,
        )
    try:
        yield
    finally:
        session.reset()
        with suppress(CerebroError):
            if not session.closed:
                session.run("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,))


def _wait_for_orphans(session: Session, run: StoredRun, tick: Tick) -> None:
    """Wait until no worker of an earlier driver can commit a hop any more."""
    key, end = _guard_key(run), time.monotonic() + _ORPHANS_SECONDS
    while not session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,), tick)[0][0]:
        if time.monotonic() > end:
            raise WrongRunStatus(
                f"run {run.run_id}: a worker of its earlier driver is still at work, "
                f"{holder_of(session, key, tick)}",
                hint=END_HOLDER,
            )
        tick()
        time.sleep(POLL_SECONDS)
    session.run("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,), tick)


def _guard_key(run: StoredRun) -> int:
    """Of the lock that workers share; the run's own is even."""
    return run.row.lock_key + 1


def status_after(error: BaseException) -> str:
    """How a run stands that an error has stopped."""
    if isinstance(error, RunInterrupted) or _ends(error):
        return "interrupted"  # the server is about to end, or does not come back
    # What the server raises in a tick is an exception of its own.
    code = getattr(error, "sqlstate", None) or type(error).__name__
    cancelled = isinstance(error, KeyboardInterrupt) or code in _CANCELLED
    return "cancelled" if cancelled else "failed"


def check_unfinished(found: Driving, run_id: int) -> None:
    """Refuse a run that another driver has ended, or whose states someone removed meanwhile."""
    if found.status == "finished" or not found.has_states:
        how = found.status if found.status == "finished" else "without its states"
        raise WrongRunStatus(f"run {run_id} is {how}, and nothing is left to go on with")


def check_still_driven(found: Driving, before: Driving, run_id: int) -> None:
    """Leave a run alone that others have stopped, or driven, while its sessions were lost."""
    if found.status in ("cancelled", "paused"):
        raise Stopped(found.status, found.error or found.status)
    if (found.pid, found.resumed) != (before.pid, before.resumed):
        raise RunInterrupted(
            f"run {run_id} has been driven by another session since",
            hint="cerebro.runs tells how it stands",
        )


def _ends(error: BaseException) -> bool:
    """Whether the server ends the session that drives the run."""
    return isinstance(error, KeyboardInterrupt) and ends_process()


def _text(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "its session was ended" if _ends(error) else "cancelled by its caller"
    text = error.message if isinstance(error, CerebroError) else str(error) or type(error).__name__
    return f"cancelled: {text}" if status_after(error) == "cancelled" else text
