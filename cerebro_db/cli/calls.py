"""The commands that call a function in the database, and print what it returns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from cerebro_db.cli.commands import called, command_of
from cerebro_db.cli.output import error_console, print_json, show, show_result
from cerebro_db.errors import InvalidArgument
from cerebro_db.requests import fitting, searching
from cerebro_db.requests.declared import Request
from cerebro_db.requests.jobs import WaitRequest
from cerebro_db.requests.packing import (
    PackColumnsRequest,
    PackImagesRequest,
    PackRequest,
    PackValidationRequest,
)
from cerebro_db.requests.predicting import PredictionRequest


class _Call(NamedTuple):
    """A function as a command.

    Attributes:
        line: about what was done, from the values that are printed.
        shown: arguments that are among these values, where they are given.
        result: name of what the function returns; None where that is nothing.
        done: what is printed in the place of nothing.
        how: more about the arguments of the command.
    """

    request: type[Request]
    line: Callable[..., str]
    shown: Sequence[str] = ("run_id",)
    result: str | None = None
    done: Any = None
    how: Mapping[str, Any] = {}


def _is_now(run_id: int, status: str, mst_key: int | None = None) -> str:
    which = "" if mst_key is None else f", configuration {mst_key}"
    return f"run {run_id}{which}: {status}"


def _begin(run_id: int, mst_keys: Sequence[int]) -> str:
    return f"run {run_id}: trials {', '.join(map(str, mst_keys))} begin"


_OF_LISTS = {
    "model_id_list": "model_id", "compile_params_list": "compile_params", "fit_params_list": "fit_params",
}  # fmt: skip
_CALLS: Mapping[str, _Call] = {
    "cancel": _Call(fitting.CancelRequest, _is_now, ("run_id", "mst_key"), "status"),
    "pause": _Call(fitting.PauseRequest, _is_now, result="status"),
    "drop": _Call(fitting.DropRunRequest, _is_now, result="status", done="dropped"),
    "add-configs": _Call(
        searching.AddConfigsRequest, _begin, result="mst_keys", how={"options": _OF_LISTS}
    ),
    "stop-config": _Call(
        searching.StopConfigRequest, "run {run_id}: trial {mst_key} is {status}".format,
        ("run_id", "mst_key"), "status",
    ),
    "clone": _Call(
        searching.CloneRequest, "run {run_id}: trial {mst_key} begins".format, result="mst_key",
        how={"places": ["changes"]},
    ),
    "narrow": _Call(
        searching.NarrowRequest, "run {run_id}: proposes from another space from now on".format,
        how={"options": {"model_id_list": "model_id"}},
    ),
    "finish": _Call(
        searching.FinishRequest, "run {run_id}: ends with the models that it has".format
    ),
    "best": _Call(
        searching.BestRequest, "{table}: the best trials of run {run_id}".format, result="table"
    ),
}  # fmt: skip
_PACKS = (PackRequest, PackColumnsRequest, PackValidationRequest, PackImagesRequest)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for name, one in _CALLS.items():
        app.command(name)(command_of(one.request, _run_of(one), **one.how))
    columns = typer.Option("--columns", help="Columns of mixed types, like cerebro_pack_columns.")
    names = ("id_col", "independent_varname")
    for run, requests, how in (
        (wait, WaitRequest, {}),
        (importance, searching.ImportanceRequest, {}),
        (pack, _PACKS, {"more": {"columns": (Annotated[bool, columns], False)}}),
        (predict, PredictionRequest, {"options": {name: name for name in names}, "optional": names}),
    ):  # fmt: skip
        app.command(run.__name__)(command_of(requests, run, help=run.__doc__, **how))


def _run_of(call: _Call) -> Callable[..., None]:
    """Run a command that is one call."""

    def run(make_request: Callable[[], Request], dsn: str, as_json: bool) -> None:
        request = make_request()
        ((result, *_), *_) = called(dsn, request)
        values = {name: getattr(request, name) for name in call.shown}
        if call.result is not None:
            values[call.result] = call.done or result
        values = {name: value for name, value in values.items() if value is not None}
        show_result(as_json, call.line(**values), **values)

    return run


def wait(make_request: Callable[[], WaitRequest], dsn: str, as_json: bool) -> None:
    """Waits until a run has ended; the exit code is 1 where it has not finished."""
    request = make_request()
    ((status,),) = called(dsn, request)
    show_result(as_json, _is_now(request.run_id or 0, status), run_id=request.run_id, status=status)
    if status != "finished":
        raise typer.Exit(1)


def importance(make_request: Callable[[], Request], dsn: str, as_json: bool) -> None:
    """Tells which parameters mattered, like cerebro_importance, the most important one first."""
    found = called(dsn, make_request())
    if as_json:
        print_json([dict(zip(("parameter", "value", "trials"), one, strict=True)) for one in found])
        return
    for parameter, value, trials in found:
        show(f"{value:.4f}  {parameter}  ({trials} trials)")


def pack(make_request: Callable[..., Request], dsn: str, columns: bool, as_json: bool) -> None:
    """Packs a table like cerebro_pack, _columns, _images (with --image-shape), _validation (with --training-table)."""

    def chosen(values: Mapping[str, Any]) -> tuple[type[Request], str]:
        if values["training_table"] is not None:
            return PackValidationRequest, "with --training-table, which decides it"
        if columns:
            return PackColumnsRequest, "with --columns, which have encodings"
        if values["image_shape"] is not None:
            return PackImagesRequest, "with --image-shape, for images"
        return PackRequest, "without --columns, --image-shape or --training-table"

    request: Any = make_request(chosen)
    if columns and request.function is not PackColumnsRequest.function:
        raise InvalidArgument("got --columns with --training-table, which decides it")
    _timed(dsn, request, f"packing {request.source_table}", as_json)


def predict(make_request: Callable[[], PredictionRequest], dsn: str, as_json: bool) -> None:
    """Predicts like cerebro_predict."""
    request = make_request()
    _timed(dsn, request, f"predicting {request.test_table}", as_json)


def _timed(dsn: str, request: Any, what: str, as_json: bool) -> None:
    """Call a function that makes a table; a bar shows how long it takes."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    began, moves = time.monotonic(), sys.stderr.isatty()
    with Progress(*columns, console=error_console(), transient=True, disable=not moves) as progress:
        progress.add_task(what, total=None)
        called(dsn, request)
    if not as_json:
        show(f"{what}: {time.monotonic() - began:.1f} s")
    show_result(as_json, str(request.output_table), output_table=request.output_table)
