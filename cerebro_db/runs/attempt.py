"""One attempt of a driver: put together what the loop of a run needs, run it, write the output tables."""

from __future__ import annotations

import functools
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from cerebro_db.configs.frameworks import framework_in
from cerebro_db.core.decisions import EXTEND, Decision, Extension, Request, Wanted
from cerebro_db.core.ports import Decider
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import Configuration
from cerebro_db.core.state import RunState
from cerebro_db.decide.search.guarded import Guarded, fault_of
from cerebro_db.decide.search.results import short_trials
from cerebro_db.errors import InvalidArgument
from cerebro_db.executors.direct import make_executor
from cerebro_db.executors.served import ServedRounds
from cerebro_db.executors.tasks import TaskWriter, worker_task
from cerebro_db.executors.workers import RunResources
from cerebro_db.models.fit_checks import functions_of
from cerebro_db.postgres.calls.gpus import gpu_places
from cerebro_db.postgres.catalog.records import decisions_of, rounds_of
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.catalog.states import StateStore
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.direct import board
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.search_path import CallerPath
from cerebro_db.requests.fitting import ResumeRequest
from cerebro_db.runs import results
from cerebro_db.runs.catalog import RunCatalog, ends_of
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.decisions import Decisions
from cerebro_db.runs.folds import fold_rows_of, weights_of
from cerebro_db.runs.guards import guard_key, wait_for_orphans
from cerebro_db.runs.loop import Loop
from cerebro_db.runs.memory import memory_workers
from cerebro_db.runs.notices import RunNotices
from cerebro_db.runs.requests import Requests
from cerebro_db.runs.searches.notices import SearchNotices, last_line
from cerebro_db.runs.setup import RunSetup
from cerebro_db.runs.stored import check_unchanged, load_state, states_of
from cerebro_db.runs.strategy_checks import hosts_of_peers
from cerebro_db.runs.tensorboard import EventFiles, check_events


class Attempt:
    """One attempt of a driver to bring a run to its end.

    Args:
        pool: of sessions of the run's owner.
        dialect: of the server.
        limits: of the driver.
        deadline: of the driver, by ``time.monotonic``; None for none.
        notify: gets a line an epoch.
        decider: decides which configurations the run has.
    """

    def __init__(
        self,
        pool: SessionPool,
        dialect: PostgreSQL,
        limits: Limits,
        deadline: float | None,
        notify: Callable[[str], None],
        decider: Decider,
    ) -> None:
        self._pool, self._dialect, self._decider = pool, dialect, decider
        self._limits, self._deadline, self._notify = limits, deadline, notify

    def make(
        self, control: Session, catalog: Catalog, run: StoredRun, setup: RunSetup
    ) -> tuple[str, str] | None:
        """Train what is left, and write the output tables.

        Args:
            control: session that holds the lock of the run.
            catalog: in that session.
            run: as it is stored.
            setup: of the run.

        Returns:
            Status and error of the only model of a run, where it was not trained to the end.
        """
        wait_for_orphans(control, run)
        board.revoke(control, run.run_id)
        settings = catalog.settings()
        cache_bytes = settings.cache_mb * 2**20 if setup.spec.use_caching else 0
        decoded = setup.decoded_bytes
        spec = structs.replace(
            setup.spec,
            scans_wait=decoded > cache_bytes,
            is_open=self._decider.is_open or setup.spec.search is not None,
        )
        setup = replace(setup, spec=spec)
        sql = self._dialect.training
        store = StateStore(states_of(run.tables, spec), len(setup.configurations), catalog, sql)
        store.load()
        state = load_state(control, store, run, setup)
        functions = functions_of(control, setup.possible)
        hosts = hosts_of_peers(
            control, self._dialect.hosts, spec, setup.packed, settings.peer_network
        )
        frameworks = ",".join(
            sorted({framework_in(one.text).name for one in setup.models.values()})
        )
        preparation = worker_task(
            run.run_id,
            spec.threads,
            spec.use_gpus,
            cache_bytes,
            settings,
            gpu_places(control, self._dialect.hosts, spec.use_gpus),
            keeps_errors=spec.strategy.drives_segments,
            functions=bool(functions),
            peers=bool(hosts),
            frameworks=frameworks,
        )
        fold_rows = fold_rows_of(control, spec.folds, setup.packed)
        place = RunResources(
            run_id=run.run_id,
            states=states_of(run.tables, spec),
            tables=setup.tables,
            tasks=TaskWriter(
                setup.tables,
                setup.targets,
                spec.seed,
                run.run_id,
                spec.folds,
                fold_rows,
                weights_of(control, spec.folds, setup.packed, setup.targets, fold_rows),
            ),
            pool=self._pool,
            store=store,
            dialect=self._dialect,
            threads=spec.threads,
            use_gpus=spec.use_gpus,
            guard_key=guard_key(run),
            cache_bytes=cache_bytes,
            frameworks=frameworks,
            preparation=preparation,
            hosts=hosts,
            rounds=ServedRounds(
                rounds_of(catalog, run.run_id) if spec.strategy.has_weight_server else ()
            ),
            moves_rows=setup.moves_rows,
        )
        manifest = {} if self._limits.any_version else run.manifest
        written = RunCatalog(catalog, run.run_id, manifest, functions)
        decider = self._train(place, setup, state, written, run)
        check_unchanged(control, run, setup.packed, setup.validation)
        only = self._write_results(catalog, setup, state, run, store)
        if setup.spec.search is not None:
            self._notify(last_line(control, run.run_id, setup, decider.shortfall(state)))
        return only

    def _train(
        self,
        place: RunResources,
        setup: RunSetup,
        state: RunState,
        written: RunCatalog,
        run: StoredRun,
    ) -> Decider:
        """Train what is left; returns who has decided."""
        catalog, limits, clock = place.store.catalog, self._limits, time.monotonic
        place.store.before_drop = written.flush
        executor = make_executor(place, setup.num_workers, setup.spec.strategy, self._notify)
        decider, made = self._decider, decisions_of(catalog, run.run_id)
        maker = replace(setup.maker, tick=lambda: catalog.session.tick())
        if setup.spec.search is not None:
            decider = decider_of(setup, setup.spec.search, made, maker, self._notify)
        requests = Requests(catalog, run.run_id, self._deadline, limits.max_seconds)
        first = [_until(one, run.active) for one in requests.first()]
        extended = [one.wanted for one in made if one.action == EXTEND]
        extended += [one.wanted for one in first]
        requests.search_ends = _search_ends(setup.spec.search, extended, run.active, clock())
        loop = Loop(
            state=state,
            executor=executor,
            storage=place.store,
            catalog=written,
            decisions=Decisions(
                decider,
                catalog,
                run.run_id,
                maker,
                setup.models,
                place.store,
                setup.spec.search.goal if setup.spec.search else None,
                functools.partial(self._admit, catalog, setup, written),
            ),
            requests=requests,
            report=self._report(setup, state, decider, run.active),
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
        return decider

    def _report(
        self, setup: RunSetup, state: RunState, decider: Decider, active: float
    ) -> RunNotices:
        """Lines of a search, or of another run."""
        clock = time.monotonic
        if setup.spec.search is None:
            return RunNotices(state, self._notify, clock, active)
        return SearchNotices(state, self._notify, clock, active, setup.spec.search, decider.outlook)

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
        table, partitions = str(setup.packed.relation.name), len(setup.packed.partitions)
        setup.spec.strategy.check_configurations(configurations, table, partitions)
        memory_workers(catalog.session, replace(setup, probes=(*setup.probes, *configurations)))
        check_events(catalog.session, configurations)

    def _write_results(
        self,
        catalog: Catalog,
        setup: RunSetup,
        state: RunState,
        run: StoredRun,
        store: StateStore,
    ) -> tuple[str, str] | None:
        if setup.is_single and state.ended:
            ((status, error),) = state.ended.values()
            results.write_none(catalog, self._dialect, run, error)
            return status, error
        configurations = tuple(track.configuration for track in state.tracks.values())
        setup = replace(setup, configurations=configurations)
        stopped = stopped_trials(catalog, setup, run.run_id, state)
        ends = ends_of(state)
        results.write(catalog, self._dialect, setup, run, store, state.ended, ends, stopped)
        return None


def stopped_trials(catalog: Catalog, setup: RunSetup, run_id: int, state: RunState) -> set[int]:
    """Trials of a search that have a model, and were to be trained further; none of another run."""
    if setup.spec.search is None:
        return set()
    trained = {
        key: track.verdict.stopped_epoch or track.budget
        for key, track in state.tracks.items()
        if track.ended is None
    }
    return short_trials(setup.spec.search, decisions_of(catalog, run_id), trained)


def decider_of(
    setup: RunSetup,
    search: SearchSpec,
    made: Sequence[Decision],
    maker: Maker,
    notify: Callable[[str], None],
) -> Decider:
    """The decider of a search, with the decisions of earlier drivers applied."""
    from cerebro_db.decide.search.decider import SearchDecider  # which needs NumPy
    from cerebro_db.decide.search.replay import Replay

    if search.replays:
        return Replay(search.replays)
    frameworks = {number: framework_in(one.text) for number, one in setup.models.items()}
    decider = SearchDecider(search, lambda row: maker.fault(row, setup.models), made, frameworks)
    return Guarded(decider, fault_of(made), functools.partial(_tell_fault, notify))


def _tell_fault(notify: Callable[[str], None], reason: str, error: Exception) -> None:
    """RunNotices why a search ends; the traceback goes to the log."""
    number = secrets.token_hex(4)
    trace = "".join(traceback.format_exception(error))
    sys.stderr.write(f"Cerebro-DB: unexpected error {number}: {trace}")
    sys.stderr.flush()
    notify(
        f"the search ends, as {reason}; the models that there are get their tables "
        f"(the log of its driver has the traceback, under the number {number})"
    )


def _until(request: Request, active: float) -> Request:
    """A request to go on, with when that ends, of a run that has taken some seconds already."""
    wanted = request.wanted
    if not isinstance(wanted, Extension) or wanted.max_seconds is None:
        return request
    until = active + wanted.max_seconds
    return structs.replace(request, wanted=structs.replace(wanted, until=until))


def _search_ends(
    search: SearchSpec | None, extended: Sequence[Wanted], active: float, now: float
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
        last = extended[-1]
        most = last.until if isinstance(last, Extension) else None
    return None if most is None else now + max(0.0, most - active)


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

    @classmethod
    def of(cls, request: ResumeRequest, search_path: CallerPath | None = None) -> Limits:
        """Limits of a call of ``cerebro_resume``; those of a run that is queued have no search path."""
        output = None if search_path is None else request.model_output_table
        known = request.max_seconds, request.num_workers, bool(request.any_version)
        return cls(*known, output, search_path)
