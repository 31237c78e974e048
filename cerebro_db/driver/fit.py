"""A training run from request to output tables, and from where it stopped to its end."""

from __future__ import annotations

from cerebro_db.database.dialects.choice import PostgreSQL
from cerebro_db.database.sessions import SessionPool, Tick, no_tick
from cerebro_db.driver.control import Notify, no_notice
from cerebro_db.driver.drive import Drive, Limits
from cerebro_db.driver.fit_request import MAX_WORKERS, FitRequest, check_range, check_seconds


def fit_multiple(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: FitRequest,
    tick: Tick = no_tick,
    notify: Notify = no_notice,
) -> int:
    """Train every configuration of a model selection table; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to train.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    limits = Limits(max_seconds=request.max_seconds)
    return Drive(pool, dialect, limits, tick, notify).begin(request)


def resume(
    pool: SessionPool,
    dialect: PostgreSQL,
    run_id: int | None,
    limits: Limits,
    tick: Tick = no_tick,
    notify: Notify = no_notice,
) -> int:
    """Go on with a run that stopped; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count, the one that began the run.
        dialect: of the server.
        run_id: which run.
        limits: of this driver.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is finished, or still going on.
    """
    check_seconds(limits.max_seconds)
    check_range("num_workers", limits.num_workers, 1, MAX_WORKERS)
    return Drive(pool, dialect, limits, tick, notify).resume(run_id)
