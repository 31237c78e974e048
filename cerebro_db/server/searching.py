"""Entries of the functions that begin, steer and look at searches."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.grids.brackets import schedule_of
from cerebro_db.models.best import best_of
from cerebro_db.models.hyperband import schedule_rows, write_schedule
from cerebro_db.models.studies import importance_of
from cerebro_db.requests import searching as requests
from cerebro_db.runs.searches import requests as search_requests
from cerebro_db.runs.searches import search as runs
from cerebro_db.runs.searches.extending import extend as extend_search
from cerebro_db.runs.searches.replay import replay as replay_run
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of
from cerebro_db.server.fitting import placed, writing_host
from cerebro_db.server.host import Host
from cerebro_db.server.jobs import submitted_run


@entry_of(requests.SearchRequest)
def search(plpy: Any, gd: dict[str, Any], request: requests.SearchRequest) -> int:
    """Search a space."""
    host = Host.apart(plpy, gd)
    request = placed(host, request)
    if request.wait is False:
        return submitted_run(host, request, request.priority)

    def registered(run_id: int) -> None:
        # The end of max_seconds is a decision of the search.
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return runs.search(host.pool, host.dialect, request, host.notice, registered=registered)


@entry_of(requests.BracketsRequest)
def hyperband_schedule(
    plpy: Any, gd: dict[str, Any], request: requests.BracketsRequest
) -> list[tuple[int, int, int, int]]:
    """The brackets of Hyperband, a row for each rung."""
    return schedule_rows(schedule_of(request.r, request.eta, request.skip_last))


@entry_of(requests.BracketsTableRequest)
def hyperband_table(plpy: Any, gd: dict[str, Any], request: requests.BracketsTableRequest) -> None:
    """Write the brackets of Hyperband into a table."""
    with caller_session(plpy, writes=True) as session:
        write_schedule(session, request)


@entry_of(requests.BestRequest)
def best(plpy: Any, gd: dict[str, Any], request: requests.BestRequest) -> str:
    """Make a table of configurations from the best trials; returns its name."""
    with caller_session(plpy, writes=True) as session:
        return str(best_of(session, request).write(session))


@entry_of(requests.ImportanceRequest)
def importance(
    plpy: Any, gd: dict[str, Any], request: requests.ImportanceRequest
) -> list[tuple[str, float, int]]:
    """Importance of each parameter, the most important one first."""
    with caller_session(plpy) as session:
        found = importance_of(session, request)
    return [(one.parameter, one.value, one.trials) for one in found]


@entry_of(requests.AddConfigsRequest)
def add_configs(plpy: Any, gd: dict[str, Any], request: requests.AddConfigsRequest) -> list[int]:
    """Have a search try configurations of one's own; returns their keys."""
    return search_requests.add(writing_host(plpy, gd).pool, request)


@entry_of(requests.StopConfigRequest)
def stop_config(plpy: Any, gd: dict[str, Any], request: requests.StopConfigRequest) -> str:
    """Have a search give up a trial; returns its status."""
    return search_requests.stop(writing_host(plpy, gd).pool, request)


@entry_of(requests.CloneRequest)
def clone(plpy: Any, gd: dict[str, Any], request: requests.CloneRequest) -> int:
    """Have a search try a copy of a trial, with changed parameters; returns its key."""
    return search_requests.clone(writing_host(plpy, gd).pool, request)


@entry_of(requests.NarrowRequest)
def narrow(plpy: Any, gd: dict[str, Any], request: requests.NarrowRequest) -> None:
    """Have a search propose from another space."""
    search_requests.narrow(writing_host(plpy, gd).pool, request)


@entry_of(requests.FinishRequest)
def finish(plpy: Any, gd: dict[str, Any], request: requests.FinishRequest) -> None:
    """Have a search end with what it has."""
    search_requests.finish(writing_host(plpy, gd).pool, request)


@entry_of(requests.ExtendRequest)
def extend(plpy: Any, gd: dict[str, Any], request: requests.ExtendRequest) -> int:
    """Go on with a search that has ended, with a larger budget."""
    host = Host.apart(plpy, gd)

    def registered(run_id: int) -> None:
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return extend_search(host.pool, host.dialect, request, host.notice, registered=registered)


@entry_of(requests.ReplayRequest)
def replay(plpy: Any, gd: dict[str, Any], request: requests.ReplayRequest) -> int:
    """Make a run again by what it has recorded."""
    host = Host.apart(plpy, gd)
    request = placed(host, request)

    def registered(run_id: int) -> None:
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return replay_run(host.pool, host.dialect, request, host.notice, registered=registered)
