"""Errors of drivers and trainers on their way to a server process."""

from __future__ import annotations

import os
import secrets
import sys
import traceback
from typing import Any

from cerebro_db.errors import CerebroError, Unexpected
from cerebro_db.trainers.lent import ServerError

_MOST_TEXT = 1000


def described(error: Exception) -> dict[str, Any]:
    """An error as the server process raises it.

    A defect is told in one line; its traceback, which tells where files lie, is for the server's log.
    """
    log = None
    if isinstance(error, ServerError):
        return {"number": error.number}
    if not isinstance(error, CerebroError):
        error, log = _unexpected(error)
    return {
        "sqlstate": error.sqlstate,
        "message": _tellable(error.message),
        "hint": error.hint and _tellable(error.hint),
        "detail": error.detail and _tellable(error.detail),
        "log": log,
    }


def _unexpected(error: Exception) -> tuple[Unexpected, str]:
    number = secrets.token_hex(4)
    told = "".join(traceback.format_exception(error))
    text = " ".join(str(error)[:_MOST_TEXT].split())
    short = Unexpected(
        f"unexpected error {number}, {type(error).__name__}: {text}",
        hint=f"the log of the server has its traceback, under the number {number}",
    )
    return short, f"Cerebro-DB: unexpected error {number}: {told}"


def _tellable(text: str) -> str:
    """A text as the server can take it: no half characters, no NUL."""
    told = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    for place in _places():
        told = told.replace(f"{place}/", "")
    return told


def _places() -> list[str]:
    """Folders of Python and its packages on the server: nothing for users to know."""
    places = {*map(str, sys.path), sys.prefix, sys.base_prefix, os.getcwd()}  # paths may be objects
    return sorted((one for one in places if len(one) > 1), key=len, reverse=True)
