"""The commands that hand runs to people and other tools: reports, Prometheus, MLflow, TensorBoard, W&B."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, show_text, tell
from cerebro_db.cli.runs import RunId
from cerebro_db.cli.training import session_of
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    from cerebro_db.client import Run


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (report, metrics, mlflow, tensorboard, wandb):
        app.command()(command)


def report(
    run_ids: Annotated[list[int], typer.Argument(help="One run, or several to compare.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(
        "report.html"
    ),
    dsn: Dsn = "",
    curves: Annotated[
        bool,
        typer.Option(help="Ask the winner about the validation table: confusion matrix and ROC."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Writes a report of runs: one file of HTML that needs no network."""
    from cerebro_db.watching.report import html

    text = html(session_of(dsn), run_ids, curves)
    _write(output, text)
    size = len(text.encode())
    tell(as_json, f"{output}: {size} bytes", file=str(output), bytes=size)


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
    tell(as_json, f"MLflow run {parent}", run_id=run_id, mlflow_run_id=parent)


def tensorboard(
    run_id: RunId,
    logdir: Annotated[Path, typer.Option(help="The folder that tensorboard --logdir names.")],
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes the learning curves of a run as event files for TensorBoard."""
    folder = str(_run(dsn, run_id).to_tensorboard(logdir))
    tell(as_json, folder, run_id=run_id, folder=folder)


def wandb(
    run_id: RunId,
    directory: Annotated[Path, typer.Option(help="In which the folder wandb is made.")] = Path(),
    project: Annotated[str | None, typer.Option(help="Default: cerebro.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes offline runs for Weights & Biases, which wandb sync sends: one for each configuration."""
    folder = str(_run(dsn, run_id).to_wandb(directory, project))
    tell(as_json, folder, run_id=run_id, folder=folder)


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
