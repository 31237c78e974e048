"""Operations on runs from outside: cancel, pause, drop, vacuum."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from cerebro_db.core.statuses import DRIVEN, GOING_ON, QUEUED
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    ObjectInUse,
    RunInterrupted,
    WrongRunStatus,
)
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.jobs import Jobs
from cerebro_db.postgres.catalog.runs import RUN_TABLES, Catalog, StoredRun
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName
from cerebro_db.postgres.sessions.errors import SessionLost
from cerebro_db.postgres.sessions.locks import END_HOLDER, holder_of, transaction
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.postgres.tables.leftovers import is_in_use
from cerebro_db.relay.keepers import DRIVER_SECONDS
from cerebro_db.runs import results
from cerebro_db.runs.job_drivers import end_drivers

# Of these a whole run can be stopped.
_NOT_DRIVEN = (QUEUED, "interrupted")
_STOPPED = {"cancel": "cancelled", "pause": "paused"}
# A driver looks for requests once a second at least, and then stops its workers.
_ANSWER_SECONDS = 30.0


def cancel(pool: SessionPool, run_id: int | None, mst_key: int | None = None) -> str:
    """Stop a run, or one of its configurations; returns the status afterwards.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is not going on.
        InvalidArgument: it has no such configuration, or that has ended already.
    """
    return _ask(pool, run_id, "cancel", mst_key)


def pause(pool: SessionPool, run_id: int | None) -> str:
    """Stop a run such that its call returns; returns the status afterwards.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is not going on.
    """
    return _ask(pool, run_id, "pause", None)


def drop_run(session: Session, dialect: PostgreSQL, run_id: int | None) -> None:
    """Forget a run and remove its states; its output tables stay.

    Args:
        session: in a transaction.
        run_id: which run.

    Raises:
        UndefinedRun: the caller has no such run.
        WrongRunStatus: it is going on.
    """
    catalog = Catalog(session)
    run = _stopped_run(session, catalog, run_id)
    catalog.lock(*RUN_TABLES)
    if not results.drop_states(catalog, dialect, run.tables.states):
        raise ObjectInUse(
            f"run_id: got {run.run_id}, whose states another transaction reads",
            hint="such as that of pg_dump; try again when it is over",
        )
    jobs = Jobs(session)
    for job_id in jobs.of_run(run.run_id):
        jobs.log(job_id, "cancelled", run.run_id, f"run {run.run_id} was dropped")
    catalog.drop_run(run.run_id)


def vacuum(
    pool: SessionPool, dialect: PostgreSQL, older_than: float | None
) -> list[tuple[int | None, int]]:
    """Remove states that are left of runs which stopped long ago, and of runs that are gone.

    Args:
        older_than: seconds since a run stopped.

    Returns:
        run_id (None where there is no such run any more) and bytes of what was removed.
    """
    if older_than is None or not older_than >= 0:
        got = "NULL" if older_than is None else f"{older_than:g} seconds"
        raise InvalidArgument(f"older_than: got {got}; allowed: an interval that is not negative")
    removed: list[tuple[int | None, int]] = []
    with control_session(pool, None) as control:
        catalog = Catalog(control)
        for run_id in catalog.stopped_runs(older_than):
            with _each_for_itself(), transaction(control):
                run = _stopped_run(control, catalog, run_id)
                size = _bytes(catalog, dialect, run.tables.states or "")
                if results.drop_states(catalog, dialect, run.tables.states):
                    catalog.states_dropped(run.run_id)
                    removed.append((run.run_id, size))
        for name in catalog.orphaned_states():
            with _each_for_itself(), transaction(control):
                catalog.execute("SET LOCAL lock_timeout = '2s'")
                if is_in_use(control, name):
                    continue
                size = catalog.table_bytes(QualifiedName(STATES_SCHEMA, name))
                catalog.execute(f"DROP TABLE {QualifiedName(STATES_SCHEMA, name).sql}")
                removed.append((None, size))
    return removed


def _bytes(catalog: Catalog, dialect: PostgreSQL, name: str) -> int:
    """Bytes of the tables of states of a run."""
    tables = catalog.execute(*dialect.training.tables(name))
    return sum(catalog.table_bytes(QualifiedName(STATES_SCHEMA, table)) for table, _ in tables)


def _ask(pool: SessionPool, run_id: int | None, action: str, mst_key: int | None) -> str:
    with control_session(pool, None) as control:
        catalog = Catalog(control)
        run = catalog.run(run_id)
        if mst_key is None and run.status in _NOT_DRIVEN:
            return _stop_interrupted(control, catalog, run, action)
        _check_going_on(run, DRIVEN if mst_key is not None else (*DRIVEN, *_NOT_DRIVEN))
        if mst_key is not None:
            _check_configuration(catalog, run.run_id, mst_key)
        catalog.add_request(run.run_id, action, mst_key)
        if mst_key is None:
            return _stopped(catalog, run.run_id, action)
        return _answered(catalog, run.run_id, mst_key)


def _stopped(catalog: Catalog, run_id: int, action: str) -> str:
    """Status of a run once its driver has stopped it; the driver of a job that does not look up is ended by force."""
    jobs, began, is_forced = Jobs(catalog.session), time.monotonic(), False
    while (waited := time.monotonic() - began) < _ANSWER_SECONDS:
        run = catalog.run(run_id)
        if run.status == "interrupted" and is_forced:
            with suppress(ObjectInUse):  # the queue has it taken up again, by who hears the request
                return _stop_interrupted(catalog.session, catalog, run, action)
        elif run.status not in DRIVEN:
            return run.status
        elif waited >= DRIVER_SECONDS:
            is_forced = True
            end_drivers(jobs, jobs.of_run(run_id))
        catalog.session.tick()
        time.sleep(POLL_SECONDS)
    raise _unanswered(run_id)


def _answered(catalog: Catalog, run_id: int, mst_key: int) -> str:
    """Status of a configuration, or of its run, once its driver has stopped it."""
    end = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < end:
        status = catalog.run(run_id).status
        if status not in DRIVEN:
            return status
        status = _status_of(catalog, run_id, mst_key)
        if status in ("cancelled", "failed", "finished"):
            return status
        catalog.session.tick()
        time.sleep(POLL_SECONDS)
    raise _unanswered(run_id)


def _unanswered(run_id: int) -> WrongRunStatus:
    return WrongRunStatus(
        f"run {run_id}: its driver has not answered for {_ANSWER_SECONDS:g} seconds; what was "
        "asked for stays asked",
        hint="a driver that starts, or that writes the output tables, answers later or has ended then",
    )


def _stop_interrupted(session: Session, catalog: Catalog, run: StoredRun, action: str) -> str:
    """A driver that has lost its sessions may come back; it leaves alone what is stopped."""
    status, sql = _STOPPED[action], "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
    with transaction(session):
        if not session.run(sql, (run.lock_key,))[0][0]:
            holder = holder_of(session, run.lock_key)
            raise ObjectInUse(
                f"run_id: got {run.run_id}, which somebody takes up at this moment: {holder}",
                hint=END_HOLDER,
            )
        role = session.run("SELECT current_user::text")[0][0]
        before = (*GOING_ON, "interrupted")
        catalog.run_stopped(run.run_id, status, f"{status} by {role}", before)
        jobs = Jobs(session)
        for job_id in jobs.of_run(run.run_id):
            jobs.log(job_id, status, run.run_id, f"{status} by {role}")
    return catalog.run(run.run_id).status


@contextmanager
def _each_for_itself() -> Iterator[None]:
    """Keep an error that concerns one run, such as that somebody resumes it now, from the others."""
    try:
        yield
    except (SessionLost, RunInterrupted):
        raise
    except CerebroError:
        return


def _status_of(catalog: Catalog, run_id: int, mst_key: int) -> str:
    found = {row.mst_key: row.status for row in catalog.configurations(run_id)}
    return found[mst_key]


def _check_configuration(catalog: Catalog, run_id: int, mst_key: int) -> None:
    found = {row.mst_key: row.status for row in catalog.configurations(run_id)}
    going_on = [key for key, status in found.items() if status in ("waiting", "training")]
    if mst_key not in going_on:
        shown = ", ".join(map(str, going_on[:20]))
        raise InvalidArgument(
            f"mst_key: got {mst_key}"
            + (f", which is {found[mst_key]}" if mst_key in found else "")
            + f"; configurations of run {run_id} that are trained: {shown}",
            hint="cerebro.progress shows how far each is",
        )


def _check_going_on(run: StoredRun, allowed: Sequence[str]) -> None:
    if run.status not in allowed:
        raise WrongRunStatus(
            f"run_id: got {run.run_id}, which is {run.status}; "
            f"allowed: a run that is {', '.join(allowed[:-1])} or {allowed[-1]}"
        )


def _stopped_run(session: Session, catalog: Catalog, run_id: int | None) -> StoredRun:
    """A run without a driver, locked until the transaction ends."""
    run = catalog.run(run_id)
    if run.lock_key is not None:
        sql = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
        if not session.run(sql, (run.lock_key,))[0][0]:
            holder = holder_of(session, run.lock_key)
            raise WrongRunStatus(
                f"run_id: got {run.run_id}, which is going on, driven by {holder}; allowed: a run "
                "that has stopped",
                hint=f"SELECT cerebro.cerebro_cancel({run.run_id}) stops it; {END_HOLDER}",
            )
    return run
