"""Errors on their way out of a PL/Python function: message, SQLSTATE and hint, no more."""

from __future__ import annotations

import functools
import os
import secrets
import sys
import traceback
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from cerebro_db.database.dialects.capabilities import packed_sqlstate, reads_error_attributes
from cerebro_db.database.dialects.interrupts import restored
from cerebro_db.errors import UNNAMED, CerebroError, Unexpected

_MOST_TEXT = 1000

P = ParamSpec("P")
R = TypeVar("R")


def entry(
    function: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """Decorate what a PL/Python body calls; its first argument is ``plpy``.

    A ``CerebroError`` becomes a server error with its SQLSTATE and hint and without the frames
    of this package; any other exception is a defect: its traceback goes to the server's log.
    """

    @functools.wraps(function)
    def wrapper(plpy: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with restored():
                return function(plpy, *args, **kwargs)
        except CerebroError as error:
            failure = server_error(plpy, error)
        except (plpy.Error, plpy.SPIError):
            raise
        except Exception as error:
            failure = server_error(plpy, _unexpected(error))
        raise failure

    return wrapper


def _unexpected(error: Exception) -> Unexpected:
    """A defect in one line; its traceback tells where files of the server lie, and is for its log.

    The standard error of a server process is its log, which no client can ask for.
    """
    number = secrets.token_hex(4)
    told = "".join(traceback.format_exception(error))
    sys.stderr.write(f"Cerebro-DB: unexpected error {number}: {told}")
    sys.stderr.flush()
    text = " ".join(str(error)[:_MOST_TEXT].split())
    return Unexpected(
        f"unexpected error {number}, {type(error).__name__}: {text}",
        hint=f"the log of the server has its traceback, under the number {number}",
    )


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
    told = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    for place in _places():
        told = told.replace(f"{place}/", "")
    return told


def _places() -> list[str]:
    """Where on the server Python, its packages and the data lie: nothing for users to know."""
    places = {*map(str, sys.path), sys.prefix, sys.base_prefix, os.getcwd()}  # paths may be objects
    return sorted((one for one in places if len(one) > 1), key=len, reverse=True)
