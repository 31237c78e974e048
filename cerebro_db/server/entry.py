"""Functions of this package that server processes call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from cerebro_db.errors import CerebroError
from cerebro_db.requests.declared import Request, usage
from cerebro_db.server.caller import caller_session

P = ParamSpec("P")
R = TypeVar("R")
Q = TypeVar("Q", bound=Request)


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate what a PL/Python body may call.

    Its first arguments are the server's interface and what the process keeps from call to call.
    """
    vars(function)["is_entry"] = True
    return function


def entry_of(
    request: type[Q],
) -> Callable[[Callable[[Any, dict[str, Any], Q], R]], Callable[..., R]]:
    """Decorate what does a declared function: it gets the arguments by name, and hands on a request that is checked."""

    def decorate(function: Callable[[Any, dict[str, Any], Q], R]) -> Callable[..., R]:
        @functools.wraps(function)
        def wrapper(plpy: Any, gd: dict[str, Any], given: dict[str, Any]) -> R:
            return function(plpy, gd, request(**given))

        return entry(hinted(request.function.name)(wrapper))

    return decorate


def hinted(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate what users call: no error of it is without a hint, the last of which is how the function is called."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except CerebroError as error:
                error.hint = error.hint or error.last_resort or usage(name, error.message)
                raise

        return wrapper

    return decorate


def in_session(
    request: type[Request], work: Callable[..., R], *, writes: bool = True
) -> Callable[..., R]:
    """An entry whose work is done in a session in the caller's transaction, and gets the arguments in their order."""

    def function(plpy: Any, gd: dict[str, Any], given: Request) -> R:
        with caller_session(plpy, writes=writes) as session:
            return work(session, *given.given().values())

    return entry_of(request)(function)
