"""The program ``cerebro``: its commands, and how an error ends it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import cerebro_db
from cerebro_db.cli import calls, drivers, files, installation, jobs, runs, server, worker
from cerebro_db.cli.output import show, to_stderr
from cerebro_db.errors import CerebroError

app = typer.Typer(
    name="cerebro",
    help="Deep-learning model selection inside PostgreSQL and Greenplum.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for room in (installation, drivers, runs, calls, files, jobs, worker):
    room.register(app)
app.add_typer(server.app, name="server")


def _show_version(wanted: bool) -> None:
    if wanted:
        show(cerebro_db.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Deep-learning model selection inside PostgreSQL and Greenplum."""


def main() -> None:
    """Runs one command; an error of ours is two lines on stderr and exit code 1."""
    try:
        app()
    except CerebroError as error:
        to_stderr(f"cerebro: {error.message}")
        if error.hint:
            to_stderr(f"HINT: {error.hint}")
        sys.exit(1)
