"""Ways to print: lines and tables for people, JSON for programs.

Nothing else of the program writes to a terminal. Names, errors and values of others are among what is shown:
their control characters are shown, too, as codes.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_db.configs.messages import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
# Of a file or a pipe, in which nothing has to be cut.
_WIDTH = 160


def show(line: str) -> None:
    """A line, at once."""
    print(visible(line), flush=True)


def show_text(text: str) -> None:
    """A text that programs read, as it is; in a terminal like all else."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def show_result(as_json: bool, line: str, **values: Any) -> None:
    """Print the result of a command: a line, or its values as JSON."""
    if as_json:
        print_json(values)
    else:
        show(line)


def print_json(value: Any) -> None:
    """A value for programs."""
    from cerebro_db.watching.texts import plain

    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    print(visible_json(text), flush=True)


def to_stderr(line: str) -> None:
    """A line that is no part of what a program reads."""
    print(visible(line), file=sys.stderr, flush=True)


def console() -> Console:
    """Standard output for tables: as wide as the terminal; where there is none, wide enough for logs."""
    from cerebro_db.watching.screen import Screen

    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Screen(width=_WIDTH if wide else None)


def error_console() -> Console:
    """Standard error for what moves."""
    from cerebro_db.watching.screen import Screen

    return Screen(stderr=True)
