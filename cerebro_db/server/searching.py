"""Entries of the functions that begin, steer and look at searches."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.grids.model_selection import combine
from cerebro_db.core.search_texts import schedule_of
from cerebro_db.models.best import (
    BestRequest,
    ScheduleRequest,
    best_of,
    schedule_rows,
    write_schedule,
)
from cerebro_db.models.studies import ImportanceRequest, importance_of
from cerebro_db.postgres.control import control_session
from cerebro_db.relay.machine import cores
from cerebro_db.runs.searches import requests as search_requests
from cerebro_db.runs.searches import search as runs
from cerebro_db.runs.searches.arguments import SearchArguments
from cerebro_db.runs.searches.extending import extend as extend_search
from cerebro_db.runs.searches.replay import ReplayRequest
from cerebro_db.runs.searches.replay import replay as replay_run
from cerebro_db.runs.searches.requests import changed_trial, narrowed_space
from cerebro_db.server.caller import caller_session, refuse_read_only
from cerebro_db.server.declarations import CHANGES, READS, Scheduled
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host
from cerebro_db.server.jobs import submitted_run

_SEARCH = Scheduled(
    "model_output_table",
    reads=("source_table", "validation_table", "model_arch_table"),
    steps="search",
)


@entry_of("cerebro_search", _SEARCH)
def search(
    plpy: Any,
    gd: dict[str, Any],
    arguments: dict[str, Any],
    wait: bool | None = True,
    priority: int | None = 0,
) -> int:
    """Search a space; the arguments are those of the SQL function, by name."""
    host = Host.apart(plpy, gd)
    if wait is False:
        return submitted_run(host, "cerebro_search", arguments, priority)
    asked = SearchArguments(**arguments, search_path=host.search_path, cores=cores())
    request = asked.request()

    def registered(run_id: int) -> None:
        # The end of max_seconds is a decision of the search.
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return runs.search(host.pool, host.dialect, request, host.notice, registered=registered)


@entry_of("cerebro_hyperband_schedule", READS)
def hyperband_schedule(
    plpy: Any, gd: dict[str, Any], r: int | None, eta: int | None, skip_last: int | None
) -> list[tuple[int, int, int, int]]:
    """The brackets of Hyperband, a row for each rung."""
    return schedule_rows(schedule_of(r, eta, skip_last))


@entry_of("cerebro_hyperband_schedule", Scheduled("schedule_table"))
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
        write_schedule(session, request)


@entry_of("cerebro_best", Scheduled("model_selection_table"))
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
        return str(best_of(session, request).write(session))


@entry_of("cerebro_importance", READS)
def importance(
    plpy: Any, gd: dict[str, Any], run_id: int | None, objective: str | None, epoch: int | None
) -> list[tuple[str, float, int]]:
    """Importance of each parameter, the most important one first."""
    request = ImportanceRequest(run_id, objective, epoch)
    with caller_session(plpy) as session:
        found = importance_of(session, request)
    return [(one.parameter, one.value, one.trials) for one in found]


@entry_of("cerebro_add_configs", CHANGES)
def add_configs(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    model_id_list: list[int | None] | None,
    compile_params_list: list[str | None] | None,
    fit_params_list: list[str | None] | None,
    num_iterations: int | None,
) -> list[int]:
    """Have a search try configurations of one's own; returns their keys."""
    host = _asking(plpy, gd)
    rows = combine(model_id_list, compile_params_list, fit_params_list)
    texts = [(one.model_id, one.compile_params, one.fit_params) for one in rows]
    return search_requests.add(host.pool, run_id, texts, num_iterations)


@entry_of("cerebro_stop_config", CHANGES)
def stop_config(plpy: Any, gd: dict[str, Any], run_id: int | None, mst_key: int | None) -> str:
    """Have a search give up a trial; returns its status."""
    host = _asking(plpy, gd)
    return search_requests.stop(host.pool, run_id, mst_key)


@entry_of("cerebro_clone", CHANGES)
def clone(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    mst_key: int | None,
    changes: str | None,
    num_iterations: int | None,
) -> int:
    """Have a search try a copy of a trial, with changed parameters; returns its key."""
    host = _asking(plpy, gd)
    with control_session(host.pool, None) as session:
        texts = changed_trial(session, run_id, mst_key, changes)
    return search_requests.clone(host.pool, run_id, mst_key, *texts, num_iterations)


@entry_of("cerebro_narrow", CHANGES)
def narrow(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    model_id_list: list[int | None] | None,
    compile_params_grid: str | None,
    fit_params_grid: str | None,
) -> None:
    """Have a search propose from another space."""
    host = _asking(plpy, gd)
    with control_session(host.pool, None) as session:
        found = narrowed_space(session, run_id, model_id_list, compile_params_grid, fit_params_grid)
    search_requests.narrow(host.pool, run_id, found)


@entry_of("cerebro_extend", CHANGES)
def extend(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    automl_params: str | None,
    max_seconds: float | None,
    max_epochs: int | None,
    max_configs: int | None,
) -> int:
    """Go on with a search that has ended, with a larger budget."""
    host = Host.apart(plpy, gd)

    def registered(run_id: int) -> None:
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return extend_search(
        host.pool,
        host.dialect,
        run_id,
        automl_params,
        max_epochs,
        max_configs,
        max_seconds,
        host.notice,
        registered=registered,
    )


@entry_of("cerebro_replay", Scheduled("model_output_table"))
def replay(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    model_output_table: str | None,
    name: str | None,
    description: str | None,
    num_workers: int | None,
) -> int:
    """Make a search again by its decisions."""
    host = Host.apart(plpy, gd)
    request = ReplayRequest(
        run_id, model_output_table, name, description, num_workers, host.search_path, cores()
    )

    def registered(run_id: int) -> None:
        plpy.go_on_by("fitting.go_on", run_id, None, None, False)

    return replay_run(host.pool, host.dialect, request, host.notice, registered=registered)


def _asking(plpy: Any, gd: dict[str, Any]) -> Host:
    """The host of a call that asks a driver for something, whatever its transaction has done."""
    host = Host.of(plpy, gd)
    refuse_read_only(host.read_only)
    return host
