"""Entries of the functions that begin, go on with, stop and drop runs."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import structs

from cerebro_db.relay.machine import cores
from cerebro_db.requests import fitting as requests
from cerebro_db.runs import lifecycle
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import drive_on, fit_multiple
from cerebro_db.runs.driver import resume as resume_run
from cerebro_db.runs.setup import TrainRequest
from cerebro_db.server.caller import refuse_read_only
from cerebro_db.server.entry import entry, entry_of, hinted
from cerebro_db.server.host import Host

R = TypeVar("R", bound=requests.RunRequest)


def _fit(plpy: Any, gd: dict[str, Any], request: TrainRequest) -> int:
    """Train a grid, or one configuration."""
    host = Host.apart(plpy, gd)
    request = placed(host, request)
    if request.wait is False:
        from cerebro_db.server.jobs import submitted_run  # which needs NumPy

        return submitted_run(host, request, request.priority)

    def registered(run_id: int) -> None:
        plpy.go_on_by("fitting.go_on", run_id, request.max_seconds, None, False)

    return fit_multiple(host.pool, host.dialect, request, host.notice, registered=registered)


def placed(host: Host, request: R) -> R:
    """A request for a run with where it is made from."""
    return structs.replace(request, search_path=host.search_path, cores=cores())


fit = entry_of(requests.FitRequest)(_fit)
fit_one = entry_of(requests.FitOneRequest)(_fit)


@entry_of(requests.ResumeRequest)
def resume(plpy: Any, gd: dict[str, Any], request: requests.ResumeRequest) -> int:
    """Go on with a run that stopped."""
    host = Host.apart(plpy, gd)
    if request.wait is False:
        from cerebro_db.server.jobs import submitted_resume

        return submitted_resume(host, request)
    limits = Limits.of(request, host.search_path)

    def registered(run_id: int) -> None:
        plpy.go_on_by(
            "fitting.go_on", run_id, limits.max_seconds, limits.num_workers, limits.any_version
        )

    return resume_run(
        host.pool, host.dialect, request.run_id, limits, host.notice, registered=registered
    )


@entry
@hinted("cerebro_resume")
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


@entry_of(requests.CancelRequest)
def cancel(plpy: Any, gd: dict[str, Any], request: requests.CancelRequest) -> str:
    """Stop a run, or one of its configurations."""
    host = writing_host(plpy, gd)
    return lifecycle.cancel(host.pool, request.run_id, request.mst_key)


@entry_of(requests.PauseRequest)
def pause(plpy: Any, gd: dict[str, Any], request: requests.PauseRequest) -> str:
    """Stop a run such that its call returns."""
    host = writing_host(plpy, gd)
    return lifecycle.pause(host.pool, request.run_id)


@entry_of(requests.DropRunRequest)
def drop_run(plpy: Any, gd: dict[str, Any], request: requests.DropRunRequest) -> None:
    """Forget a run and remove its states."""
    host = Host.of(plpy, gd)
    with host.callers() as session:
        lifecycle.drop_run(session, host.dialect, request.run_id)


@entry
@hinted("cerebro_vacuum")
def vacuum(plpy: Any, gd: dict[str, Any], older_than: float | None) -> list[tuple[int | None, int]]:
    """Remove the states of runs that stopped long ago."""
    host = Host.apart(plpy, gd)
    return lifecycle.vacuum(host.pool, host.dialect, older_than)


def writing_host(plpy: Any, gd: dict[str, Any]) -> Host:
    """The host of a call that writes a request to a driver, whatever its transaction has done."""
    host = Host.of(plpy, gd)
    refuse_read_only(host.read_only)
    return host
