"""Declarations of SQL functions: a struct each, the only place where its arguments are named.

``@sql.function`` registers a struct with the name of its function. From these come

- the SQL: ``requests/sql.py`` writes CREATE FUNCTION, the body that hands the arguments by name to an entry of ``server/``, and
  COMMENT, from the docstring (templates in ``sql/objects`` say ``{{ function('cerebro_pack') }}``);
- the check of values: whoever has a request has values that are in their ranges, since ``Request`` checks them when
  it is made (``ge``, ``le``, ``max_length``, ``Literal``, and None where it is not allowed);
- the check of JSON: ``Function.checked`` of a call that a job or a schedule makes;
- methods of the client, options of commands, and the tables of arguments in ``docs/sql``, with the meanings that the
  docstring lists under "Attributes", in Markdown;
- whether jobs may call it (``job``).
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

import msgspec
from msgspec import Meta

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.messages import (
    MAX_DESCRIPTION,
    MAX_NAME,
    check_choice,
    check_range,
    check_text,
    shown,
)
from cerebro_db.errors import InvalidArgument

BIGINT, JSON, INTERVAL = (Meta(extra={"sql": one}) for one in ("bigint", "json", "interval"))
Text = str | None
Integer = int | None
BigInt = Annotated[int, BIGINT] | None
Number = float | None
Flag = bool | None
Bytes = bytes | None
Json = Annotated[str, JSON] | None
Interval = Annotated[str, INTERVAL] | None
Integers = Sequence[int | None] | None
Numbers = Sequence[float | None] | None
Texts = Sequence[str | None] | None
MAX_WORKERS = 256
Priority = Annotated[int, Meta(ge=-100, le=100)]
Workers = Annotated[int, Meta(ge=1, le=MAX_WORKERS)] | None
Name = Annotated[str, Meta(max_length=MAX_NAME)] | None
Description = Annotated[str, Meta(max_length=MAX_DESCRIPTION)] | None
OnError = Literal["stop", "ignore"]

# SQL types of Python's, and what a message calls a value of one out of JSON.
_TYPES = {str: "text", int: "integer", float: "double precision", bool: "boolean", bytes: "bytea"}
_SHOWN = {
    "boolean": "true or false",
    "integer": "a whole number",
    "bigint": "a whole number",
    "double precision": "a number",
    "json": "JSON",
    "jsonb": "JSON",
}
_NUMBERS: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "bigint": int,
    "double precision": (int, float),
}
_ATTRIBUTES = "Attributes:"
_ENTRY = re.compile(r"\n {4}(?=\S)")
# About how a call is made, which a job decides.
OF_CALLS = frozenset({"wait", "priority"})
RUN = "run_id"


# -- whether jobs may call a function ----------------------------------------------
class Unscheduled(msgspec.Struct, frozen=True):
    """A function that no job calls; ``why`` is the rest of a sentence about it."""

    why: str


READS = Unscheduled("changes nothing")
ATTENDED = Unscheduled("is for a session that waits for it")


class Job(msgspec.Struct, frozen=True):
    """A function that changes data: jobs and schedules may call it.

    Attributes:
        makes: the argument that names the table that it makes.
        suffixes: of the tables that it may make, which later calls may read.
        reads: arguments that name tables that it reads.
        steps: name of the ``Steps`` of ``job_calls`` that check it, or register its run; None where its tables are
            looked up, and the function is called in a session.
    """

    makes: str | None = None
    suffixes: tuple[str, ...] = ("",)
    reads: tuple[str, ...] = ()
    steps: str | None = None


# -- arguments ---------------------------------------------------------------------
class Argument(msgspec.Struct, frozen=True):
    """An argument of a function.

    Attributes:
        type: of SQL.
        default: SQL of it; None where the argument must be given.
        optional: whether it may be NULL.
        bounds: least and greatest value, or None.
        longest: characters of a text, or None.
        choices: words that are allowed; none where all are.
    """

    name: str
    type: str
    default: str | None
    optional: bool = True
    bounds: tuple[int, int] | None = None
    longest: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The argument as SQL declares it."""
        rest = "" if self.default is None else f" DEFAULT {self.default}"
        return f"{self.name} {self.type}{rest}"

    def check(self, value: Any) -> None:
        """Refuse a value that is out of its range, none of the choices, or missing.

        Raises:
            InvalidArgument: it is.
        """
        if self.bounds is not None:
            check_range(self.name, value, *self.bounds, optional=self.optional)
        elif self.longest is not None:
            check_text(self.name, value, self.longest)
        elif self.choices and not (value is None and self.optional):
            check_choice(self.name, value, self.choices)

    def fits(self, value: object) -> bool:
        """True if a value out of JSON is of the type."""
        return _fits(self.type, value)

    def bound(self, value: object) -> Any:
        """A value out of JSON as a parameter of a statement."""
        is_json = self.type in ("json", "jsonb")
        if isinstance(value, dict) or (isinstance(value, list) and not self.type.endswith("[]")):
            return json.dumps(value)
        return json.dumps(value) if is_json and not isinstance(value, str | None) else value


def _argument(name: str, hint: Any, default: Any) -> Argument:
    base, metas, optional = _resolved(hint)
    extra = {key: value for one in metas for key, value in (one.extra or {}).items()}
    found = {
        key: value
        for one in metas
        for key in ("ge", "le", "max_length")
        if (value := getattr(one, key)) is not None
    }
    return Argument(
        name,
        extra.get("sql") or _sql_type(base),
        None if default is msgspec.NODEFAULT else _literal(default),
        optional,
        (found["ge"], found["le"]) if "ge" in found else None,
        found.get("max_length"),
        get_args(base) if get_origin(base) is Literal else (),
    )


def _resolved(hint: Any) -> tuple[Any, list[Meta], bool]:
    """The first type of a hint, all that is said of it, and whether None is of it."""
    if get_origin(hint) is Annotated:
        base, metas, optional = _resolved(hint.__origin__)
        return base, [*metas, *hint.__metadata__], optional
    if get_origin(hint) in (Union, types.UnionType):
        parts = [one for one in get_args(hint) if one is not type(None)]
        base, metas, _ = _resolved(parts[0])
        return base, metas, len(parts) < len(get_args(hint))
    return hint, [], False


def _sql_type(base: Any) -> str:
    if get_origin(base) is Literal:
        return "text"
    return _TYPES.get(base) or f"{_sql_type(_resolved(get_args(base)[0])[0])}[]"


def _literal(value: object) -> str:
    """A default as SQL writes it."""
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"ARRAY[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _fits(kind: str, value: object) -> bool:
    if value is None or kind in ("json", "jsonb"):
        return True
    if kind.endswith("[]"):
        return isinstance(value, list) and all(_fits(kind.removesuffix("[]"), one) for one in value)
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    return isinstance(value, _NUMBERS.get(kind, str))


def _as_written(value: object) -> str:
    """A value as who wrote its JSON has written it."""
    return json.dumps(value) if isinstance(value, bool) or value is None else shown(value)


# -- requests and their functions ----------------------------------------------------
class Request(msgspec.Struct, dict=True):
    """The arguments of a call, as given, in their ranges.

    Attributes:
        inherits_context: whether fields of its parents are no arguments of its function, but what a request has
            beside them.
    """

    function: ClassVar[Function]
    inherits_context: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse values that no table could make right."""
        for one in self.function.arguments.values():
            one.check(getattr(self, one.name))

    def given(self) -> dict[str, Any]:
        """The arguments by name, but for those about how the call is made."""
        names = self.function.arguments
        return {name: getattr(self, name) for name in names if name not in OF_CALLS}


class Overload(msgspec.Struct, frozen=True):
    """A function with another type of one argument, up to which all must be given, so that a call is not ambiguous.

    One with a text beside an array, or JSON, is there for literals.
    """

    argument: str
    type: str
    comment: str


class Function(msgspec.Struct, frozen=True, dict=True):
    """An SQL function.

    Attributes:
        returns: what it returns; empty where ``out`` tells all.
        out: columns that it returns.
        entry: module and function below ``cerebro_db.server`` that does it; None where it has a body of its own.
        by: ``driver``, or ``trainer`` of the session.
        body: Python of the body, where that calls no entry.
        volatility: STABLE or IMMUTABLE; empty for VOLATILE.
        job: whether jobs may call it, and what they must know.
        request: its struct.
    """

    name: str
    returns: str
    request: type[Request]
    out: str = ""
    entry: str | None = None
    by: str = "driver"
    body: str | None = None
    volatility: str = ""
    job: Job | Unscheduled = Job()
    overloads: tuple[Overload, ...] = ()

    @functools.cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """The arguments by name, in their order."""
        hints = get_type_hints(self.request, include_extras=True)
        defaults = {one.name: one.default for one in msgspec.structs.fields(self.request)}
        names = self.request.__annotations__ if self.request.inherits_context else defaults
        return {
            name: _argument(name, hints[name], defaults[name]) for name in names if name in defaults
        }

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of its arguments; an argument that must be given has none."""
        known = {one.name: one.default for one in msgspec.structs.fields(self.request)}
        return {name: known[name] for name, one in self.arguments.items() if one.default}

    @property
    def _documentation(self) -> str:
        """The docstring of its request; Python before 3.13 keeps the indentation of the source."""
        return inspect.cleandoc(self.request.__doc__ or "")

    @property
    def comment(self) -> str:
        """The COMMENT of the function, in one line."""
        return " ".join(self._documentation.partition(_ATTRIBUTES)[0].split())

    @functools.cached_property
    def meanings(self) -> list[tuple[tuple[str, ...], str]]:
        """The meaning of its arguments, in Markdown: names that share one, and the text."""
        found = []
        for entry in _ENTRY.split(self._documentation.partition(_ATTRIBUTES)[2])[1:]:
            names, _, text = " ".join(entry.split()).partition(": ")
            found.append((tuple(names.split(", ")), text))
        return found

    @functools.cached_property
    def signatures(self) -> list[tuple[Argument, ...]]:
        """The arguments of the function, and those of each overload."""
        found = tuple(self.arguments.values())
        return [found, *(_varied(found, one) for one in self.overloads)]

    def checked(self, given: object, *, has_run: bool = False) -> dict[str, Any]:
        """Arguments by name out of JSON, each of its type.

        Args:
            given: them, as JSON has them.
            has_run: whether a call before makes a run, which this one means where it names none.

        Raises:
            InvalidArgument: one is unknown, missing, or of another type.
        """
        if not isinstance(given, dict):
            raise InvalidArgument(
                f"{self.name}: got {_as_written(given)}; allowed: an object with its arguments by name"
            )
        names = [name for name in self.arguments if name not in OF_CALLS]
        for argument in given:
            if argument not in names:
                raise unknown(self.name, "argument", argument, names)
        for name in names:
            is_there = name in given or self.arguments[name].default is not None
            if not is_there and not (has_run and name == RUN):
                raise InvalidArgument(f"{self.name}: {name} is missing")
        self._fitting(given)
        return dict(given)

    def _fitting(self, given: Mapping[str, Any]) -> tuple[Argument, ...]:
        """The first signature of whose types the arguments are.

        Raises:
            InvalidArgument: there is none.
        """
        wrong: list[Argument] = []
        for signature in self.signatures:
            known = {one.name: one for one in signature}
            bad = [name for name, value in given.items() if not known[name].fits(value)]
            if not bad:
                return signature
            name = wrong[0].name if wrong else bad[0]
            wrong.append(known[name])
        allowed = ", ".join(dict.fromkeys(_shown_type(one.type) for one in wrong))
        name = wrong[0].name
        raise InvalidArgument(
            f"{self.name}: {name}: got {_as_written(given[name])}; allowed: {allowed}"
        )

    def bound(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments out of JSON as values of the request."""
        return {name: self.arguments[name].bound(value) for name, value in given.items()}

    def statement(self, given: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The statement that calls the function with arguments out of JSON, and its values."""
        texts, values = [], []
        for one in self._fitting(given):
            default = self.arguments[one.name].default
            if one.name in given:
                texts.append(f"{one.name} := %s::{one.type}")
                values.append(one.bound(given[one.name]))
            elif one.default is None and default is not None:
                texts.append(f"{one.name} := {default}".replace("%", "%%"))
        return f"SELECT cerebro.{self.name}({', '.join(texts)})", values


def _varied(arguments: Sequence[Argument], how: Overload) -> tuple[Argument, ...]:
    names = [one.name for one in arguments]
    last = names.index(how.argument)
    before = [msgspec.structs.replace(one, default=None) for one in arguments[: last + 1]]
    before[last] = msgspec.structs.replace(before[last], type=how.type)
    return (*before, *arguments[last + 1 :])


def _shown_type(kind: str) -> str:
    return "an array" if kind.endswith("[]") else _SHOWN.get(kind, "a text")


# All functions that users call, by name; those of one name have other arguments.
FUNCTIONS: dict[str, tuple[Function, ...]] = {}
R = TypeVar("R", bound=Request)


def function(name: str, returns: str, **how: Any) -> Callable[[type[R]], type[R]]:
    """Declare the function whose arguments a struct has.

    Args:
        name, returns, how: as ``Function`` has them.
    """

    def declare(request: type[R]) -> type[R]:
        request.function = Function(name, returns, request, **how)
        FUNCTIONS[name] = (*FUNCTIONS.get(name, ()), request.function)
        return request

    return declare


_MOST_SHOWN = 8


def usage(name: str, message: str | None = None) -> str | None:
    """Signature of a function, such as ``cerebro.cerebro_pause(run_id bigint)``; None where unknown.

    Functions of the same name with other arguments are there too, after "or". Where there are many arguments, a
    message is given only those that it begins with, or which must be given.
    """
    shown = [_usage(one, message) for one in FUNCTIONS.get(name, ())]
    return " or ".join(shown) or None


def _usage(function: Function, message: str | None) -> str:
    arguments = list(function.arguments.values())
    texts = [one.text for one in arguments]
    if message is not None and len(arguments) > _MOST_SHOWN:
        names = message.partition(":")[0].split(", ")
        named = [one.text for one in arguments if one.name in names]
        texts = _left_out(texts, named or [one.text for one in arguments if one.default is None])
    return f"cerebro.{function.name}({', '.join(texts)})"


def _left_out(arguments: Sequence[str], kept: Sequence[str]) -> list[str]:
    """Some of the arguments, with dots in the place of others."""
    found: list[str] = []
    for one in arguments:
        if one in kept:
            found.append(one)
        elif found[-1:] != ["..."]:
            found.append("...")
    return found
