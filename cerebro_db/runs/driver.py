"""Drives one run to its end: takes its lock, its workers, and takes it up again where they are lost."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import cerebro_db
from cerebro_db.configs.messages import check_range
from cerebro_db.configs.settings import Settings
from cerebro_db.core.decisions import Asked, Decider, Fixed
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import (
    AUTO,
    HOPPER,
    ROTATION,
    SERVED,
    Configuration,
)
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import told
from cerebro_db.decide.strategies import STRATEGIES
from cerebro_db.errors import (
    CerebroError,
    ConfigurationFailed,
    DuplicateTable,
    InvalidArgument,
    LoopbackFailed,
    NotPermitted,
    NotSupported,
    ObjectInUse,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    TooManyConnections,
    WrongRunStatus,
)
from cerebro_db.executors.direct import make_executor
from cerebro_db.executors.served import ServedRounds
from cerebro_db.executors.sessions import Workplace
from cerebro_db.executors.tasks import TaskWriter, worker_task
from cerebro_db.models.fit_checks import functions_of
from cerebro_db.postgres import direct_board
from cerebro_db.postgres.catalog import Catalog, Driving, StoredRun
from cerebro_db.postgres.control import (
    END_HOLDER,
    MAX_WORKERS,
    control_session,
    holder_of,
    slots,
    transaction,
)
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql_training import PostgreSQLTraining
from cerebro_db.postgres.gpus import check_gpus, gpu_places
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import new_output
from cerebro_db.postgres.records import DecisionRow, decisions_of
from cerebro_db.postgres.relations import CallerPath
from cerebro_db.postgres.rounds import rounds_of
from cerebro_db.postgres.sessions import (
    POLL_SECONDS,
    Deadlocked,
    Session,
    SessionLost,
    SessionPool,
    StatementFailed,
)
from cerebro_db.postgres.states import StateStore
from cerebro_db.runs import results
from cerebro_db.runs.catalog import RunCatalog, ends_of
from cerebro_db.runs.decisions import Decisions
from cerebro_db.runs.loop import Loop
from cerebro_db.runs.report import Report
from cerebro_db.runs.request import FitRequest, check_seconds
from cerebro_db.runs.requests import Requests, Stopped
from cerebro_db.runs.served import check_served
from cerebro_db.runs.setup import (
    RunSetup,
    hosts_of_peers,
    memory_workers,
    reserved,
    set_up,
    within_memory,
)
from cerebro_db.runs.stored import (
    check_unchanged,
    load_setup,
    load_state,
    recorded_of,
    register,
    states_of,
    with_output,
    with_workers,
)
from cerebro_db.runs.tensorboard import EventFiles, check_events
from cerebro_db.runs.warm_start import check_previous

_CANCELLED, _ENDING = ("57014",), ("57P01", "57P02")
# After these the run goes on by itself.
_LOST = (SessionLost, LoopbackFailed, Deadlocked)
_RESUMABLE = ("interrupted", "cancelled", "paused", "failed")
# Seconds before the first try to go on, doubled with each; a server that crashed takes some.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# Workers of a driver that is gone notice that within seconds, or when their hop is done.
_ORPHANS_SECONDS = 120.0
FIXED = Fixed()
_ANEW = "call the function again, with another model, parameters or data where these are the cause"


@dataclass(frozen=True)
class Limits:
    """Limits of one driver of a run.

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


Registered = Callable[[int], None]
Queued = Callable[[Session, int], None]
"""Writes down, in the transaction of a session, who begins with a run."""
SetUp = Callable[[Session, PostgreSQLTraining, FitRequest], tuple[QualifiedName, RunSetup]]
"""Makes the setup of a run, and finds its architecture table."""


class _NotFree(CerebroError):
    """A session that was lost still holds what the next attempt needs."""


class Drive:
    """One driver of one run.

    Args:
        pool: of sessions of the run's owner.
        dialect: of the server.
        limits: of this driver.
        notify: gets a line an epoch.
        decider: decides which configurations the run has.
        registered: is told the run_id.
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

    def begin(self, request: FitRequest, set_up: SetUp = set_up) -> int:
        """Set up a new run and drive it; returns its run_id."""

        def first() -> None:
            with control_session(self._pool, request.search_path) as control:
                models, setup = self._checked(control, request, set_up)
                setup = within_memory(control, setup)
                with (
                    self._slots(control, setup, is_new=True) as setup,
                    reserved(control, setup, self._notify),
                ):
                    self._run_id = register(control, self._dialect, setup, models)
                    self._tell_strategy(setup)
                    self._attempt(control, setup)

        return self._drive(first)

    def check(self, request: FitRequest, set_up: SetUp = set_up) -> None:
        """Refuse a request that no run could be made of now."""
        with control_session(self._pool, request.search_path) as control:
            self._checked(control, request, set_up)

    def queue(self, request: FitRequest, queued: Queued, set_up: SetUp = set_up) -> int:
        """Set up a new run that another driver is to begin; returns its run_id."""
        with control_session(self._pool, request.search_path) as control:
            models, setup = self._checked(control, request, set_up)
            setup = within_memory(control, setup)
            memory_workers(control, setup)
            with reserved(control, setup, self._notify):
                return register(control, self._dialect, setup, models, queued=queued)

    def queue_again(self, run_id: int | None, queued: Queued) -> int:
        """Leave a run that stopped to another driver; returns its run_id."""
        with control_session(self._pool, None) as control:
            run = self._resumable(control, run_id)
            if not self._limits.any_version:
                _check_version(run)
        if self._limits.model_output_table is not None:
            self._output = self._new_output(self._limits.model_output_table)
        with control_session(self._pool, None) as control, transaction(control):
            key, catalog = run.row.lock_key, Catalog(control)
            if not control.run("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", (key,))[0][0]:
                raise _driven(control, run.run_id, key)
            if self._output is not None:
                catalog.output_renamed(run.run_id, self._output)
            catalog.run_queued(run.run_id)
            queued(control, run.run_id)
        return run.run_id

    def _checked(
        self, control: Session, request: FitRequest, set_up: SetUp
    ) -> tuple[QualifiedName, RunSetup]:
        """Architecture table and setup of a new run, all of which is there."""
        _check_strategy(self._dialect, request)
        models, setup = set_up(control, self._dialect.training, request)
        functions_of(control, setup.possible)
        check_gpus(control, self._dialect.hosts, setup.gpu_tables)
        check_events(control, setup.possible)
        if setup.replaces:
            check_previous(control, self._pool, setup)
        return models, setup

    def _resumable(self, control: Session, run_id: int | None) -> StoredRun:
        run = Catalog(control).run(run_id)
        check_resumable(run)
        return run

    def _tell_strategy(self, setup: RunSetup) -> None:
        spec = setup.spec
        line = told(spec.schedule, len(setup.packed.partitions), spec.rounds, spec.asynchrony)
        if line is not None:
            self._notify(line)

    def resume(self, run_id: int | None) -> int:
        """Drive a run that was begun some other time; returns its run_id."""

        def first() -> None:
            with control_session(self._pool, None) as control:
                self._run_id = self._resumable(control, run_id).run_id
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
            try:
                self._attempt_reserved(control)
            except ObjectInUse as error:  # by a session of ours that does not know its end yet
                raise _NotFree(error.message) from None

    def _attempt_reserved(self, control: Session) -> None:
        run = Catalog(control).run(self._run_id)
        if not self._limits.any_version:
            _check_version(run)
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
        """The setup with as many workers as there may be; while this lasts, nobody else has their slots."""
        fitting = memory_workers(control, setup)
        with slots(control, setup.num_workers, self._notify, fitting) as got:
            if is_new:
                setup = setup.for_workers(got)
            _check_together(setup, got)
            yield setup.with_workers(got)

    def _attempt(self, control: Session, setup: RunSetup) -> None:
        catalog = Catalog(control)
        with _locked(control, self._run_id, catalog.lock_key(self._run_id)):
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
                self._run(control, catalog, setup)
            except _LOST:
                raise
            except BaseException as error:
                self._record_in(control, error)
                raise

    def _run(self, control: Session, catalog: Catalog, setup: RunSetup) -> None:
        run = catalog.run(self._run_id)
        _wait_for_orphans(control, run)
        direct_board.revoke(control, run.run_id)
        settings = catalog.settings()
        cache_bytes = settings.cache_mb * 2**20 if setup.use_caching else 0
        decoded = sum(table.decoded_bytes for table in setup.tables.values())
        spec = replace(
            setup.spec,
            scans_wait=decoded > cache_bytes,
            is_open=self._decider.is_open or setup.search is not None,
        )
        setup = replace(setup, spec=spec)
        sql = self._dialect.training
        store = StateStore(states_of(run.row), len(setup.configurations), catalog, sql)
        store.load()
        state = load_state(control, store, run, setup)
        functions = functions_of(control, setup.possible)
        hosts = hosts_of_peers(control, self._dialect.hosts, setup, settings.peer_network)
        preparation = worker_task(
            run.run_id,
            setup.threads,
            spec.use_gpus,
            cache_bytes,
            settings,
            gpu_places(control, self._dialect.hosts, spec.use_gpus),
            keeps_errors=spec.schedule == ROTATION,
            functions=bool(functions),
            peers=bool(hosts),
        )
        place = Workplace(
            run_id=run.run_id,
            states=states_of(run.row),
            tables=setup.tables,
            tasks=TaskWriter(setup.tables, setup.targets, spec.seed, run.run_id),
            pool=self._pool,
            store=store,
            dialect=self._dialect,
            threads=setup.threads,
            use_gpus=spec.use_gpus,
            guard_key=_guard_key(run),
            cache_bytes=cache_bytes,
            preparation=preparation,
            hosts=hosts,
            rounds=ServedRounds(rounds_of(catalog, run.run_id) if spec.schedule in SERVED else ()),
            moves_rows=setup.moves_rows,
        )
        manifest = {} if self._limits.any_version else run.manifest
        self._train(place, setup, state, RunCatalog(catalog, run.run_id, manifest, functions), run)
        check_unchanged(control, run, setup.packed, setup.validation)
        self._write_results(catalog, setup, state, run, store)

    def _train(
        self,
        place: Workplace,
        setup: RunSetup,
        state: RunState,
        written: RunCatalog,
        run: StoredRun,
    ) -> None:
        catalog, limits, clock = place.store.catalog, self._limits, time.monotonic
        place.store.before_drop = written.flush
        executor = make_executor(place, setup.num_workers, setup.spec.schedule, self._notify)
        decider, made = self._decider, decisions_of(catalog, run.run_id)
        if setup.search is not None:
            decider = decider_of(setup, setup.search, made)
        requests = Requests(catalog, run.run_id, self._deadline, limits.max_seconds)
        first = [_until(one, run.active) for one in requests.first()]
        extended: list[Mapping[str, Any]] = [one.details for one in made if one.action == "extend"]
        extended += [one.detail for one in first]
        requests.search_ends = _search_ends(setup.search, extended, run.active, clock())
        loop = Loop(
            state=state,
            strategy=STRATEGIES[setup.spec.schedule],
            executor=executor,
            storage=place.store,
            catalog=written,
            decisions=Decisions(
                decider,
                catalog,
                run.run_id,
                setup.maker,
                setup.models,
                place.store,
                setup.search.goal if setup.search else None,
                functools.partial(self._admit, catalog, setup, written),
            ),
            requests=requests,
            report=Report(state, self._notify, clock, run.active),
            files=EventFiles(run.run_id, state),
            clock=clock,
            first=first,
        )
        try:
            loop.run()
        except BaseException:
            executor.stop()
            raise
        executor.give_back()

    def _admit(
        self,
        catalog: Catalog,
        setup: RunSetup,
        written: RunCatalog,
        configurations: Sequence[Configuration],
    ) -> None:
        """Refuse configurations for which the workers of the run were not made."""
        used = functions_of(catalog.session, configurations)
        if more := sorted(set(used) - set(written.functions)):
            raise InvalidArgument(
                f"got the registered function {more[0]}; allowed: those that the run began with, "
                f"which are {', '.join(written.functions) or 'none'}"
            )
        spec = setup.spec
        check_served(spec.schedule, spec.asynchrony, configurations, setup.packed)
        memory_workers(catalog.session, replace(setup, probes=(*setup.probes, *configurations)))
        check_events(catalog.session, configurations)

    def _write_results(
        self,
        catalog: Catalog,
        setup: RunSetup,
        state: RunState,
        run: StoredRun,
        store: StateStore,
    ) -> None:
        if setup.is_single and state.ended:
            ((status, error),) = state.ended.values()
            results.write_none(catalog, self._dialect, run, error)
            self._only = status, error
        else:
            configurations = tuple(track.configuration for track in state.tracks.values())
            setup = replace(setup, configurations=configurations)
            results.write(catalog, self._dialect, setup, run, store, state.ended, ends_of(state))

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
        """Tell how the run stopped before its lock is free, so that nobody sees anything else."""
        status = error.status if isinstance(error, Stopped) else status_after(error)
        control.reset()
        with suppress(CerebroError):
            if not control.closed:
                reason = error.reason if isinstance(error, Stopped) else _text(error)
                with control.undisturbed():
                    Catalog(control).run_stopped(self._run_id, status, reason)

    def _record(self, status: str, reason: str) -> None:
        """Tell how the run stopped, unless someone else drives it by now."""
        with (
            suppress(CerebroError),
            self._pool.undisturbed(),
            control_session(self._pool, None) as control,
        ):
            catalog = Catalog(control)
            with transaction(control):
                key = catalog.lock_key(self._run_id)
                if control.run("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", (key,))[0][0]:
                    catalog.run_stopped(self._run_id, status, reason)


def decider_of(setup: RunSetup, search: SearchSpec, made: Sequence[DecisionRow]) -> Decider:
    """Whoever decides a search, with the decisions that an earlier driver has made."""
    from cerebro_db.decide.search.replaying import Replay, from_json
    from cerebro_db.decide.search.schedule import Schedule  # which needs NumPy

    if search.replays:
        return Replay(from_json(search.replays))
    maker, models = setup.maker, setup.models
    return Schedule(search, lambda row: maker.fault(row, models), recorded_of(setup, made))


def _until(request: Asked, active: float) -> Asked:
    """A request to go on, with when that ends, of a run that has taken some seconds already."""
    detail = dict(request.detail)
    if "max_seconds" in detail:
        detail["until"] = active + detail["max_seconds"]
    return replace(request, detail=detail)


def _search_ends(
    search: SearchSpec | None, extended: Sequence[Mapping[str, Any]], active: float, now: float
) -> float | None:
    """Time at which a search begins nothing any more; what earlier drivers took counts.

    Args:
        search: what was asked for at first.
        extended: what was asked for since.
        active: seconds that earlier drivers took.
        now: on the clock.
    """
    if search is None or search.replays:
        return None
    most = search.budget.max_seconds
    if extended:
        most = float(extended[-1].get("until", math.inf))
    return None if math.isinf(most) else now + max(0.0, most - active)


def _check_together(setup: RunSetup, workers: int) -> None:
    """Refuse fewer workers than must work at the same time."""
    if workers < setup.at_once:
        raise TooManyConnections(
            f"got {workers} workers; strategy := {setup.spec.schedule!r} needs {setup.at_once} at a time, "
            "which train a configuration together",
            hint="the NOTICE tells what there is too little of; strategy := 'averaging' works with any "
            "number of workers",
        )


def _check_strategy(dialect: PostgreSQL, request: FitRequest) -> None:
    """Refuse a strategy that the server cannot do."""
    name = request.chosen.name
    if name in dialect.strategies:
        return
    what = "schedule" if request.strategy is None else "strategy"
    raise NotSupported(
        f"{what}: got {name!r}; allowed on this server: {', '.join(map(repr, dialect.strategies))}, "
        "as no statement can train on segments side by side",
        hint=f"leave it out: {AUTO if request.one is not None else HOPPER!r} is the default",
    )


def check_resumable(run: StoredRun) -> None:
    """Refuse a run of another role, and one that has ended or is going on."""
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
def _locked(session: Session, run_id: int, key: int) -> Iterator[None]:
    """While this lasts nobody else drives the run."""
    if not session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,))[0][0]:
        raise _driven(session, run_id, key)
    try:
        yield
    finally:
        session.reset()
        with suppress(CerebroError):
            if not session.closed:
                session.run_through("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,))


def _driven(session: Session, run_id: int, key: int) -> ObjectInUse:
    return ObjectInUse(
        f"run {run_id} is driven by another session at this moment: its lock is held by "
        f"{holder_of(session, key)}",
        hint=END_HOLDER,
    )


def _wait_for_orphans(session: Session, run: StoredRun) -> None:
    """Wait until no worker of an earlier driver can commit a hop any more."""
    key, end = _guard_key(run), time.monotonic() + _ORPHANS_SECONDS
    while not session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,))[0][0]:
        if time.monotonic() > end:
            raise WrongRunStatus(
                f"run {run.run_id}: a worker of its earlier driver is still at work, "
                f"{holder_of(session, key)}",
                hint=END_HOLDER,
            )
        session.tick()
        time.sleep(POLL_SECONDS)
    session.run("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,))


def _guard_key(run: StoredRun) -> int:
    """Of the lock that workers share; the run's own is even."""
    return run.row.lock_key + 1


def status_after(error: BaseException) -> str:
    """Status of a run that an error has stopped."""
    if isinstance(error, RunInterrupted) or _ends(error):
        return "interrupted"  # the server is about to end, or does not come back
    # What the server raises in a tick is an exception of its own.
    code = getattr(error, "sqlstate", None)
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
    """True if the server ends the session that drives the run."""
    return getattr(error, "sqlstate", None) in _ENDING


def _text(error: BaseException) -> str:
    if _ends(error):
        return "its session was ended"
    if isinstance(error, KeyboardInterrupt):
        return "cancelled by its caller"
    text = error.message if isinstance(error, CerebroError) else str(error) or type(error).__name__
    return f"cancelled: {text}" if status_after(error) == "cancelled" else text


def no_notice(message: str) -> None:
    """For callers that want no progress."""


def fit_multiple(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: FitRequest,
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
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    limits = Limits(max_seconds=request.max_seconds)
    return Drive(pool, dialect, limits, notify, decider, registered).begin(request)


def queue(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: FitRequest,
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
    return Drive(pool, dialect, Limits(), notify, FIXED, lambda run_id: None).queue(request, queued)


def queue_again(
    pool: SessionPool, dialect: PostgreSQL, run_id: int | None, limits: Limits, queued: Queued
) -> int:
    """Leave a run that stopped to another driver; returns the run_id.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is finished, or still going on.
    """
    check_seconds(limits.max_seconds)
    check_range("num_workers", limits.num_workers, 1, MAX_WORKERS)
    drive = Drive(pool, dialect, limits, no_notice, FIXED, lambda run_id: None)
    return drive.queue_again(run_id, queued)


def check(pool: SessionPool, dialect: PostgreSQL, request: FitRequest) -> None:
    """Refuse a request that no run could be made of now."""
    Drive(pool, dialect, Limits(), no_notice, FIXED, lambda run_id: None).check(request)


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
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is finished, or still going on.
    """
    check_seconds(limits.max_seconds)
    check_range("num_workers", limits.num_workers, 1, MAX_WORKERS)
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
