"""Commands whose arguments are those of an SQL function, as it is declared.

What must be given is an argument of the command, all else an option. The help is the beginning of what the
documentation says of each.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson
from cerebro_db.requests.declared import FUNCTIONS, OF_CALLS, Argument, Function, Request

_PYTHON = {
    "text": str, "json": str, "boolean": bool, "integer": int, "bigint": int, "double precision": float,
    "integer[]": list[int], "text[]": list[str],
}  # fmt: skip
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ELSEWHERE = re.compile(r"as in \[?`(cerebro_\w+)`.*")
_MOST_HELP = 100


def command_of(
    request: type[Request],
    run: Callable[..., None],
    *,
    options: Mapping[str, str] = {},
    optional: Sequence[str] = (),
    leaves: Sequence[str] = (),
    more: Mapping[str, tuple[Any, Any]] = {},
) -> Callable[..., None]:
    """A command for typer.

    Args:
        request: declares the arguments.
        run: does it; gets a function that makes the request, and ``dsn``, ``as_json`` and what ``more`` adds.
        options: names of the command for some of the arguments; one that must be given is an option then.
        optional: arguments that need not be given here, and are NULL then.
        leaves: arguments that the command has not.
        more: further parameters of the command: type and default.
    """
    function = request.function
    listed = [one for name, one in function.arguments.items() if name not in (*OF_CALLS, *leaves)]
    defaults = function.defaults | dict.fromkeys(optional)
    parameters = [_parameter(function, one, options.get(one.name), defaults) for one in listed]
    parameters += [_more("dsn", Dsn, ""), *(_more(name, *one) for name, one in more.items())]
    parameters.append(_more("as_json", AsJson, False))
    names = {options.get(one.name, one.name): one.name for one in listed}

    def command(**given: Any) -> None:
        values = {own: given.pop(name) for name, own in names.items()}
        run(lambda **context: request(**values, **context), **given)

    # What has no default comes first, as Python wants it.
    ordered = sorted(parameters, key=lambda one: one.default is not inspect.Parameter.empty)
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in ordered}
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    return command


def _more(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _parameter(
    function: Function, one: Argument, name: str | None, defaults: Mapping[str, Any]
) -> inspect.Parameter:
    """An argument, or an option where it has a default or a name of its own."""
    kind = _PYTHON[one.type]
    default = defaults.get(one.name, inspect.Parameter.empty)
    is_needed = default is inspect.Parameter.empty
    if is_needed and name is None:
        return _more(
            one.name,
            _annotated(kind, typer.Argument(help=_help(_meaning(function, one.name)))),
            default,
        )
    shown = [f"--{(name or one.name).replace('_', '-')}"] if default is False else []
    shown = [f"-{one.name}"] if len(one.name) == 1 else shown
    option = typer.Option(
        *shown, help=_help(_meaning(function, one.name)), show_default=default is not None
    )
    return _more(
        name or one.name, _annotated(kind if default is not None else kind | None, option), default
    )


def _annotated(kind: Any, what: Any) -> Any:
    return Annotated[kind, what]


def _meaning(function: Function, name: str) -> str:
    """The description of an argument, which may be that of another function."""
    text = next((text for names, text in function.meanings if name in names), "")
    elsewhere = _ELSEWHERE.fullmatch(text)
    other = FUNCTIONS.get(elsewhere[1], ())[:1] if elsewhere else ()
    return _meaning(other[0], name) if other else text


def _help(text: str) -> str:
    """The beginning of a description without Markdown, as a sentence."""
    plain = _LINK.sub(r"\1", text).replace("`", "")
    for end in (". ", "; ", ": "):
        if len(plain) > _MOST_HELP and end in plain:
            plain = plain.partition(end)[0]
    plain = plain.rstrip(".")
    return f"{plain[:1].upper()}{plain[1:]}."
