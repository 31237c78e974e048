"""Functions of this package that server processes call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from cerebro_db.errors import CerebroError
from cerebro_db.server.declarations import Declaration
from cerebro_db.server.signatures import signatures

P = ParamSpec("P")
R = TypeVar("R")


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate what a PL/Python body may call.

    Its first arguments are the server's interface and what the process keeps from call to call.
    """
    vars(function)["is_entry"] = True
    return function


def entry_of(name: str, how: Declaration) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The same for what users call; no error of it is without a hint.

    Args:
        name: of the SQL function, whose arguments are shown where there is no better hint.
        how: whether jobs may call it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except CerebroError as error:
                error.hint = error.hint or error.last_resort or usage(name, error.message)
                raise

        vars(wrapper)["declaration"] = how
        return entry(wrapper)

    return decorate


def declaration_of(function: Callable[..., object]) -> Declaration | None:
    """What an entry is declared as; None for what users do not call."""
    found: Declaration | None = vars(function).get("declaration")
    return found


_MOST_SHOWN = 8


def usage(name: str, message: str | None = None) -> str | None:
    """Signature of a function, such as ``cerebro.cerebro_pause(run_id bigint)``; None where unknown.

    Overloads whose arguments have other names are there too, after "or"; of others the first. Where
    there are many arguments, a message is given only those that it begins with, or which must be given.
    """
    # Of those with the same names the first.
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for one in signatures().get(name, ()):
        found.setdefault(tuple(one.arguments), tuple(a.text for a in one.arguments.values()))
    shown = [_shown(name, one, message) for one in found.values()]
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
