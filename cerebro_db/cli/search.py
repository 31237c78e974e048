"""The commands that search from the client's side, and hand searches to Optuna."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, tell
from cerebro_db.cli.requests import command_of
from cerebro_db.cli.training import (
    Live,
    cancellable,
    client_of,
    end,
    session_of,
)
from cerebro_db.requests.searching import SearchRequest


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    options = {
        "model_id_list": "model_id", "automl_method": "method",
        "automl_params": "params", "use_caching": "caching",
    }  # fmt: skip
    more = {"live": (Live, True)}
    app.command()(
        command_of(
            SearchRequest,
            search,
            options=options,
            optional=["model_selection_table"],
            leaves=["object_table"],
            more=more,
        )
    )
    app.command()(optuna_study)


def search(make_request: Callable[..., SearchRequest], dsn: str, live: bool, as_json: bool) -> None:
    """Searches like cerebro_search, with its driver in this process."""
    from cerebro_db.cli.watching import driven
    from cerebro_db.runs.searches.search import search as run_search

    client = client_of(dsn)
    request = make_request(search_path=client.search_path, cores=client.cores)
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
    from cerebro_db.postgres.calls.host import control_session

    client = client_of(dsn)
    with control_session(client.pool, client.search_path) as session:
        count = write_study(session, run_id, file)
    line = f"{file}: {count} trials of run {run_id}"
    tell(as_json, line, run_id=run_id, file=str(file), trials=count)
