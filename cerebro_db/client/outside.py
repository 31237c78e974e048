"""Configurations of a search that come from outside: added, and waited for."""

from __future__ import annotations

import time

from cerebro_db.core.statuses import CANCELLED, FAILED, FINISHED, GOING_ON, STOPPED
from cerebro_db.errors import InvalidArgument, WrongRunStatus
from cerebro_db.postgres.sessions.connections import Connections

_SECONDS = 0.25


def add(
    connections: Connections,
    run_id: int,
    model_id: int,
    compile_params: str,
    fit_params: str,
    num_iterations: int | None,
) -> int:
    """Add a configuration to a search; returns its mst_key."""
    values = (run_id, model_id, compile_params, fit_params, num_iterations)
    return int(connections.run(_ADD, values)[0][0])


_ADD = """
SELECT (cerebro.cerebro_add_configs(%s, ARRAY[%s::integer], ARRAY[%s::text], ARRAY[%s::text], %s::integer))[1]
"""


def objectives(
    connections: Connections, run_id: int, mst_key: int, timeout: float | None
) -> tuple[float, ...]:
    """The objectives of a configuration, when it is trained to its epochs or stopped; none where it has failed.

    Raises:
        InvalidArgument: the search has no such configuration.
        WrongRunStatus: the search goes on no more, and the configuration has not come to its end.
        TimeoutError: so many seconds are over.
    """
    end = None if timeout is None else time.monotonic() + timeout
    while (found := _objectives(connections, run_id, mst_key)) is None:
        if end is not None and time.monotonic() >= end:
            raise TimeoutError(
                f"configuration {mst_key} of run {run_id} still goes on after {timeout:g} seconds"
            )
        time.sleep(_SECONDS)
    return found


def _objectives(connections: Connections, run_id: int, mst_key: int) -> tuple[float, ...] | None:
    """The objectives that are there; None as long as the configuration is trained."""
    rows = connections.run(_TRIAL, (run_id, mst_key))
    if not rows:
        raise InvalidArgument(
            f"mst_key: got {mst_key}; allowed: a configuration of a search of yours, which run {run_id} does not have",
            hint="run.add returns it; cerebro.trials shows them",
        )
    ((of_run, status, is_measured, values),) = rows
    if status in (FAILED, CANCELLED):
        return ()
    if of_run == FINISHED or is_measured or (of_run in GOING_ON and status == STOPPED):
        return tuple(values or ())
    if of_run not in GOING_ON:
        raise WrongRunStatus(
            f"run {run_id} is {of_run}; allowed: a search that goes on, or is finished",
            hint=f"SELECT cerebro.cerebro_resume({run_id}) goes on with it",
        )
    return None


_TRIAL = """
SELECT r.status, t.status, coalesce(t.epoch, 0) >= t.budget, t.objectives
  FROM cerebro.trials t JOIN cerebro.runs r ON r.run_id = t.run_id WHERE t.run_id = %s AND t.mst_key = %s
"""
