"""A training run from request to output tables, and from where it stopped to its end."""

from __future__ import annotations

from collections.abc import Callable

from cerebro_db.database.catalog import Catalog
from cerebro_db.database.dialects import PostgreSQL
from cerebro_db.database.sessions import Session, SessionPool, Tick, no_tick
from cerebro_db.driver.control import control_session
from cerebro_db.driver.drive import Drive, Limits
from cerebro_db.driver.fit_request import MAX_WORKERS, FitRequest, check_range, check_seconds
from cerebro_db.driver.fit_setup import set_up
from cerebro_db.driver.registration import register
from cerebro_db.driver.reservation import reserved
from cerebro_db.errors import NotPermitted, WrongRunStatus

_RESUMABLE = ("interrupted", "cancelled", "paused", "failed")


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
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    with control_session(pool, request.search_path, tick) as control:
        models, setup = set_up(control, request, tick)
        with reserved(control, setup, tick):
            run_id = register(control, dialect, setup, models, tick)
            limits = Limits(max_seconds=request.max_seconds)
            drive = Drive(pool, dialect, run_id, limits, tick, notify)
            return drive.begin(control, setup)


def resume(
    pool: SessionPool,
    dialect: PostgreSQL,
    run_id: int | None,
    limits: Limits,
    tick: Tick = no_tick,
    notify: Callable[[str], None] = no_notice,
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
    with control_session(pool, None, tick) as control:
        number = _check_resumable(control, run_id, tick)
        return Drive(pool, dialect, number, limits, tick, notify).resume(control)


def _check_resumable(session: Session, run_id: int | None, tick: Tick) -> int:
    run = Catalog(session, tick).run(run_id)
    if not run.is_mine:
        # It would read tables that its owner named with the rights of someone else.
        raise NotPermitted(
            f"run_id: got {run.run_id}, a run of another role; allowed: to go on with your own"
        )
    if run.status not in _RESUMABLE:
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which is {run.status}; "
            f"allowed: a run that is {', '.join(_RESUMABLE[:-1])} or {_RESUMABLE[-1]}"
        )
    return run.run_id
