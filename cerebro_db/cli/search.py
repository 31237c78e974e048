"""The commands that search from the client's side, and hand searches to Optuna."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, tell
from cerebro_db.cli.training import (
    Live,
    NumWorkers,
    Replace,
    cancellable,
    client_of,
    end,
    session_of,
)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(search)
    app.command()(optuna_study)


def search(
    source_table: Annotated[str, typer.Argument(help="The packed table.")],
    model_output_table: Annotated[str, typer.Argument(help="The table to make.")],
    model_arch_table: Annotated[str, typer.Argument(help="The architectures.")],
    compile_params_grid: Annotated[str, typer.Argument(help="Compile parameters to search.")],
    fit_params_grid: Annotated[str, typer.Argument(help="Fit parameters to search.")],
    model_id: Annotated[list[int], typer.Option(help="A model of the table; may be repeated.")],
    dsn: Dsn = "",
    model_selection_table: Annotated[
        str | None, typer.Option(help="A table to make of the best configuration.")
    ] = None,
    method: Annotated[str, typer.Option(help="Such as hyperband, asha, tpe, bohb, pbt.")] = (
        "hyperband"
    ),
    params: Annotated[str | None, typer.Option(help="Of the method, such as 'R=9, eta=3'.")] = None,
    random_state: Annotated[
        int | None, typer.Option(help="Of what is drawn; default: the seed.")
    ] = None,
    validation_table: Annotated[str | None, typer.Option(help="A packed validation table.")] = None,
    metrics_compute_frequency: Annotated[
        int | None, typer.Option(help="Epochs between metrics; default: when they decide.")
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="Such as val_accuracy; default: the loss.")
    ] = None,
    early_stopping: Annotated[
        str | None, typer.Option(help="Such as 'patience=3' or 'median_after=5'.")
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="The search ends then.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Of all trials together.")] = None,
    max_configs: Annotated[int | None, typer.Option(help="Trials at most.")] = None,
    warm_start_run: Annotated[
        int | None, typer.Option(help="A search whose trials are learnt from.")
    ] = None,
    use_gpus: Annotated[bool, typer.Option("--use-gpus", help="Train on GPUs.")] = False,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    caching: Annotated[bool, typer.Option(help="Keep decoded partitions in memory.")] = True,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    num_workers: NumWorkers = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Trials at the same time, which results depend on.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option(help="Decide alike with any number of workers.")
    ] = True,
    durability: Annotated[str, typer.Option(help="hop or epoch.")] = "hop",
    schedule: Annotated[str, typer.Option(help="hopper or rotation.")] = "hopper",
    replace: Replace = False,
    live: Live = True,
    as_json: AsJson = False,
) -> None:
    """Searches like cerebro_search, with its driver in this process."""
    from cerebro_db.cli.watching import driven
    from cerebro_db.runs.searches.arguments import SearchArguments
    from cerebro_db.runs.searches.search import search as run_search

    client = client_of(dsn)
    request = SearchArguments(
        source_table,
        model_output_table,
        model_arch_table,
        model_selection_table,
        model_id,
        compile_params_grid,
        fit_params_grid,
        method,
        params,
        random_state,
        use_gpus=use_gpus,
        validation_table=validation_table,
        metrics_compute_frequency=metrics_compute_frequency,
        name=name,
        description=description,
        use_caching=caching,
        objective=objective,
        early_stopping=early_stopping,
        max_seconds=max_seconds,
        max_epochs=max_epochs,
        max_configs=max_configs,
        warm_start_run=warm_start_run,
        seed=seed,
        num_workers=num_workers,
        concurrency=concurrency,
        deterministic=deterministic,
        durability=durability,
        schedule=schedule,
        replace=replace,
        search_path=client.search_path,
        cores=client.cores,
    ).request()
    with cancellable(), driven(partial(session_of, dsn), live, as_json) as (registered, line):
        run_id = run_search(
            client.pool, client.dialect, request, notify=line, registered=registered
        )
    end(client, run_id, as_json)


def optuna_study(
    run_id: Annotated[int, typer.Argument(help="A search, as cerebro.searches shows it.")],
    file: Annotated[Path, typer.Argument(help="A .db file, of SQLite, or a .log file, a journal.")],
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes a search as a storage of Optuna, which optuna-dashboard opens."""
    from cerebro_db.models.studies import write_study
    from cerebro_db.postgres.control import control_session

    client = client_of(dsn)
    with control_session(client.pool, client.search_path) as session:
        count = write_study(session, run_id, file)
    line = f"{file}: {count} trials of run {run_id}"
    tell(as_json, line, run_id=run_id, file=str(file), trials=count)
