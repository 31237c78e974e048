"""Slots of workers: how many workers a call may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cerebro_db.errors import (
    CerebroError,
    ObjectInUse,
    TooManyConnections,
)
from cerebro_db.postgres.calls.host import (
    Notify,
)
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.sessions.locks import (
    END_HOLDER,
    holder_of,
    lock_key,
)
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.requests.declared import MAX_WORKERS

# Limits of a database and of a role are not for superusers, for whom some connections are kept. More are
# kept, on newer servers, for members of a role.
_FREE = """
SELECT least(pg_catalog.current_setting('max_connections')::integer
             - CASE WHEN r.rolsuper THEN 0 ELSE
               pg_catalog.current_setting('superuser_reserved_connections')::integer
               + COALESCE((SELECT s.setting::integer FROM pg_catalog.pg_settings s
                            WHERE s.name = 'reserved_connections'
                              AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles u
                                               WHERE u.rolname = 'pg_use_reserved_connections'
                                                 AND pg_catalog.pg_has_role(u.oid, 'USAGE'))), 0) END
             - (SELECT sum(s.numbackends) FROM pg_catalog.pg_stat_database s),
             CASE WHEN d.datconnlimit >= 0 AND NOT r.rolsuper THEN d.datconnlimit
               - (SELECT s.numbackends FROM pg_catalog.pg_stat_database s WHERE s.datid = d.oid) END,
             CASE WHEN r.rolconnlimit >= 0 AND NOT r.rolsuper THEN r.rolconnlimit
               - (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.usesysid = r.oid) END
       )::integer
  FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
 WHERE d.datname = pg_catalog.current_database() AND r.rolname = current_user
"""


@contextmanager
def slots(
    control: Session,
    wanted: int,
    notify: Notify,
    fitting: int = MAX_WORKERS,
    ready: int = 0,
) -> Iterator[int]:
    """Reserve worker slots, which nobody else has meanwhile, and give their number.

    Args:
        control: a session; it holds the slots, which end with it.
        wanted: so many at most.
        notify: gets notices of fewer workers.
        fitting: what memory is enough for.
        ready: how many of them have their connections already.

    Raises:
        TooManyConnections: there is no connection for a single worker.
        ObjectInUse: other calls of this role have all workers that it may use.
    """
    by_memory = min(wanted, fitting)
    free = max(0, control.run(_FREE)[0][0]) + ready
    if not free:
        raise TooManyConnections(
            "got no free connection for a worker; allowed: at least one (max_connections, or a "
            "CONNECTION LIMIT of the role or the database)"
        )
    most = Catalog(control).settings().max_workers
    of_role = _slots(control, most)
    keys = _taken(control, of_role, min(by_memory, free))
    try:
        if not keys:
            raise ObjectInUse(
                f"got {wanted} workers beside those of other calls of this role; allowed: {most} "
                "together, the setting max_workers; the first is held by "
                f"{holder_of(control, of_role[0])}",
                hint=END_HOLDER,
            )
        if len(keys) < wanted:
            notify(_shortage(len(keys), wanted, by_memory, free, most))
        yield len(keys)
    finally:
        with suppress(CerebroError):
            if not control.busy and not control.closed:
                control.run_through(
                    f"SELECT {_UNLOCK} FROM pg_catalog.unnest(%s::bigint[]) AS k", (keys,)
                )


_UNLOCK = "pg_catalog.pg_advisory_unlock(k)"
# No more are tried than are needed: a LIMIT ends the scan.
_TAKE = """
SELECT k FROM pg_catalog.unnest(%s::bigint[]) AS k
 WHERE pg_catalog.pg_try_advisory_lock(k) LIMIT %s
"""


def _slots(control: Session, most: int) -> list[int]:
    """The locks of the slots that the role has."""
    role = control.run("SELECT cerebro._role()")[0][0]
    return [lock_key(f"worker {number} of role {role}") for number in range(most)]


def _taken(control: Session, slots: list[int], wanted: int) -> list[int]:
    """The locks of as many of the slots as are wanted and free."""
    return [key for (key,) in control.run(_TAKE, (slots, wanted))]


def _shortage(got: int, wanted: int, by_memory: int, free: int, most: int) -> str:
    """Reason for fewer workers; their number does not show in the results."""
    if got == by_memory:
        why = "memory of the server is enough for no more"
    elif got == free:
        why = f"{free} connections are free"
    else:
        why = f"all calls of a role may use {most} together, the setting max_workers"
    return f"{got} workers instead of {wanted}: {why}"
