"""Entries of the functions that begin, go on with, stop and drop runs."""

from __future__ import annotations

from typing import Any

from cerebro_db.models.one_model import OneModel
from cerebro_db.relay.machine import cores
from cerebro_db.runs import lifecycle
from cerebro_db.runs.driver import drive_on, fit_multiple
from cerebro_db.runs.driver import resume as resume_run
from cerebro_db.runs.request import FitRequest, Limits
from cerebro_db.server.caller import refuse_read_only
from cerebro_db.server.declarations import CHANGES, Scheduled
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host

_FIT = Scheduled(
    "model_output_table",
    reads=("source_table", "validation_table", "model_selection_table", "model_arch_table"),
    steps="fit",
)


@entry_of("cerebro_fit_multiple", _FIT)
def fit(
    plpy: Any,
    gd: dict[str, Any],
    arguments: dict[str, Any],
    wait: bool | None = True,
    priority: int | None = 0,
) -> int:
    """Train a grid; the arguments are those of the SQL function, by name."""
    host = Host.apart(plpy, gd)
    if wait is False:
        from cerebro_db.server.jobs import submitted_run  # which needs NumPy

        return submitted_run(host, "cerebro_fit_multiple", arguments, priority)
    request = FitRequest(**arguments, search_path=host.search_path, cores=cores())
    return _fitted(host, request)


@entry_of("cerebro_fit", _FIT)
def fit_one(
    plpy: Any,
    gd: dict[str, Any],
    configuration: dict[str, Any],
    arguments: dict[str, Any],
    wait: bool | None = True,
    priority: int | None = 0,
) -> int:
    """Train one configuration; the arguments are those of the SQL function, by name."""
    host = Host.apart(plpy, gd)
    if wait is False:
        from cerebro_db.server.jobs import submitted_run

        given = {
            name: value for name, value in arguments.items() if name != "model_selection_table"
        }
        return submitted_run(host, "cerebro_fit", {**given, **configuration}, priority)
    one = OneModel(**configuration)
    request = FitRequest(**arguments, one=one, search_path=host.search_path, cores=cores())
    return _fitted(host, request)


def _fitted(host: Host, request: FitRequest) -> int:
    def registered(run_id: int) -> None:
        host.plpy.go_on_by("fitting.go_on", run_id, request.max_seconds, None, False)

    return fit_multiple(host.pool, host.dialect, request, host.notice, registered=registered)


@entry_of("cerebro_resume", CHANGES)
def resume(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int | None,
    max_seconds: float | None,
    num_workers: int | None,
    any_version: bool | None,
    model_output_table: str | None,
    wait: bool | None = True,
    priority: int | None = 0,
) -> int:
    """Go on with a run that stopped."""
    host = Host.apart(plpy, gd)
    if wait is False:
        from cerebro_db.server.jobs import submitted_resume

        given = {
            "max_seconds": max_seconds,
            "num_workers": num_workers,
            "any_version": any_version,
            "model_output_table": model_output_table,
        }
        return submitted_resume(host, run_id, given, priority)
    limits = Limits(
        max_seconds, num_workers, bool(any_version), model_output_table, host.search_path
    )

    def registered(run_id: int) -> None:
        plpy.go_on_by("fitting.go_on", run_id, max_seconds, num_workers, bool(any_version))

    return resume_run(host.pool, host.dialect, run_id, limits, host.notice, registered=registered)


@entry_of("cerebro_resume", CHANGES)
def go_on(
    plpy: Any,
    gd: dict[str, Any],
    run_id: int,
    max_seconds: float | None,
    num_workers: int | None,
    any_version: bool,
) -> int:
    """Go on with a run whose driver has ended in the middle of its call."""
    host = Host.apart(plpy, gd)
    limits = Limits(max_seconds, num_workers, any_version)
    host.notice(f"run {run_id} lost its driver, and goes on with another one")
    return drive_on(host.pool, host.dialect, run_id, limits, host.notice)


@entry_of("cerebro_cancel", CHANGES)
def cancel(plpy: Any, gd: dict[str, Any], run_id: int | None, mst_key: int | None) -> str:
    """Stop a run, or one of its configurations."""
    host = _asking(plpy, gd)
    return lifecycle.cancel(host.pool, run_id, mst_key)


@entry_of("cerebro_pause", CHANGES)
def pause(plpy: Any, gd: dict[str, Any], run_id: int | None) -> str:
    """Stop a run such that its call returns."""
    host = _asking(plpy, gd)
    return lifecycle.pause(host.pool, run_id)


@entry_of("cerebro_drop_run", CHANGES)
def drop_run(plpy: Any, gd: dict[str, Any], run_id: int | None) -> None:
    """Forget a run and remove its states."""
    host = Host.of(plpy, gd)
    with host.callers() as session:
        lifecycle.drop_run(session, host.dialect, run_id)


@entry_of("cerebro_vacuum", CHANGES)
def vacuum(plpy: Any, gd: dict[str, Any], older_than: float | None) -> list[tuple[int | None, int]]:
    """Remove the states of runs that stopped long ago."""
    host = Host.apart(plpy, gd)
    return lifecycle.vacuum(host.pool, host.dialect, older_than)


def _asking(plpy: Any, gd: dict[str, Any]) -> Host:
    """The host of a call that asks a driver for something, whatever its transaction has done."""
    host = Host.of(plpy, gd)
    refuse_read_only(host.read_only)
    return host
