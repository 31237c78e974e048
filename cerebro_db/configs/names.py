"""Names in parameters: those of Keras, and those of functions that administrators register."""

from __future__ import annotations

import re
from collections.abc import Collection

from cerebro_db.configs.functions.losses import LOSSES
from cerebro_db.configs.functions.metrics import METRICS
from cerebro_db.configs.functions.optimizers import OPTIMIZERS, SCHEDULES
from cerebro_db.configs.grammar import Call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

# Names of Keras and of registered functions never meet: these are written custom.name.
PREFIX = "custom."
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Nothing private, so no __globals__ and the like either.
_PATH = re.compile(r"(?!_)\w+(\.(?!_)\w+)*:(?!_)\w+", re.ASCII)
_LONGEST_PATH = 200
TOP_K = re.compile(r"top_([1-9][0-9]{0,8})_accuracy")


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


def with_prefix(got: str, name: str, functions: Collection[str], table: str) -> str:
    """The name to write for one that MADlib writes: with the prefix, where it means a registered function.

    Args:
        got: beginning of a message about the name.
        name: as written; those of Keras win.
        functions: names in an object table.
        table: the name of that table, for messages.

    Raises:
        InvalidArgument: neither Keras nor the table has it.
    """
    if is_taken(name) or is_top_k(name):
        return name
    if name not in functions:
        raise InvalidArgument(
            f"{got} {shown(name)}, which Keras does not have; {table} has "
            f"{', '.join(sorted(functions)) or 'nothing'}",
            "cerebro.cerebro_load_custom_function adds a registered function to an object table.",
        )
    return PREFIX + name


def is_top_k(name: str) -> bool:
    """True for MADlib's ``top_3_accuracy``, with any number."""
    return bool(TOP_K.fullmatch(name))


def is_taken(name: str) -> bool:
    """True if Keras has an optimizer, loss, metric or schedule of a name."""
    return any(table.has(name) for table in (OPTIMIZERS, LOSSES, METRICS, SCHEDULES))
