"""Methods of the client: the functions of SQL with the arguments that they are declared with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cerebro_db.errors import InvalidArgument
from cerebro_db.requests import FUNCTIONS, Function, Request

PREFIX = "cerebro_"
_PLACE, _NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
_SELF = inspect.Parameter("self", _PLACE)


def takes(request: type[Request], **defaults: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a method that hands on the arguments of a declared function.

    The method gets those that are given, by name, and its own keywords.

    Args:
        request: declares the arguments.
        defaults: of arguments that SQL wants to be given.
    """
    function = request.function

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        own = [one for one in inspect.signature(method).parameters.values() if one.kind is _NAME]

        @functools.wraps(method)
        def wrapper(self: Any, *values: Any, **named: Any) -> Any:
            more = {one.name: named.pop(one.name) for one in own if one.name in named}
            given = placed([function], values, named)
            return method(self, defaults | given, **more)

        vars(wrapper)["__signature__"] = _signature(function, own, defaults)
        wrapper.__doc__ = f"{inspect.getdoc(method)}\n\n{described(function)}"
        return wrapper

    return decorate


def method_of(functions: Sequence[Function]) -> Callable[..., Any]:
    """A method that calls a function, or one of several of the same name.

    It returns the name of the table that the function makes, where SQL returns nothing.
    """
    first = functions[0]

    def method(self: Any, *values: Any, **named: Any) -> Any:
        given = placed(functions, values, named)
        return self._call(first.name, given)

    method.__name__ = method.__qualname__ = first.name.removeprefix(PREFIX)
    method.__doc__ = "\n\n".join(f"{one.comment}\n\n{described(one)}" for one in functions)
    if len(functions) == 1:
        vars(method)["__signature__"] = _signature(first, [], {})
    return method


def placed(
    functions: Sequence[Function], values: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, but for those that are None and have a default.

    Raises:
        InvalidArgument: there are too many, or one is given twice or has no such name.
    """
    name = functions[0].name.removeprefix(PREFIX)
    listed = sorted((list(one.arguments) for one in functions), key=len)
    fitting = [names for names in listed if set(named) <= set(names)]
    names = fitting[0] if fitting else listed[-1]
    if len(values) > len(names):
        raise InvalidArgument(
            f"{name}: got {len(values)} arguments; allowed: {len(names)}: {', '.join(names)}"
        )
    found = dict(zip(names, values, strict=False))
    wrong = [key for key in named if key in found or key not in names]
    if wrong:
        how = "twice" if wrong[0] in found else "of no such name"
        raise InvalidArgument(
            f"{name}: got the argument {wrong[0]} {how}; allowed: {', '.join(names)}"
        )
    optional = {name for one in functions for name in one.defaults}
    found |= named
    return {name: one for name, one in found.items() if one is not None or name not in optional}


def described(function: Function) -> str:
    """The arguments of a function as a docstring lists them."""
    return "\n".join(
        ["Args:", *(f"    {', '.join(names)}: {text}" for names, text in function.meanings)]
    )


def _signature(
    function: Function, own: Sequence[inspect.Parameter], defaults: Mapping[str, Any]
) -> inspect.Signature:
    known = {**function.defaults, **defaults}
    found, is_optional = [_SELF], False
    for name in function.arguments:
        is_optional = is_optional or name in known
        default = known.get(name, None if is_optional else inspect.Parameter.empty)
        found.append(inspect.Parameter(name, _PLACE, default=default))
    return inspect.Signature([*found, *own])


def all_methods() -> dict[str, Callable[..., Any]]:
    """A method for each function, by its name."""
    return {name.removeprefix(PREFIX): method_of(found) for name, found in FUNCTIONS.items()}
