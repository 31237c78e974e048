"""The commands that drive a run from the client's side, where it outlives a restart of the server."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_db.cli.output import tell, to_stderr
from cerebro_db.cli.requests import command_of
from cerebro_db.errors import ConfigurationFailed, RunCancelled
from cerebro_db.requests.fitting import FitRequest, ResumeRequest

if TYPE_CHECKING:
    from cerebro_db.postgres.calls.host import Client
    from cerebro_db.postgres.sessions.session import Session

# As a shell tells of a program that Ctrl-C ended.
INTERRUPTED = 130

NumWorkers = Annotated[int | None, typer.Option(help="Sessions that train side by side.")]
Live = Annotated[bool, typer.Option(help="Show what goes on, on a terminal.")]
Replace = Annotated[bool, typer.Option("--replace", help="Tables of an earlier call give way.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    live = {"live": (Live, True)}
    app.command()(command_of(FitRequest, fit, options={"use_caching": "caching"}, more=live))
    app.command()(command_of(ResumeRequest, resume, more=live))


def fit(make_request: Callable[..., FitRequest], dsn: str, live: bool, as_json: bool) -> None:
    """Trains like cerebro_fit_multiple, with its driver in this process."""
    from cerebro_db.cli.watching import driven
    from cerebro_db.runs.driver import fit_multiple

    client = client_of(dsn)
    request = make_request(search_path=client.search_path, cores=client.cores)
    look = partial(session_of, dsn)
    with cancellable(), driven(look, live, as_json) as (registered, line):
        run_id = fit_multiple(
            client.pool, client.dialect, request, notify=line, registered=registered
        )
    end(client, run_id, as_json)


def resume(make_request: Callable[..., ResumeRequest], dsn: str, live: bool, as_json: bool) -> None:
    """Goes on with a run like cerebro_resume, with its driver in this process."""
    from cerebro_db.cli.watching import driven
    from cerebro_db.runs.attempt import Limits
    from cerebro_db.runs.driver import resume as resume_run

    client, request = client_of(dsn), make_request()
    limits = Limits.of(request, client.search_path)
    look = partial(session_of, dsn)
    with cancellable(), driven(look, live, as_json) as (registered, line):
        run_id = resume_run(
            client.pool, client.dialect, request.run_id, limits, notify=line, registered=registered
        )
    end(client, run_id, as_json)


def client_of(dsn: str) -> Client:
    """A client of a database."""
    from cerebro_db.postgres.calls.host import Client

    return Client.of(dsn)


def session_of(dsn: str) -> Session:
    """A session on a database."""
    return client_of(dsn).pool.take(1)[0]


def end(client: Client, run_id: int, as_json: bool = False) -> None:
    """Print the status of a run; a run without any trained configuration is an error."""
    status = client.status(run_id)
    tell(as_json, f"run {run_id}: {status}", run_id=run_id, status=status)
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
