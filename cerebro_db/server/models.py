"""Entries of the functions that load, choose and look into models, and register functions for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from cerebro_db.configs.architectures import nets
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.frameworks import check_architecture, framework_of, framework_of_file
from cerebro_db.configs.functions.expressions import parse_expression
from cerebro_db.configs.grids.parameters import is_taken
from cerebro_db.configs.names import check_name, check_path
from cerebro_db.errors import InvalidArgument
from cerebro_db.models import loading, object_tables, selection
from cerebro_db.requests.models import (
    DeleteFunctionRequest,
    DeleteModelRequest,
    DeleteNamedFunctionRequest,
    FileRequest,
    GridRequest,
    ImageRequest,
    ListRequest,
    LoadFunctionRequest,
    LoadRequest,
    LoadTopKRequest,
    MlpRequest,
    RegisterExpressionRequest,
    RegisterFunctionRequest,
    TabularRequest,
    UnregisterFunctionRequest,
)
from cerebro_db.server.caller import caller_session
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry, entry_of
from cerebro_db.server.host import Host
from cerebro_db.server.joined import first_part, next_part, take_joined
from cerebro_db.server.limits import bind
from cerebro_db.server.settings import require_administrator, settings_of
from cerebro_db.training.environment import computing, configure_once
from cerebro_db.training.fields import Fields
from cerebro_db.training.functions import distribution_of, imported, places_of

_MAX_SIZE = 2**31 - 1


@entry_of(LoadRequest)
def load_model(plpy: Any, gd: dict[str, Any], request: LoadRequest) -> int:
    """Put a model into an architecture table."""
    host = Host.of(plpy, gd)
    with host.callers() as session:
        return loading.load_model(session, host.pool, request)


@entry_of(FileRequest)
def load_model_file(plpy: Any, gd: dict[str, Any], request: FileRequest) -> int:
    """Put the model of a file into an architecture table."""
    host = Host.of(plpy, gd)
    with host.callers() as session:
        return loading.load_model_file(session, host.pool, request)


@entry_of(DeleteModelRequest)
def delete_model(plpy: Any, gd: dict[str, Any], request: DeleteModelRequest) -> None:
    """Take a model out of an architecture table."""
    with caller_session(plpy, writes=True) as session:
        done = loading.delete_model(session, request.model_arch_table, request.model_id)
    plpy.notice(done)


@entry_of(GridRequest)
def generate_configs(plpy: Any, gd: dict[str, Any], request: GridRequest) -> None:
    """Write the configurations of a grid, or of a random search."""
    _select(plpy, request)


@entry_of(ListRequest)
def load_configs(plpy: Any, gd: dict[str, Any], request: ListRequest) -> None:
    """Write every combination of what is listed."""
    _select(plpy, request)


def _select(plpy: Any, request: GridRequest | ListRequest) -> None:
    with caller_session(plpy, writes=True) as session:
        selected = selection.select(session, request)
    for left_out in selected.left_out:
        plpy.notice(left_out)
    plpy.notice(str(selected))


@entry
def inspect(plpy: Any, gd: dict[str, Any], model_arch: str, weights: int | None) -> str:
    """Build a model within the limits of the database; returns its size, work and shapes as JSON.

    Args:
        model_arch: its JSON.
        weights: token under which they were joined in this session; None for none.
    """
    model_weights = None if weights is None else take_joined(gd, weights)
    settings = settings_of(plpy)
    limits = ArchitectureLimits.of(settings)
    memory = bind(settings, connects=plpy.asks_nothing)
    config = check_architecture(model_arch, limits)

    def work(tick: Tick) -> str:
        configure_once(threads=1)
        name = framework_of(config).name
        found = computing(name).facts(config, limits, memory, model_weights)
        return replace(found, framework=name).to_json()

    return compute(plpy, work)


@entry_of(MlpRequest)
def mlp(plpy: Any, gd: dict[str, Any], request: MlpRequest) -> str:
    """The JSON of a multilayer perceptron."""
    return nets.mlp(**request.given())


@entry_of(TabularRequest)
def tabular(plpy: Any, gd: dict[str, Any], request: TabularRequest) -> str:
    """The JSON of a net for a packed table."""
    with caller_session(plpy) as session:
        return loading.tabular_net(session, request)


@entry_of(ImageRequest)
def image(plpy: Any, gd: dict[str, Any], request: ImageRequest) -> str:
    """The JSON of a net for packed images."""
    with caller_session(plpy) as session:
        return loading.image_net(session, request)


@entry
def named_model(
    plpy: Any,
    gd: dict[str, Any],
    name: str | None,
    shape: str | None,
    units: int | None,
    classes: bool | None,
) -> str:
    """The JSON of a net that has a name, for rows of a shape."""
    given = Fields({"shape": _parsed(shape), "units": units}, "net")
    sizes, outputs = given.integers("shape", 1, _MAX_SIZE, 8), given.integer("units", 1, _MAX_SIZE)
    known = nets.check_net(name or "")
    bind(settings_of(plpy), connects=plpy.asks_nothing)

    def work(tick: Tick) -> str:
        configure_once(threads=1)
        return computing().net(known, sizes, outputs, "softmax" if classes else "linear")

    return compute(plpy, work)


def _parsed(text: str | None) -> Any:
    """Value of a text of JSON; None where it is none."""
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


@entry
def read_file(plpy: Any, gd: dict[str, Any], token: int | None) -> tuple[str | None, bytes | None]:
    """The architecture in a file of a model and the first part of its weights; then each further part.

    Args:
        token: of the file, which was joined in this session; None for the next part, which is None after the last one.
    """
    if token is None:
        return None, next_part(gd)
    file = take_joined(gd, token)
    settings = settings_of(plpy)
    limits = ArchitectureLimits.of(settings)
    memory = bind(settings, connects=plpy.asks_nothing)

    def work(tick: Tick) -> tuple[str, bytes]:
        configure_once(threads=1)
        return computing(framework_of_file(file).name).read_file(file, limits, memory, tick)

    text, weights = compute(plpy, work)
    return text, first_part(gd, weights)


@entry_of(LoadFunctionRequest)
def load_custom_function(plpy: Any, gd: dict[str, Any], request: LoadFunctionRequest) -> None:
    """Add a registered function to an object table."""
    with caller_session(plpy, writes=True) as session:
        notices = object_tables.load_function(session, *request.given().values())
    for text in notices:
        plpy.notice(text)


@entry_of(LoadTopKRequest)
def load_top_k_accuracy_function(plpy: Any, gd: dict[str, Any], request: LoadTopKRequest) -> None:
    """Add the accuracy among the k best to an object table."""
    with caller_session(plpy, writes=True) as session:
        done = object_tables.load_top_k(session, request.object_table, request.k)
    plpy.notice(done)


def _delete_function(plpy: Any, table: str | None, number: int | None, name: str | None) -> None:
    with caller_session(plpy, writes=True) as session:
        done = object_tables.delete_function(session, table, number, name)
    plpy.notice(done)


@entry_of(DeleteFunctionRequest)
def delete_custom_function(plpy: Any, gd: dict[str, Any], request: DeleteFunctionRequest) -> None:
    """Delete a function from an object table, by its id."""
    _delete_function(plpy, request.object_table, request.id, None)


@entry_of(DeleteNamedFunctionRequest)
def delete_named_function(
    plpy: Any, gd: dict[str, Any], request: DeleteNamedFunctionRequest
) -> None:
    """Delete a function from an object table, by its name."""
    _delete_function(plpy, request.object_table, None, request.name)


_KNOWN = "SELECT name FROM cerebro.registered_functions ORDER BY 1"


def _names(plpy: Any) -> list[str]:
    """Names of all registered functions."""
    return [row["name"] for row in plpy.execute(_KNOWN)]


@entry_of(RegisterFunctionRequest)
def register_function(plpy: Any, gd: dict[str, Any], request: RegisterFunctionRequest) -> None:
    """Let a name mean a function of an installed package.

    Raises:
        NotPermitted: the caller is no administrator.
        InvalidArgument: the name is taken, or the path leads to no function that may be registered.
    """
    require_administrator(plpy)
    name, path = check_name(request.name), request.path
    check_path(path)
    assert path is not None
    _check_free(plpy, name)
    package, version = distribution_of(path)

    def work(tick: Tick) -> int:
        configure_once(threads=1)
        computing()  # the package may import the framework
        return places_of(imported(path))

    places = compute(plpy, work)
    with caller_session(plpy, writes=True) as session:
        session.write("_register_function", name, path, package, version, None, places)


@entry_of(RegisterExpressionRequest)
def register_expression(plpy: Any, gd: dict[str, Any], request: RegisterExpressionRequest) -> None:
    """Let a name mean an expression.

    Raises:
        NotPermitted: the caller is no administrator.
        InvalidArgument: the name is taken, or the expression has something in it that is not allowed.
    """
    require_administrator(plpy)
    name = check_name(request.name)
    _check_free(plpy, name)
    read = parse_expression(request.expression)
    with caller_session(plpy, writes=True) as session:
        session.write("_register_function", name, None, None, None, read.text, read.places)


def _check_free(plpy: Any, name: str) -> None:
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


@entry_of(UnregisterFunctionRequest)
def unregister_function(plpy: Any, gd: dict[str, Any], request: UnregisterFunctionRequest) -> None:
    """Free a name.

    Raises:
        NotPermitted: the caller is no administrator.
        InvalidArgument: nothing has that name.
    """
    require_administrator(plpy)
    name = check_name(request.name)
    with caller_session(plpy, writes=True) as session:
        removed = session.write("_unregister_function", name)
    if not removed:
        known = ", ".join(_names(plpy)) or "none is registered"
        raise InvalidArgument(
            f"name: got {name!r}; registered functions: {known}",
            hint="cerebro.registered_functions shows them",
        )
