"""The commands that write files and hand runs to other tools: models, reports, Prometheus, MLflow, TensorBoard, W&B, Optuna."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_db.cli.commands import Dsn, RunId, client_of, session_of
from cerebro_db.cli.output import AsJson, show_result, show_text
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    from cerebro_db.client import Run


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (export, optuna_study, report, metrics, mlflow, tensorboard, wandb):
        app.command()(command)
    app.command("import")(import_model)


def export(
    model: Annotated[
        str, typer.Argument(help="A table of models, or a registered one: model:name@alias.")
    ],
    output: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str, typer.Option(help="keras, onnx, npz, safetensors or pt2.")] = "keras",
    mst_key: Annotated[int | None, typer.Option(help="Which model of the table.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes a trained model into a file."""
    from cerebro_db.models import export as driver
    from cerebro_db.requests.models import ExportRequest

    client = client_of(dsn)
    request = ExportRequest(model, mst_key, format)
    parts = driver.export(client.pool, request, client.search_path)
    try:
        with output.open("wb") as file:
            file.writelines(parts)
    except OSError as error:
        raise InvalidArgument(f"--output: got {output}; {error.strerror}") from None
    size = sum(map(len, parts))
    show_result(as_json, f"{output}: {size} bytes", file=str(output), bytes=size)


def import_model(
    file: Annotated[Path, typer.Argument(help="A .keras or .pt2 file.")],
    model_arch_table: Annotated[str, typer.Argument(help="The table of architectures.")],
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Puts the architecture and the weights of a .keras or .pt2 file into a table of architectures."""
    from cerebro_db.models import loading as model_loading
    from cerebro_db.postgres.calls.host import control_session
    from cerebro_db.postgres.sessions.locks import transaction
    from cerebro_db.requests.models import FileRequest

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"got the file {file}; {error.strerror}") from None
    client = client_of(dsn)
    request = FileRequest(model_arch_table, data, name, description)
    with control_session(client.pool, client.search_path) as session, transaction(session):
        model_id = model_loading.load_model_file(session, client.pool, request)
    line = f"model_id {model_id} in {model_arch_table}"
    show_result(as_json, line, model_id=model_id, model_arch_table=model_arch_table)


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
    show_result(as_json, line, run_id=run_id, file=str(file), trials=count)


def report(
    run_ids: Annotated[
        list[int] | None, typer.Argument(help="One run, or several to compare.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(
        "report.html"
    ),
    model: Annotated[
        str | None,
        typer.Option(help="A registered model in the place of runs, such as visits@champion."),
    ] = None,
    dsn: Dsn = "",
    curves: Annotated[
        bool,
        typer.Option(help="Ask the winner about the validation table: confusion matrix and ROC."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Writes a report of runs, or of a registered model: one file of HTML that needs no network."""
    from cerebro_db.watching.report import html, model_html

    if bool(run_ids) == (model is not None):
        got = "nothing" if model is None else f"{model} and runs"
        raise InvalidArgument(f"report: got {got}; allowed: RUN ..., or --model NAME")
    session = session_of(dsn)
    text = html(session, run_ids or [], curves) if model is None else model_html(session, model)
    _write(output, text)
    size = len(text.encode())
    show_result(as_json, f"{output}: {size} bytes", file=str(output), bytes=size)


def metrics(
    dsn: Dsn = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file for node_exporter's textfile collector."),
    ] = None,
) -> None:
    """Tells how runs stand, in the text format of Prometheus."""
    from cerebro_db.watching.prometheus import exposition

    text = exposition(session_of(dsn))
    if output is None:
        show_text(text)
    else:
        _write(output, text)


def mlflow(
    run_id: RunId,
    tracking_uri: Annotated[
        str | None, typer.Option(help="Default: that of MLflow's environment variables.")
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="Default: cerebro.")] = None,
    model: Annotated[bool, typer.Option(help="Log the winner as a model, with Keras.")] = True,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes a run into MLflow: a parent run, and a child for each configuration."""
    parent = _run(dsn, run_id).to_mlflow(tracking_uri, experiment, model)
    show_result(as_json, f"MLflow run {parent}", run_id=run_id, mlflow_run_id=parent)


def tensorboard(
    run_id: RunId,
    logdir: Annotated[Path, typer.Option(help="The folder that tensorboard --logdir names.")],
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes the learning curves of a run as event files for TensorBoard."""
    folder = str(_run(dsn, run_id).to_tensorboard(logdir))
    show_result(as_json, folder, run_id=run_id, folder=folder)


def wandb(
    run_id: RunId,
    directory: Annotated[Path, typer.Option(help="In which the folder wandb is made.")] = Path(),
    project: Annotated[str | None, typer.Option(help="Default: cerebro.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes offline runs for Weights & Biases, which wandb sync sends: one for each configuration."""
    folder = str(_run(dsn, run_id).to_wandb(directory, project))
    show_result(as_json, folder, run_id=run_id, folder=folder)


def _run(dsn: str, run_id: int) -> Run:
    from cerebro_db.client import connect

    return connect(dsn).run(run_id)


def _write(path: Path, text: str) -> None:
    """A file that is whole whenever somebody reads it."""
    try:
        number, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except OSError as error:
        raise InvalidArgument(f"--output: got {path}; {error.strerror}") from None
