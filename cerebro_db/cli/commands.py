"""Commands whose arguments are those of SQL functions, as they are declared, and calls of these functions.

What must be given is an argument of the command, all else an option. The help is the beginning of what the
documentation says of each.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_db.cli.output import AsJson, to_stderr
from cerebro_db.errors import InvalidArgument, LoopbackFailed
from cerebro_db.requests.declared import FUNCTIONS, OF_CALLS, Argument, Function, Request

if TYPE_CHECKING:
    from cerebro_db.postgres.calls.host import Client
    from cerebro_db.postgres.sessions.connections import Connections
    from cerebro_db.postgres.sessions.session import Session

Choice = Callable[[Mapping[str, Any]], tuple[type[Request], str]]
# As a shell tells of a program that Ctrl-C ended.
INTERRUPTED = 130
Dsn = Annotated[
    str,
    typer.Option(
        help='The database: "host=... dbname=...", a postgresql:// URL, or empty for libpq\'s'
        " environment variables.",
        show_default=False,
    ),
]
RunId = Annotated[int, typer.Argument(help="As cerebro.runs shows it.")]

_PYTHON: Mapping[str, Any] = {
    "text": str, "json": str, "interval": str, "boolean": bool, "integer": int, "bigint": int,
    "double precision": float, "integer[]": list[int], "text[]": list[str],
}  # fmt: skip
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ELSEWHERE = re.compile(r"as in \[?`(cerebro_\w+)`.*")
_MOST_HELP = 100


# -- databases -----------------------------------------------------------------------
def client_of(dsn: str) -> Client:
    """A client of a database."""
    from cerebro_db.postgres.calls.host import Client

    return Client.of(dsn)


def session_of(dsn: str) -> Session:
    """A session on a database."""
    return client_of(dsn).pool.take(1)[0]


@contextmanager
def database_of(dsn: str) -> Iterator[Connections]:
    """A connection with the settings of the role; Ctrl-C cancels what it does, and ends the program."""
    from cerebro_db.postgres.sessions.connections import connections_of

    try:
        connections = connections_of(dsn)
    except LoopbackFailed as error:
        error.hint = "--dsn tells where the server is; without it libpq's environment variables do"
        raise
    try:
        yield connections
    except KeyboardInterrupt:
        to_stderr("cerebro: cancelled")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        connections.close()


def called(dsn: str, request: Request) -> list[tuple[Any, ...]]:
    """Call the function of a request in the database; returns its rows."""
    given = {name: getattr(request, name) for name in request.function.arguments}
    sql, values = request.function.statement(given)
    with database_of(dsn) as connections:
        return connections.patiently(sql.replace("SELECT", "SELECT * FROM", 1), values)[1]


# -- commands ------------------------------------------------------------------------
def command_of(
    requests: type[Request] | Sequence[type[Request]],
    run: Callable[..., None],
    *,
    help: str | None = None,
    options: Mapping[str, str] = {},
    optional: Sequence[str] = (),
    places: Sequence[str] = (),
    leaves: Sequence[str] = (),
    more: Mapping[str, tuple[Any, Any]] = {},
) -> Callable[..., None]:
    """A command for typer.

    Args:
        requests: declare the arguments; of several, what only some of them have is optional.
        run: does it; gets a function that makes the request, and ``dsn``, ``as_json`` and what ``more`` adds.
            Of several requests that function is given a choice: from the values to the request to be made, and
            why others' arguments are none of it.
        help: about the command; by default what is said of the first function.
        options: names of the command for some of the arguments; one that must be given is an option then.
        optional: arguments that need not be given here, and are NULL then.
        places: arguments of the command although they have a default.
        leaves: arguments that the command has not.
        more: further parameters of the command: type and default.
    """
    kinds = requests if isinstance(requests, Sequence) else [requests]
    listed: dict[str, tuple[Function, Argument]] = {}
    for function in (one.function for one in kinds):
        listed |= {
            name: listed.get(name, (function, one))
            for name, one in function.arguments.items()
            if name not in leaves and not (name in OF_CALLS and "wait" in function.arguments)
        }
    defaults = _defaults(kinds) | dict.fromkeys(optional)
    parameters = [
        _parameter(function, one, options.get(name), defaults, is_placed=name in places)
        for name, (function, one) in listed.items()
    ]
    parameters += [_more("dsn", Dsn, ""), *(_more(name, *one) for name, one in more.items())]
    parameters.append(_more("as_json", AsJson, False))
    names = {options.get(name, name): name for name in listed}

    def command(**given: Any) -> None:
        values = {own: given.pop(name) for name, own in names.items()}
        values = {name: None if one == [] else one for name, one in values.items()}

        def make(choose: Choice = lambda values: (kinds[0], ""), **context: Any) -> Request:
            return _made(*choose(values), values, context)

        run(make, **given)

    # What has no default comes first, as Python wants it.
    ordered = sorted(parameters, key=lambda one: one.default is not inspect.Parameter.empty)
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in ordered}
    command.__doc__ = help or _help(kinds[0].function.comment)
    return command


def _made(
    kind: type[Request], why: str, values: Mapping[str, Any], context: Mapping[str, Any]
) -> Request:
    """A request of the values that are given, with the function's own defaults for the others.

    Raises:
        InvalidArgument: the function has no such argument; ``why`` says more.
    """
    function = kind.function
    for name, value in values.items():
        if name not in function.arguments and value not in (None, False):
            raise InvalidArgument(f"got --{name.replace('_', '-')} {why}")
    given = {
        name: value
        for name, value in values.items()
        if name in function.arguments and not (value is None and name in function.defaults)
    }
    return kind(**given, **context)


def _defaults(kinds: Sequence[type[Request]]) -> dict[str, Any]:
    """Defaults of the parameters; of several functions each has its own where nothing is given."""
    if len(kinds) == 1:
        return kinds[0].function.defaults
    functions = [one.function for one in kinds]
    optional = [
        (name, one)
        for function in functions
        for name, one in function.arguments.items()
        if one.default is not None or any(name not in other.arguments for other in functions)
    ]
    return {name: False if one.type == "boolean" else None for name, one in optional}


def _more(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _parameter(
    function: Function,
    one: Argument,
    name: str | None,
    defaults: Mapping[str, Any],
    *,
    is_placed: bool,
) -> inspect.Parameter:
    """An argument, or an option where it has a default or a name of its own."""
    kind, help = _PYTHON[one.type], _help(_meaning(function, one.name))
    default = defaults.get(one.name, inspect.Parameter.empty)
    annotation = kind if default is not None else kind | None
    if is_placed or (default is inspect.Parameter.empty and name is None):
        what = typer.Argument(help=help, show_default=False)
        return _more(one.name, Annotated[annotation, what], default)
    shown = [f"--{(name or one.name).replace('_', '-')}"] if default is False else []
    shown = [f"-{one.name}"] if len(one.name) == 1 else shown
    option = typer.Option(*shown, help=help, show_default=default is not None)
    return _more(name or one.name, Annotated[annotation, option], default)


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
