"""Functions that administrators register: their names in parameters, and their import paths."""

from __future__ import annotations

import re

from cerebro_db.configs.grammar import Call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

__all__ = ["PREFIX", "bare_name", "check_name", "check_path", "is_custom", "parse_custom"]

# Names of Keras and of registered functions never meet: these are written custom.name.
PREFIX = "custom."
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Nothing private, so no __globals__ and the like either.
_PATH = re.compile(r"(?!_)\w+(\.(?!_)\w+)*:(?!_)\w+", re.ASCII)
_LONGEST_PATH = 200


def is_custom(name: str) -> bool:
    """True if a name in parameters means a registered function."""
    return name.startswith(PREFIX)


def bare_name(name: str) -> str:
    """The name under which a function is registered."""
    return name.removeprefix(PREFIX)


def check_name(name: str | None, what: str = "name") -> str:
    """A name that a function may have.

    Raises:
        InvalidArgument: it is none.
    """
    if name is None or not _NAME.fullmatch(name):
        got = "NULL" if name is None else shown(name)
        raise InvalidArgument(
            f"{what}: got {got}; allowed: lower-case letters, digits and _, beginning with a letter"
        )
    return name


def parse_custom(call: Call, what: str) -> str:
    """The name, with its prefix, of a call that is one.

    Raises:
        InvalidArgument: nothing can have that name, or it has arguments.
    """
    check_name(bare_name(call.name), what)
    if call.arguments or call.values:
        raise InvalidArgument(
            f"{what}: got {shown(call)}; a registered function is named without arguments"
        )
    return call.name


def check_path(path: str | None) -> tuple[str, str]:
    """Module and function of an import path.

    Raises:
        InvalidArgument: it is none.
    """
    if path is None or len(path) > _LONGEST_PATH or not _PATH.fullmatch(path):
        got = "NULL" if path is None else shown(path)
        raise InvalidArgument(
            f"path: got {got}; allowed: module and function of an installed package, such as "
            "'package.module:function', none of them beginning with _"
        )
    module, _, function = path.partition(":")
    return module, function
