"""Ways to print: lines and tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
# Of a file or a pipe, in which nothing has to be cut.
_WIDTH = 160


def show(line: str) -> None:
    """A line, at once."""
    print(line, flush=True)


def tell(as_json: bool, line: str, **values: Any) -> None:
    """Print the result of a command: a line, or its values as JSON."""
    if as_json:
        print_json(values)
    else:
        show(line)


def print_json(value: Any) -> None:
    """A value for programs."""
    from cerebro_db.watching.texts import plain

    print(json.dumps(plain(value), indent=2, ensure_ascii=False), flush=True)


def to_stderr(line: str) -> None:
    """A line that is no part of what a program reads."""
    print(line, file=sys.stderr, flush=True)


def console() -> Console:
    """Standard output for tables: as wide as the terminal; where there is none, wide enough for logs."""
    from rich.console import Console

    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH if wide else None)
