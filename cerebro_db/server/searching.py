"""What the functions that begin, steer and look at searches call."""

from __future__ import annotations

from typing import Any

from cerebro_db.core.search_texts import schedule_of
from cerebro_db.models.best import BestRequest, write_best
from cerebro_db.models.hyperband import ScheduleRequest, schedule_rows, write_schedule
from cerebro_db.models.studies import ImportanceRequest, importance_of
from cerebro_db.relay.machine import cores
from cerebro_db.runs import search as runs
from cerebro_db.runs.search_arguments import SearchArguments
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of("cerebro_search")
def search(plpy: Any, gd: dict[str, Any], arguments: dict[str, Any]) -> int:
    """Search a space; the arguments are those of the SQL function, by name."""
    host = Host.apart(plpy, gd)
    asked = SearchArguments(**arguments, search_path=host.search_path, cores=cores())
    request = asked.request()

    def registered(run_id: int) -> None:
        # The end of max_seconds is a decision of the search.
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return runs.search(
        host.pool, host.dialect, request, host.tick, host.notice, registered=registered
    )


@entry_of("cerebro_hyperband_schedule")
def hyperband_schedule(
    plpy: Any, gd: dict[str, Any], r: int | None, eta: int | None, skip_last: int | None
) -> list[tuple[int, int, int, int]]:
    """The brackets of Hyperband, a row for each rung."""
    return schedule_rows(schedule_of(r, eta, skip_last))


@entry_of("cerebro_hyperband_schedule")
def hyperband_table(
    plpy: Any,
    gd: dict[str, Any],
    schedule_table: str | None,
    r: int | None,
    eta: int | None,
    skip_last: int | None,
    replace: bool | None,
) -> None:
    """The same as a table."""
    request = ScheduleRequest(schedule_table, r, eta, skip_last, replace)
    with caller_session(plpy, writes=True) as session:
        write_schedule(session, request, plpy.listen)


@entry_of("cerebro_best")
def best(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    n: int | None,
    model_selection_table: str | None,
    replace: bool | None,
) -> str:
    """Make a table of configurations from the best trials; returns its name."""
    request = BestRequest(run_id, n, model_selection_table, replace)
    with caller_session(plpy, writes=True) as session:
        return str(write_best(session, request, plpy.listen))


@entry_of("cerebro_importance")
def importance(
    plpy: Any, gd: dict[str, Any], run_id: int | None, objective: str | None, epoch: int | None
) -> list[tuple[str, float, int]]:
    """How important each parameter is, the most important one first."""
    request = ImportanceRequest(run_id, objective, epoch)
    with caller_session(plpy) as session:
        found = importance_of(session, request, plpy.listen)
    return [(one.parameter, one.value, one.trials) for one in found]
