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
                error.hint = error.hint or error.last_resort or usage(name)
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


def usage(name: str) -> str | None:
    """Signature of a function, such as ``cerebro.cerebro_pause(run_id bigint)``; None where unknown.

    Overloads whose arguments have other names are there too, after "or"; of others the first.
    """
    return " or ".join(_signatures().get(name, {}).values()) or None


@functools.cache
def _signatures() -> dict[str, dict[tuple[str, ...], str]]:
    """Signatures of each function by the names of the arguments."""
    found: dict[str, dict[tuple[str, ...], str]] = {}
    try:
        texts = [
            path.read_text("utf-8") for path in sorted((sql_directory() / "objects").glob("*"))
        ]
    except (OSError, StopIteration):  # the folder has gone since: there is no hint, then
        return found
    for name, arguments in _DEFINITION.findall("\n".join(texts)):
        shown = " ".join(_OUTPUT.sub("", arguments).split())
        names = tuple(one.split()[0] for one in _COMMA.split(shown) if one)
        found.setdefault(name, {}).setdefault(names, f"cerebro.{name}({shown})")
    return found
