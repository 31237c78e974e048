"""Functions of this package that server processes call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from cerebro_db.errors import CerebroError

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
                error.hint = error.hint or error.last_resort or _usage(name)
                raise

        return entry(wrapper)

    return decorate


def _usage(name: str) -> str | None:
    try:
        from cerebro_db.server.usage import usage  # each process would wait for what few need
    except (ImportError, OSError):  # the package has gone since: there is no hint, then
        return None
    return usage(name)
