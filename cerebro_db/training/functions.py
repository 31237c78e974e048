"""Registered functions in this process: imported from installed packages when they are first used."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from typing import Any

from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import PREFIX, check_path
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.environment import computing

# What no loss, metric or schedule is in, whoever asks for it.
_OWN = ("cerebro_db", "pip", "psycopg2", "setuptools")


@dataclass(frozen=True)
class Function:
    """A function that an administrator has registered.

    Attributes:
        path: such as ``package.module:function``.
        package, version: the distribution that it is from, as it was then.
        expression: the text of one, which has none of the others.
    """

    path: str | None
    package: str | None
    version: str | None
    expression: str | None = None


_known: dict[str, Function] = {}
_imported: dict[str, Callable[..., Any]] = {}


def know(functions: Mapping[str, Function]) -> bool:
    """Set the registered functions; returns whether a name has changed its meaning."""
    changed = any(_known[name] != functions.get(name) for name in _known)
    if changed:
        _imported.clear()
    _known.clear()
    _known.update(functions)
    return changed


def function_of(name: str) -> Callable[..., Any]:
    """The function of a name, without prefix.

    Raises:
        InvalidArgument: it is not registered, or its package is another one by now.
    """
    if name not in _known:
        raise InvalidArgument(
            f"got {PREFIX}{name}; allowed: a function that is registered",
            hint="cerebro.registered_functions shows them",
        )
    if name not in _imported and _known[name].expression is not None:
        expression = parse_expression(_known[name].expression, f"{PREFIX}{name}")
        _imported[name] = computing().function(expression, name)
    if name not in _imported:
        registered, (package, found) = _known[name], distribution_of(str(_known[name].path))
        if (package, found) != (registered.package, registered.version):
            raise InvalidArgument(
                f"got {PREFIX}{name} of {package} {found}; it was registered with "
                f"{registered.package} {registered.version}",
                hint="an administrator can register it anew",
            )
        _imported[name] = imported(str(registered.path))
    return _imported[name]


_INSTALLED = "package.module:function names a function of a package that pip has installed"


def distribution_of(path: str) -> tuple[str, str]:
    """The installed distribution that a path leads into, and its version; nothing is imported.

    Raises:
        InvalidArgument: there is none, or none that may be registered.
    """
    module, _ = check_path(path)
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in _OWN:
        raise InvalidArgument(
            f"path: got {shown(path)}; allowed: an installed package, not Python's own library, "
            "nor what Cerebro-DB itself runs on",
            hint=_INSTALLED,
        )
    names = sorted(set(packages_distributions().get(top, ())))
    if not names:
        raise InvalidArgument(
            f"path: got {shown(path)}; allowed: a package that is installed in the virtual environment",
            hint="install it with the pip of the virtual environment: a folder that is only on the path is not enough",
        )
    return ", ".join(names), ", ".join(version(name) for name in names)


def imported(path: str) -> Callable[..., Any]:
    """Object that a path leads to.

    Raises:
        InvalidArgument: it cannot be imported, or is no function.
    """
    module, name = check_path(path)
    try:
        found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise InvalidArgument(
            f"path: got {shown(path)}, which cannot be imported: {type(error).__name__}: {error}",
            hint=_INSTALLED,
        ) from None
    if not callable(found) or inspect.isclass(found):
        raise InvalidArgument(
            f"path: got {shown(path)}, which is no function; allowed: a function", hint=_INSTALLED
        )
    return found


def places_of(function: Callable[..., Any]) -> int:
    """Number of arguments that a function is called with: two if it takes so many, or else one.

    Raises:
        InvalidArgument: neither will do.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidArgument("path: got a function whose arguments Python cannot tell") from None
    for count in (2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise InvalidArgument(
        f"path: got a function with the arguments {signature}; allowed: (y_true, y_pred) of a loss or "
        "metric, (epoch, learning_rate) or (epoch) of a schedule"
    )
