"""The commands that pack and predict, with the time that they took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, error_console, show, tell, to_stderr
from cerebro_db.cli.requests import command_of
from cerebro_db.cli.training import INTERRUPTED, Replace
from cerebro_db.requests.predicting import PredictionRequest


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(pack)
    names = ("id_col", "independent_varname")
    options = {name: name for name in names}
    app.command()(command_of(PredictionRequest, predict, options=options, optional=names))


def pack(
    source_table: Annotated[str, typer.Argument(help="Rows with features and a target.")],
    output_table: Annotated[str, typer.Argument(help="The table to make.")],
    dependent_varname: Annotated[str, typer.Argument(help="Column of the target.")],
    independent_varname: Annotated[str, typer.Argument(help="Column of the features.")],
    dsn: Dsn = "",
    training_table: Annotated[
        str | None, typer.Option(help="Pack for validation, like this packed table.")
    ] = None,
    buffer_size: Annotated[int | None, typer.Option(help="Rows of a buffer.")] = None,
    normalizing_const: Annotated[
        float | None, typer.Option(help="Features are divided by it.")
    ] = None,
    num_classes: Annotated[int | None, typer.Option(help="Allowed for further classes.")] = None,
    num_partitions: Annotated[int | None, typer.Option(help="Default: processors.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the order of rows.")] = None,
    sample_weight: Annotated[str | None, typer.Option(help="Column of weights.")] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="Columns of mixed types, like cerebro_pack_columns.")
    ] = False,
    excluded: Annotated[
        str | None, typer.Option(help="Columns that * does not stand for, with --columns.")
    ] = None,
    encoding_of: Annotated[
        str | None,
        typer.Option(help="Classes and encoding of a packed table, or of model:name@alias."),
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Packs a table like cerebro_pack, or like cerebro_pack_validation with --training-table."""
    names = (source_table, output_table, dependent_varname, independent_varname)
    options: dict[str, Any] = {"buffer_size": buffer_size, "replace": replace}
    of_training = {
        "normalizing_const": normalizing_const, "num_classes": num_classes, "seed": seed,
        "num_partitions": num_partitions, "sample_weight": sample_weight, "encoding_of": encoding_of,
    }  # fmt: skip
    with _shown(dsn, f"packing {source_table}", as_json) as database:
        if training_table is not None:
            decided = of_training | {"columns": columns or None, "excluded": excluded}
            _refuse(decided, "with --training-table, which decides it")
            database.pack_validation(*names, training_table, **options)
        elif columns:
            _refuse(
                {"normalizing_const": normalizing_const}, "with --columns, which have encodings"
            )
            given = of_training | {"excluded": excluded} | options
            given = {name: value for name, value in given.items() if value is not None}
            database.pack_columns(*names, **given)
        else:
            _refuse({"excluded": excluded}, "without --columns")
            database.pack(*names, **options, **of_training)
    tell(as_json, output_table, output_table=output_table)


def predict(make_request: Callable[[], PredictionRequest], dsn: str, as_json: bool) -> None:
    """Predicts like cerebro_predict."""
    request = make_request()
    with _shown(dsn, f"predicting {request.test_table}", as_json) as database:
        database.predict(**request.given())
    tell(as_json, str(request.output_table), output_table=request.output_table)


def _refuse(options: dict[str, Any], why: str) -> None:
    from cerebro_db.errors import InvalidArgument

    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidArgument(f"got --{given[0].replace('_', '-')} {why}")


@contextmanager
def _shown(dsn: str, what: str, as_json: bool) -> Iterator[Any]:
    """A database; a bar shows how long a call on it takes, and Ctrl-C cancels it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cerebro_db.client import connect

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    began = time.monotonic()
    try:
        with (
            connect(dsn) as database,
            Progress(
                *columns, console=error_console(), transient=True,
                disable=not sys.stderr.isatty(),
            ) as progress,
        ):  # fmt: skip
            progress.add_task(what, total=None)
            yield database
    except KeyboardInterrupt:
        to_stderr("cerebro: cancelled")
        raise typer.Exit(INTERRUPTED) from None
    if not as_json:
        show(f"{what}: {time.monotonic() - began:.1f} s")
