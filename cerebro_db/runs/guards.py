"""Guards of a run against a second driver, by its lock, status and version; its status after an error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import cerebro_db
from cerebro_db.errors import (
    CerebroError,
    NotPermitted,
    ObjectInUse,
    RunInterrupted,
    WrongRunStatus,
)
from cerebro_db.postgres.catalog.runs import Driving, StoredRun
from cerebro_db.postgres.sessions.locks import END_HOLDER, holder_of, try_lock, unlock
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.runs.requests import Stopped

_CANCELLED, _ENDING = ("57014",), ("57P01", "57P02")
_RESUMABLE = ("interrupted", "cancelled", "paused", "failed")
# Workers of a driver that is gone notice that within seconds, or when their hop is done.
_ORPHANS_SECONDS = 120.0


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


def check_version(run: StoredRun) -> None:
    """Refuse a run that began with another version of the package."""
    if run.spec.cerebro_version != cerebro_db.__version__:
        raise WrongRunStatus(
            f"run {run.run_id} began with version {run.spec.cerebro_version} of Cerebro-DB; this "
            f"server has {cerebro_db.__version__}, whose results may not be the same",
            hint="any_version := true goes on all the same",
        )


@contextmanager
def locked(session: Session, run_id: int, key: int) -> Iterator[None]:
    """Hold the lock of a run, so that no other driver can have it."""
    if not try_lock(session, key):
        raise driven_by_another(session, run_id, key)
    try:
        yield
    finally:
        session.reset()
        with suppress(CerebroError):
            if not session.closed:
                unlock(session, key)


def driven_by_another(session: Session, run_id: int, key: int) -> ObjectInUse:
    """Error of a run whose lock another session holds."""
    return ObjectInUse(
        f"run {run_id} is driven by another session at this moment: its lock is held by "
        f"{holder_of(session, key)}",
        hint=END_HOLDER,
    )


def wait_for_orphans(session: Session, run: StoredRun) -> None:
    """Wait until no worker of an earlier driver can commit a hop any more."""
    key, end = guard_key(run), time.monotonic() + _ORPHANS_SECONDS
    while not try_lock(session, key):
        if time.monotonic() > end:
            raise WrongRunStatus(
                f"run {run.run_id}: a worker of its earlier driver is still at work, "
                f"{holder_of(session, key)}",
                hint=END_HOLDER,
            )
        session.tick()
        time.sleep(POLL_SECONDS)
    unlock(session, key)


def guard_key(run: StoredRun) -> int:
    """Key of the lock that workers share: the odd one after the run's own."""
    return run.lock_key + 1


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


def reason_of(error: BaseException) -> str:
    """Reason that is written down for a run that an error has stopped."""
    if _ends(error):
        return "its session was ended"
    if isinstance(error, KeyboardInterrupt):
        return "cancelled by its caller"
    text = error.message if isinstance(error, CerebroError) else str(error) or type(error).__name__
    return f"cancelled: {text}" if status_after(error) == "cancelled" else text
