"""Entries of cerebro_register_function and cerebro_unregister_function."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.custom import check_name, check_path
from cerebro_db.configs.names import is_taken
from cerebro_db.errors import InvalidArgument
from cerebro_db.server.caller import caller_session
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry_of
from cerebro_db.server.settings import require_administrator
from cerebro_db.training.environment import configure_once
from cerebro_db.training.functions import distribution_of, imported, places_of

_KNOWN = "SELECT name FROM cerebro.registered_functions ORDER BY 1"
_ADD = (
    "INSERT INTO cerebro.catalog_functions (name, path, package, version, places) "
    "VALUES (%s, %s, %s, %s, %s)"
)
_REMOVE = "DELETE FROM cerebro.catalog_functions WHERE name OPERATOR(pg_catalog.=) %s RETURNING 1"


def _names(plpy: Any) -> list[str]:
    """Of all functions that are registered."""
    return [row["name"] for row in plpy.execute(_KNOWN)]


@entry_of("cerebro_register_function")
def register(plpy: Any, gd: dict[str, Any], name: str | None, path: str | None) -> None:
    """Let a name mean a function of an installed package.

    Raises:
        NotPermitted: the caller is no administrator.
        InvalidArgument: the name is taken, or the path leads to no function that may be registered.
    """
    require_administrator(plpy)
    name = check_name(name)
    check_path(path)
    assert path is not None
    if is_taken(name):
        raise InvalidArgument(
            f"name: got {name!r}, which Keras has; allowed: another name",
            hint=f"for example my_{name}",
        )
    if name in _names(plpy):
        raise InvalidArgument(
            f"name: got {name!r}, which is registered already; allowed: another name",
            hint="cerebro.cerebro_unregister_function frees it",
        )
    package, version = distribution_of(path)

    def work(tick: Tick) -> int:
        configure_once(threads=1)  # the package may import TensorFlow
        return places_of(imported(path))

    places = compute(plpy, work)
    with caller_session(plpy, writes=True) as session:
        session.run(_ADD, (name, path, package, version, places))


@entry_of("cerebro_unregister_function")
def unregister(plpy: Any, gd: dict[str, Any], name: str | None) -> None:
    """Free a name.

    Raises:
        NotPermitted: the caller is no administrator.
        InvalidArgument: nothing has that name.
    """
    require_administrator(plpy)
    name = check_name(name)
    with caller_session(plpy, writes=True) as session:
        removed = session.run(_REMOVE, (name,))
    if not removed:
        known = ", ".join(_names(plpy)) or "none is registered"
        raise InvalidArgument(
            f"name: got {name!r}; registered functions: {known}",
            hint="cerebro.registered_functions shows them",
        )
