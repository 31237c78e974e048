"""The commands that steer searches, extend and replay them, and show their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, print_json, show, tell, to_stderr
from cerebro_db.cli.requests import command_of
from cerebro_db.cli.training import cancellable, client_of, end
from cerebro_db.requests.searching import BestRequest, ImportanceRequest, ReplayRequest

RunId = Annotated[int, typer.Argument(help="A search, as cerebro.searches shows it.")]
MstKey = Annotated[int, typer.Argument(help="A trial, as cerebro.trials shows it.")]
NumIterations = Annotated[
    int | None, typer.Option(help="Epochs of each; default: as the method gives.")
]
_MORE = "More than the search had, where it has such a limit."


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    declared = (
        command_of(ReplayRequest, replay),
        command_of(BestRequest, best),
        command_of(ImportanceRequest, importance),
    )
    for command in (add_configs, stop_config, clone, narrow, extend, *declared):
        app.command()(command)


def add_configs(
    run_id: RunId,
    model_id: Annotated[list[int], typer.Option(help="Of the search; may be repeated.")],
    compile_params: Annotated[list[str], typer.Option(help="May be repeated.")],
    fit_params: Annotated[list[str], typer.Option(help="May be repeated.")],
    dsn: Dsn = "",
    num_iterations: NumIterations = None,
    as_json: AsJson = False,
) -> None:
    """Adds every combination of models and parameters to a search, like cerebro_add_configs."""
    from cerebro_db.configs.grids.model_selection import combine
    from cerebro_db.runs.searches import requests as search_requests

    rows = combine(model_id, compile_params, fit_params)
    texts = [(one.model_id, one.compile_params, one.fit_params) for one in rows]
    keys = search_requests.add(client_of(dsn).pool, run_id, texts, num_iterations)
    line = f"run {run_id}: trials {', '.join(map(str, keys))} begin"
    tell(as_json, line, run_id=run_id, mst_keys=keys)


def stop_config(run_id: RunId, mst_key: MstKey, dsn: Dsn = "", as_json: AsJson = False) -> None:
    """Stops a trial of a search, like cerebro_stop_config."""
    from cerebro_db.runs.searches import requests as search_requests

    status = search_requests.stop(client_of(dsn).pool, run_id, mst_key)
    line = f"run {run_id}: trial {mst_key} is {status}"
    tell(as_json, line, run_id=run_id, mst_key=mst_key, status=status)


def clone(
    run_id: RunId,
    mst_key: MstKey,
    changes: Annotated[str, typer.Argument(help="Such as 'lr=0.003, batch_size=64'.")] = "",
    dsn: Dsn = "",
    num_iterations: NumIterations = None,
    as_json: AsJson = False,
) -> None:
    """Begins a trial with the state of another one, like cerebro_clone."""
    from cerebro_db.postgres.calls.host import control_session
    from cerebro_db.runs.searches import requests as search_requests
    from cerebro_db.runs.searches.requests import changed_trial

    pool = client_of(dsn).pool
    with control_session(pool, None) as session:
        texts = changed_trial(session, run_id, mst_key, changes)
    key = search_requests.clone(pool, run_id, mst_key, *texts, num_iterations)
    tell(as_json, f"run {run_id}: trial {key} begins", run_id=run_id, mst_key=key)


def narrow(
    run_id: RunId,
    dsn: Dsn = "",
    model_id: Annotated[
        list[int] | None, typer.Option(help="Of the search; may be repeated. Default: as before.")
    ] = None,
    compile_params_grid: Annotated[str | None, typer.Option(help="Default: as before.")] = None,
    fit_params_grid: Annotated[str | None, typer.Option(help="Default: as before.")] = None,
    as_json: AsJson = False,
) -> None:
    """Has a search propose from another space from now on, like cerebro_narrow."""
    from cerebro_db.postgres.calls.host import control_session
    from cerebro_db.runs.searches import requests as search_requests
    from cerebro_db.runs.searches.requests import narrowed_space

    pool = client_of(dsn).pool
    with control_session(pool, None) as session:
        space = narrowed_space(
            session, run_id, model_id or None, compile_params_grid, fit_params_grid
        )
    search_requests.narrow(pool, run_id, space)
    tell(as_json, f"run {run_id}: proposes from another space from now on", run_id=run_id)


def extend(
    run_id: RunId,
    params: Annotated[
        str | None, typer.Argument(help="Such as 'num_configs=10' or 'R=27'.")
    ] = None,
    dsn: Dsn = "",
    max_seconds: Annotated[float | None, typer.Option(help="The search ends then.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help=_MORE)] = None,
    max_configs: Annotated[int | None, typer.Option(help=_MORE)] = None,
    as_json: AsJson = False,
) -> None:
    """Goes on with a search that has ended, like cerebro_extend, with its driver in this process."""
    from cerebro_db.runs.searches.extending import extend as extend_search

    client = client_of(dsn)
    with cancellable():
        extend_search(
            client.pool, client.dialect, run_id, params, max_epochs, max_configs, max_seconds,
            to_stderr if as_json else show,
        )  # fmt: skip
    end(client, run_id, as_json)


def replay(make_request: Callable[..., ReplayRequest], dsn: str, as_json: bool) -> None:
    """Makes a run again by what it has recorded, like cerebro_replay, with its driver in this process."""
    from cerebro_db.runs.searches.replay import replay as replay_run

    client = client_of(dsn)
    request = make_request(search_path=client.search_path, cores=client.cores)
    with cancellable():
        line = to_stderr if as_json else show
        repeated = replay_run(client.pool, client.dialect, request, line)
    end(client, repeated, as_json)


def best(make_request: Callable[[], BestRequest], dsn: str, as_json: bool) -> None:
    """Makes a table of configurations from the best trials, like cerebro_best."""
    from cerebro_db.models.best import best_of
    from cerebro_db.postgres.calls.host import control_session
    from cerebro_db.postgres.sessions.locks import transaction

    client, request = client_of(dsn), make_request()
    with control_session(client.pool, client.search_path) as session:
        found = best_of(session, request)
        with transaction(session):
            name = found.write(session)
    line = f"{name}: the best trials of run {request.run_id}"
    tell(as_json, line, run_id=request.run_id, table=str(name))


def importance(make_request: Callable[[], ImportanceRequest], dsn: str, as_json: bool) -> None:
    """Tells which parameters mattered, like cerebro_importance, the most important one first."""
    from cerebro_db.models.studies import importance_of
    from cerebro_db.postgres.calls.host import control_session

    client = client_of(dsn)
    with control_session(client.pool, client.search_path) as session:
        found = importance_of(session, make_request())
    if as_json:
        print_json([vars(one) for one in found])
        return
    for one in found:
        show(f"{one.value:.4f}  {one.parameter}  ({one.trials} trials)")
