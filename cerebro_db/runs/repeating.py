"""Runs whose workers did not wait for each other, made again in the order that was recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from cerebro_db.decide.strategies import STRATEGIES, listed, parse_strategy
from cerebro_db.errors import InvalidArgument, WrongRunStatus
from cerebro_db.postgres.catalog import Catalog, StoredRun
from cerebro_db.postgres.control import control_session
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql.training import PostgreSQLTraining
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import new_output
from cerebro_db.postgres.records import decisions_of
from cerebro_db.postgres.sessions import Session, SessionPool
from cerebro_db.runs.driver import FIXED, Drive
from cerebro_db.runs.request import FitRequest, Limits
from cerebro_db.runs.setup import RunSetup
from cerebro_db.runs.stored import load_setup
from cerebro_db.runs.strategy_checks import check_enough

if TYPE_CHECKING:
    from cerebro_db.runs.searches.again import ReplayRequest


def repeat(
    pool: SessionPool,
    dialect: PostgreSQL,
    run: StoredRun,
    request: ReplayRequest,
    notify: Callable[[str], None],
    registered: Callable[[int], None],
) -> int:
    """Make a run again, with the same weights; returns the run_id.

    Args:
        pool: of sessions of the run's owner.
        dialect: of the server.
        run: that has recorded the order of its updates.
        request: where to.
        notify: gets a line an epoch.
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        InvalidArgument: it has recorded none, or went on from another run, or was changed while it went on.
        WrongRunStatus: it is not finished.
    """
    with control_session(pool, None) as control:
        _check(control, run)
    row = run.row

    def set_up(
        session: Session, sql: PostgreSQLTraining, common: FitRequest
    ) -> tuple[QualifiedName, RunSetup]:
        before = load_setup(session, dialect, run, has_states=False)
        check_enough(before.spec.strategy, request.num_workers, before.packed)
        output = new_output(session, request.model_output_table, "model_output_table")
        setup = replace(
            before,
            output=output,
            output_text=str(request.model_output_table),
            replaces=False,
            replace_output=False,
            name=request.name,
            description=request.description,
            weights_of=run.run_id,
        )
        return output, setup.with_workers(request.num_workers or setup.num_workers)

    common = FitRequest(
        source_table=row.source_table,
        model_output_table=request.model_output_table,
        model_selection_table=None,
        num_iterations=row.num_iterations,
        num_workers=request.num_workers,
        strategy=row.schedule,
        strategy_params=row.strategy_params,
        name=request.name,
        description=request.description,
        search_path=request.search_path,
        cores=request.cores,
    )
    common.check()
    return Drive(pool, dialect, Limits(), notify, FIXED, registered).begin(common, set_up)


def _check(session: Session, run: StoredRun) -> None:
    """Refuse a run whose record does not tell everything."""
    row, what = run.row, f"run_id: got {run.run_id}"
    chosen = parse_strategy(row.schedule, row.strategy_params)
    if not chosen.asynchrony.is_any:
        servers = [one.name for one in STRATEGIES.values() if one.has_weight_server]
        raise InvalidArgument(
            f"{what}, a run with strategy := {row.schedule!r}, of which no order is recorded; allowed: a search, "
            f"or a run whose workers did not wait for each other, with {listed(servers)}",
            hint="the same call gives the same results: cerebro.runs shows what was asked for",
        )
    if run.status != "finished":
        raise WrongRunStatus(f"{what}, which is {run.status}; allowed: a run that is finished")
    if row.warm_start:
        raise InvalidArgument(
            f"{what}, which went on from the models of an earlier run, in whose place its own are; allowed: a "
            "run without warm_start"
        )
    if decisions_of(Catalog(session), run.run_id):
        raise InvalidArgument(
            f"{what}, whose configurations were changed while it went on; allowed: a run that was left alone"
        )
