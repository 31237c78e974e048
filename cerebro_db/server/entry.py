"""Functions of this package that server processes call."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from cerebro_db.errors import CerebroError
from cerebro_db.install.sources import sql_directory

P = ParamSpec("P")
R = TypeVar("R")


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate what a PL/Python body may call.

    Its first arguments are the server's interface and what the process keeps from call to call.
    """
    vars(function)["is_entry"] = True
    return function


def entry_of(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The same for what users call; no error of it is without a hint.

    Args:
        name: of the SQL function, whose arguments are shown where there is no better hint.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except CerebroError as error:
                error.hint = error.hint or error.last_resort or usage(name, error.message)
                raise

        return entry(wrapper)

    return decorate


# Of the text that an installation is made of: asking the server for it would need a statement, in a
# session whose transaction may have failed, and which on some servers may run none.
_DEFINITION = re.compile(
    r"^CREATE OR REPLACE FUNCTION cerebro\.(cerebro_\w+)\((.*?)\)\s*(?:RETURNS|LANGUAGE)\s",
    re.M | re.S,
)
_OUTPUT = re.compile(r",?\s*OUT [^,]*")
_COMMA = re.compile(r", ?(?![^(]*\))")


_MOST_SHOWN = 8


def usage(name: str, message: str | None = None) -> str | None:
    """Signature of a function, such as ``cerebro.cerebro_pause(run_id bigint)``; None where unknown.

    Overloads whose arguments have other names are there too, after "or"; of others the first. Where
    there are many arguments, a message is given only those that it begins with, or which must be given.
    """
    shown = [_shown(name, one, message) for one in _signatures().get(name, {}).values()]
    return " or ".join(shown) or None


def _shown(name: str, arguments: tuple[str, ...], message: str | None) -> str:
    if message is not None and len(arguments) > _MOST_SHOWN:
        told = message.partition(":")[0].split(", ")
        named = [one for one in arguments if one.split()[0] in told]
        arguments = _left_out(
            arguments, named or [one for one in arguments if " DEFAULT " not in one]
        )
    return f"cerebro.{name}({', '.join(arguments)})"


def _left_out(arguments: tuple[str, ...], kept: list[str]) -> tuple[str, ...]:
    """Some of the arguments, with dots in the place of others."""
    found: list[str] = []
    for one in arguments:
        if one in kept:
            found.append(one)
        elif found[-1:] != ["..."]:
            found.append("...")
    return tuple(found)


@functools.cache
def _signatures() -> dict[str, dict[tuple[str, ...], tuple[str, ...]]]:
    """The arguments of each function by their names."""
    found: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}
    try:
        texts = [
            path.read_text("utf-8") for path in sorted((sql_directory() / "objects").glob("*"))
        ]
    except (OSError, StopIteration):  # the folder has gone since: there is no hint, then
        return found
    for name, arguments in _DEFINITION.findall("\n".join(texts)):
        text = " ".join(_OUTPUT.sub("", arguments).split())
        shown = tuple(one for one in _COMMA.split(text) if one)
        names = tuple(one.split()[0] for one in shown)
        found.setdefault(name, {}).setdefault(names, shown)
    return found
