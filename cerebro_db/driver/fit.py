"""A training run from request to output tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from cerebro_db.database.catalog import Catalog, ConfigurationRow, RunRow
from cerebro_db.database.dialects import PostgreSQL
from cerebro_db.database.sessions import Session, SessionPool, StatementFailed, Tick, no_tick
from cerebro_db.driver import results
from cerebro_db.driver.control import control_session
from cerebro_db.driver.crew import recover
from cerebro_db.driver.fit_request import FitRequest
from cerebro_db.driver.fit_setup import Configuration, RunSetup, set_up
from cerebro_db.driver.reservation import reserved
from cerebro_db.driver.run import Run
from cerebro_db.driver.workers import Worker, give_back, take_workers
from cerebro_db.errors import CerebroError, InvalidArgument

DEFAULT_CACHE_MB = 1024


def no_notice(message: str) -> None:
    """For callers that want no progress."""


def fit_multiple(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: FitRequest,
    tick: Tick = no_tick,
    notify: Callable[[str], None] = no_notice,
) -> int:
    """Train every configuration of a model selection table; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to train.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run failed.
    """
    with control_session(pool, request.search_path, tick) as control:
        setup = set_up(control, request, tick)
        with reserved(control, setup, tick):
            return _Job(pool, dialect, setup, control, tick, notify).run()


class _Job:
    """One run, from its registration on."""

    def __init__(
        self,
        pool: SessionPool,
        dialect: PostgreSQL,
        setup: RunSetup,
        control: Session,
        tick: Tick,
        notify: Callable[[str], None],
    ) -> None:
        self._pool, self._dialect, self._setup = pool, dialect, setup
        self._control, self._tick, self._notify = control, tick, notify
        self._catalog = Catalog(control, tick)
        self._cache_bytes = self._cache_limit()

    def run(self) -> int:
        setup = self._setup
        run_id = self._catalog.new_run(_run_row(setup), [_row(c) for c in setup.configurations])
        try:
            self._catalog.execute(self._dialect.training.create_states(run_id))
            if setup.previous is not None:
                results.start_from_previous(self._catalog, setup, run_id)
            errors = self._train(run_id)
            results.write(self._catalog, setup, run_id, errors)
        except BaseException as error:
            self._abandon(run_id, error)
            raise
        everything_failed = len(errors) == len(setup.configurations)
        status = "failed" if everything_failed else "finished"
        text = "every configuration failed" if everything_failed else None
        self._catalog.run_ended(run_id, status, text)
        return run_id

    def _train(self, run_id: int) -> dict[int, str]:
        setup, workers = self._setup, self._take_workers()
        try:
            errors = Run(
                setup, run_id, self._catalog, self._dialect, workers, self._cache_bytes,
                self._tick, self._notify,
            ).run()  # fmt: skip
        except BaseException:
            for worker in workers:
                worker.session.cancel()
                worker.session.close()
            raise
        give_back(self._pool, workers, self._tick)
        return errors

    def _take_workers(self) -> list[Worker]:
        setup = self._setup
        use_gpus = bool(setup.request.use_gpus)
        return take_workers(self._pool, setup.num_workers, setup.threads, use_gpus, self._tick)

    def _cache_limit(self) -> int:
        if not self._setup.request.use_caching:
            return 0
        text = self._catalog.settings().get("cache_mb", str(DEFAULT_CACHE_MB))
        if not text.isdigit():
            raise InvalidArgument(f"setting cache_mb: got {text!r}; allowed: whole megabytes")
        return int(text) * 2**20

    def _abandon(self, run_id: int, error: BaseException) -> None:
        """Tell the catalog how the run ended, in a fresh session if need be."""
        cancelled = not isinstance(error, CerebroError) or _is_cancel(error)
        status = "cancelled" if cancelled else "failed"
        self._control.cancel()
        recover(self._control)
        with suppress(CerebroError):
            if self._control.closed:
                with control_session(self._pool, None) as control:
                    _record_end(control, run_id, status, error)
            else:
                _record_end(self._control, run_id, status, error)


def _record_end(control: Session, run_id: int, status: str, error: BaseException) -> None:
    catalog = Catalog(control, no_tick)
    catalog.run_ended(run_id, status, str(error))
    results.drop_states(catalog, run_id)


def _is_cancel(error: BaseException) -> bool:
    return isinstance(error, StatementFailed) and error.sqlstate == "57014"


def _run_row(setup: RunSetup) -> RunRow:
    request = setup.request
    return RunRow(
        name=request.name,
        description=request.description,
        source_table=str(setup.packed.relation.name),
        validation_table=str(setup.validation.relation.name) if setup.validation else None,
        model_output_table=str(setup.output),
        model_selection_table=str(setup.selection.name),
        num_iterations=request.num_iterations or 1,
        metrics_compute_frequency=request.frequency,
        warm_start=bool(request.warm_start),
        seed=request.seed or 0,
        num_partitions=len(setup.packed.partitions),
        num_workers=setup.num_workers,
        threads=setup.threads,
    )


def _row(configuration: Configuration) -> ConfigurationRow:
    return ConfigurationRow(
        mst_key=configuration.mst_key,
        model_id=configuration.architecture.model_id,
        compile_params=configuration.compile_text,
        fit_params=configuration.fit_text,
        hop_seconds=configuration.hop_seconds,
        initial_seed=configuration.initial_seed,
        jit=configuration.jit,
        steps_per_call=configuration.steps_per_call,
        goal=configuration.goal,
    )
