"""The commands that drive a run from the client's side, where it outlives a restart of the server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, tell, to_stderr
from cerebro_db.errors import ConfigurationFailed, RunCancelled

if TYPE_CHECKING:
    from cerebro_db.postgres.client import Client
    from cerebro_db.postgres.sessions import Session

# As a shell tells of a program that Ctrl-C ended.
INTERRUPTED = 130

NumWorkers = Annotated[int | None, typer.Option(help="Sessions that train side by side.")]
Live = Annotated[bool, typer.Option(help="Show what goes on, on a terminal.")]
Replace = Annotated[bool, typer.Option("--replace", help="Tables of an earlier call give way.")]
MaxSeconds = Annotated[float | None, typer.Option(help="The run is paused then.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (fit, resume):
        app.command()(command)


def fit(
    source_table: Annotated[str, typer.Argument(help="The packed table.")],
    model_output_table: Annotated[str, typer.Argument(help="The table to make.")],
    model_selection_table: Annotated[str, typer.Argument(help="The configurations.")],
    num_iterations: Annotated[int, typer.Argument(help="Epochs.")],
    dsn: Dsn = "",
    validation_table: Annotated[str | None, typer.Option(help="A packed validation table.")] = None,
    metrics_compute_frequency: Annotated[
        int | None, typer.Option(help="Epochs between metrics; default: the last one only.")
    ] = None,
    use_gpus: Annotated[bool, typer.Option("--use-gpus", help="Train on GPUs.")] = False,
    warm_start: Annotated[
        bool, typer.Option("--warm-start", help="Go on from the output table.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    caching: Annotated[bool, typer.Option(help="Keep decoded partitions in memory.")] = True,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    num_workers: NumWorkers = None,
    durability: Annotated[str, typer.Option(help="hop or epoch.")] = "hop",
    max_seconds: MaxSeconds = None,
    schedule: Annotated[str, typer.Option(help="hopper or rotation.")] = "hopper",
    strategy: Annotated[
        str | None, typer.Option(help="How hops are made; default: hopper.")
    ] = None,
    strategy_params: Annotated[str | None, typer.Option(help="Such as 'rounds=4'.")] = None,
    replace: Replace = False,
    deterministic: Annotated[
        bool | None, typer.Option(help="Refuse strategies whose results differ from call to call.")
    ] = None,
    live: Live = True,
    as_json: AsJson = False,
) -> None:
    """Trains like cerebro_fit_multiple, with its driver in this process."""
    from cerebro_db.cli.watching import driven
    from cerebro_db.runs.driver import fit_multiple
    from cerebro_db.runs.request import FitRequest

    client = client_of(dsn)
    request = FitRequest(
        source_table,
        model_output_table,
        model_selection_table,
        num_iterations,
        use_gpus=use_gpus,
        validation_table=validation_table,
        metrics_compute_frequency=metrics_compute_frequency,
        warm_start=warm_start,
        name=name,
        description=description,
        use_caching=caching,
        seed=seed,
        num_workers=num_workers,
        durability=durability,
        max_seconds=max_seconds,
        schedule=schedule,
        strategy=strategy,
        strategy_params=strategy_params,
        replace=replace,
        deterministic=deterministic,
        search_path=client.search_path,
        cores=client.cores,
    )
    look = partial(session_of, dsn)
    with cancellable(), driven(look, live, as_json) as (registered, line):
        run_id = fit_multiple(
            client.pool, client.dialect, request, notify=line, registered=registered
        )
    end(client, run_id, as_json)


def resume(
    run_id: Annotated[int, typer.Argument(help="As cerebro.runs shows it.")],
    dsn: Dsn = "",
    max_seconds: MaxSeconds = None,
    num_workers: NumWorkers = None,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Also where results may not be the same.")
    ] = False,
    model_output_table: Annotated[
        str | None, typer.Option(help="Another name for the table to make.")
    ] = None,
    live: Live = True,
    as_json: AsJson = False,
) -> None:
    """Goes on with a run like cerebro_resume, with its driver in this process."""
    from cerebro_db.cli.watching import driven
    from cerebro_db.runs.driver import resume as resume_run
    from cerebro_db.runs.request import Limits

    client = client_of(dsn)
    limits = Limits(max_seconds, num_workers, any_version, model_output_table, client.search_path)
    look = partial(session_of, dsn)
    with cancellable(), driven(look, live, as_json) as (registered, line):
        resume_run(client.pool, client.dialect, run_id, limits, notify=line, registered=registered)
    end(client, run_id, as_json)


def client_of(dsn: str) -> Client:
    """A client of a database."""
    from cerebro_db.postgres.client import Client

    return Client.of(dsn)


def session_of(dsn: str) -> Session:
    """A session on a database."""
    return client_of(dsn).pool.take(1)[0]


def end(client: Client, run_id: int, as_json: bool = False) -> None:
    """Tell what has become of a run; it is an error where no configuration was trained to the end."""
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
