"""The commands whose driver is this process, so that the run outlives a restart of the server."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_db.cli.commands import INTERRUPTED, client_of, command_of, session_of
from cerebro_db.cli.output import show_result, to_stderr
from cerebro_db.errors import ConfigurationFailed, RunCancelled
from cerebro_db.requests.fitting import FitRequest, ResumeRequest, RunRequest
from cerebro_db.requests.searching import ExtendRequest, ReplayRequest, SearchRequest

if TYPE_CHECKING:
    from cerebro_db.postgres.calls.host import Client

Live = Annotated[bool, typer.Option(help="Show what goes on, on a terminal.")]
_OF_SEARCH = {
    "model_id_list": "model_id", "automl_method": "method", "automl_params": "params",
    "use_caching": "caching",
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    _add(app, FitRequest, fit, options={"use_caching": "caching"})
    _add(app, SearchRequest, search, options=_OF_SEARCH, optional=["model_selection_table"], leaves=["object_table"])  # fmt: skip
    _add(app, ResumeRequest, resume)
    _add(app, ExtendRequest, extend, places=["automl_params"])
    _add(app, ReplayRequest, replay)


def _add(app: typer.Typer, kind: Any, drive: Callable[..., int], **how: Any) -> None:
    """Add a command that drives a run.

    Args:
        kind: of its request.
        drive: gets the client, the request, and the callbacks ``notify`` and ``registered``; returns the run_id.
        how: more about the arguments.
    """

    def run(make_request: Callable[..., Any], dsn: str, live: bool, as_json: bool) -> None:
        from cerebro_db.cli.watching import driven

        client = client_of(dsn)
        found = {"search_path": client.search_path, "cores": client.cores}
        request = make_request(**found if issubclass(kind, RunRequest) else {})
        with cancellable(), driven(partial(session_of, dsn), live, as_json) as (registered, line):
            run_id = drive(client, request, notify=line, registered=registered)
        _end(client, run_id, as_json)

    more = {"live": (Live, True)}
    app.command(drive.__name__)(command_of(kind, run, help=drive.__doc__, more=more, **how))


def fit(client: Client, request: FitRequest, **callbacks: Any) -> int:
    """Trains like cerebro_fit_multiple, with its driver in this process."""
    from cerebro_db.runs.driver import fit_multiple

    return fit_multiple(client.pool, client.dialect, request, **callbacks)


def search(client: Client, request: SearchRequest, **callbacks: Any) -> int:
    """Searches like cerebro_search, with its driver in this process."""
    from cerebro_db.runs.searches.search import search as run_search

    return run_search(client.pool, client.dialect, request, **callbacks)


def resume(client: Client, request: ResumeRequest, **callbacks: Any) -> int:
    """Goes on with a run like cerebro_resume, with its driver in this process."""
    from cerebro_db.runs.attempt import Limits
    from cerebro_db.runs.driver import resume as resume_run

    limits = Limits.of(request, client.search_path)
    return resume_run(client.pool, client.dialect, request.run_id, limits, **callbacks)


def extend(client: Client, request: ExtendRequest, **callbacks: Any) -> int:
    """Goes on with a search that has ended, like cerebro_extend, with its driver in this process."""
    from cerebro_db.runs.searches.extending import extend as extend_search

    return extend_search(client.pool, client.dialect, request, **callbacks)


def replay(client: Client, request: ReplayRequest, **callbacks: Any) -> int:
    """Makes a run again by what it has recorded, like cerebro_replay, with its driver in this process."""
    from cerebro_db.runs.searches.replay import replay as replay_run

    return replay_run(client.pool, client.dialect, request, **callbacks)


def _end(client: Client, run_id: int, as_json: bool = False) -> None:
    """Print the status of a run; a run without any trained configuration is an error."""
    status = client.status(run_id)
    show_result(as_json, f"run {run_id}: {status}", run_id=run_id, status=status)
    if status == "failed":
        raise ConfigurationFailed(
            f"run {run_id} failed: no configuration was trained to the end",
            hint=f"SELECT mst_key, error FROM cerebro.leaderboard WHERE run_id = {run_id} tells why",
        )


@contextmanager
def cancellable() -> Iterator[None]:
    """Ctrl-C cancels the run, and so does a service manager's request to end."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:  # before there was a run
        to_stderr("cerebro: cancelled")
        raise typer.Exit(INTERRUPTED) from None
    except RunCancelled as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        to_stderr(f"cerebro: {error.message}")
        to_stderr(f"HINT: {error.hint}, and so does cerebro resume")
        raise typer.Exit(INTERRUPTED) from None


def _interrupt(number: int, frame: FrameType | None) -> Any:
    raise KeyboardInterrupt
