"""Errors on their way out of a PL/Python function: message, SQLSTATE and hint, no more."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from cerebro_db.database.dialects.capabilities import packed_sqlstate, reads_error_attributes
from cerebro_db.database.dialects.interrupts import restored
from cerebro_db.errors import UNNAMED, CerebroError

P = ParamSpec("P")
R = TypeVar("R")


def entry(
    function: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """Decorate what a PL/Python body calls; its first argument is ``plpy``.

    A ``CerebroError`` becomes a server error with its SQLSTATE and hint and without the frames
    of this package; any other exception is a defect and keeps its traceback.
    """

    @functools.wraps(function)
    def wrapper(plpy: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with restored():
                return function(plpy, *args, **kwargs)
        except CerebroError as error:
            failure = server_error(plpy, error)
        raise failure

    return wrapper


def entry_of(
    name: str,
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[Concatenate[Any, P], R]]:
    """The same for what users call; no error of it is without a hint.

    Args:
        name: of the SQL function, whose arguments are shown where there is no better hint.
    """

    def decorate(function: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
        @functools.wraps(function)
        def wrapper(plpy: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(plpy, *args, **kwargs)
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


def server_error(plpy: Any, error: CerebroError) -> BaseException:
    """The error as an exception that the server reports with its SQLSTATE, hint and detail."""
    # The server reports "class: text", with the module before the class unless that is "builtins",
    # and takes the rest from attributes. A class that is named like the first words of the message
    # lets users read the message as it is.
    reads_attributes = reads_error_attributes(plpy)
    base = plpy.Error if reads_attributes else plpy.SPIError
    first, colon, text = _tellable(error.message).partition(": ")
    if not colon:
        first, text = UNNAMED, first
    failure: BaseException = type(first, (base,), {"__module__": "builtins"})(text)
    hint, detail = _told(error.hint), _told(error.detail)
    if reads_attributes:
        vars(failure).update(sqlstate=error.sqlstate, hint=hint, detail=detail)
    else:
        vars(failure).update(spidata=(packed_sqlstate(error.sqlstate), detail, hint, None, 0))
    return failure


def _told(text: str | None) -> str | None:
    return None if text is None else _tellable(text)


def _tellable(text: str) -> str:
    """A text as the server can take it: no half characters, no NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
