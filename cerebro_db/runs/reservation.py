"""Locks on output tables and on packed tables, so that no other call makes or replaces them while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cerebro_db.errors import CerebroError, ObjectInUse
from cerebro_db.postgres.sessions.locks import END_HOLDER, holder_of, try_lock, unlock
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.outputs import check, cleared_output, output_key, table_key
from cerebro_db.runs.setup import RunSetup

ROLE = "model_output_table"


@contextmanager
def reserved(session: Session, setup: RunSetup, notify: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the output tables, so that no other run makes the same ones.

    Args:
        session: of the driver; it holds the lock, which ends with it.
        setup: of the run.
        notify: gets notices of what else was dropped.

    Raises:
        DuplicateTable: another run has just made them, or what is there does not give way.
        ObjectInUse: another run makes them, or someone uses those that are replaced.
        DependentObjects: something depends on what is replaced.
    """
    key = output_key(setup.output)
    if not try_lock(session, key):
        raise ObjectInUse(
            f"{ROLE}: got {setup.output}, which another run is making at this moment: "
            f"{holder_of(session, key)}",
            hint=f"choose another name, or {END_HOLDER}",
        )
    try:
        _keep_inputs(session, setup)
        if setup.outputs is not None:
            check(session, setup.outputs)
        else:  # again, now that no other run can make them
            cleared_output(session, setup.output_text, ROLE, notify)
        yield
    finally:
        with suppress(CerebroError):
            if not session.busy and not session.closed:
                unlock(session, key)


def _keep_inputs(session: Session, setup: RunSetup) -> None:
    """Lock the packed tables of a run against calls that replace or drop them, until the session ends.

    Raises:
        ObjectInUse: a transaction is about to do so.
    """
    for table in (setup.packed, setup.validation):
        if table is None:
            continue
        key = table_key(table.relation.oid)
        if not session.run("SELECT pg_catalog.pg_try_advisory_lock_shared(%s)", (key,))[0][0]:
            raise ObjectInUse(
                f"source_table, validation_table: {table.relation.name} is replaced or dropped at "
                f"this moment: {holder_of(session, key)}",
                hint=f"try again when that is over; {END_HOLDER}",
            )
