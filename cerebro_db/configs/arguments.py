"""Describes the named arguments of a Keras object and validates values for them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cerebro_db.configs.grammar import Call
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_LONGEST_NAME = 80
INTEGER_LIMIT = 2**31 - 1
_MOST_REPETITIONS = 1


class Kind(StrEnum):
    """Kind of value that an argument holds."""

    FLOAT = "a number"
    INT = "a whole number"
    BOOL = "True or False"
    TEXT = "a text"
    PATTERNS = "a regular expression (no groups, no {}, at most one of * + ?) or a list of them"
    FLOATS = "a number or a list of numbers"
    INTS = "a whole number or a list of whole numbers"
    OBJECT = "an object of Keras"
    VALUE = "a text, a number, True or False"


_LISTS = (Kind.FLOATS, Kind.INTS, Kind.PATTERNS)


@dataclass(frozen=True)
class Argument:
    """One named argument: its type, its default and what is allowed.

    Args:
        low, high: bounds of a number, themselves allowed unless `low_open` or `high_open`.
        choices: the only texts allowed.
        optional: whether None is allowed.
        required: whether there is no default.
    """

    name: str
    kind: Kind
    default: Any = None
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    required: bool = False

    def validated(self, value: object, what: str) -> Any:
        """Returns the value in its canonical type; lists become tuples."""
        if value is None and self.optional:
            return None
        may_be_empty = self.kind is Kind.PATTERNS
        if self.kind in _LISTS and isinstance(value, list | tuple) and (value or may_be_empty):
            return tuple(self._single(element, what) for element in value)
        single = self._single(value, what)
        return (single,) if self.kind is Kind.PATTERNS else single

    def allowed(self) -> str:
        """Says in words what is allowed."""
        if self.choices:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        words = self.kind.value + self._bounds()
        return words + (" or None" if self.optional else "")

    def is_numeric(self) -> bool:
        """True if a range may be searched for it."""
        return self.kind not in (Kind.BOOL, Kind.TEXT, Kind.PATTERNS, Kind.OBJECT, Kind.VALUE)

    def is_whole(self) -> bool:
        """True if values of a range are rounded."""
        return self.kind in (Kind.INT, Kind.INTS)

    def _bounds(self) -> str:
        lowest, highest = _plain(self.low), _plain(self.high)
        low = "" if self.low is None else f" {'above' if self.low_open else 'from'} {lowest}"
        high = "" if self.high is None else f" {'below' if self.high_open else 'to'} {highest}"
        return low + high

    def _single(self, value: object, what: str) -> Any:
        result = _typed(self.kind, value)
        fits = result is not None and (not self.choices or result in self.choices)
        if not fits or (self.is_numeric() and not self._in_range(result)):
            raise InvalidArgument(
                f"{what}: got {self.name}={_written(value)}; it must be {self.allowed()}"
            )
        return result

    def _in_range(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.high_open)


def _typed(kind: Kind, value: object) -> Any:
    """Returns the value in the type of its kind, or None where it is of another type."""
    if kind is Kind.BOOL:
        return value if isinstance(value, bool) else None
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else None
    if kind is Kind.VALUE and isinstance(value, str | bool):
        return value
    if kind is Kind.PATTERNS:
        return value if isinstance(value, str) and _is_pattern(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if kind is Kind.VALUE:
        return value
    if kind in (Kind.FLOAT, Kind.FLOATS):
        return float(value)
    return int(value) if value == int(value) and abs(value) <= INTEGER_LIMIT else None


def _plain(bound: float | None) -> str:
    """A bound as one reads it: all digits of a whole number."""
    return str(bound) if bound is None or isinstance(bound, int) else f"{bound:g}"


def _written(value: object) -> str:
    """A value as it was given; a name alone has no parentheses."""
    if isinstance(value, Call) and not value.arguments and not value.values:
        return value.name
    return shown(value)


def _is_pattern(text: str) -> bool:
    """True if a text is a regular expression that no text can keep busy for long."""
    if set(text) & set("({") or sum(map(text.count, "*+?")) > _MOST_REPETITIONS:
        return False
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def number(name: str, default: float | None, low: float | None = 0.0, **more: Any) -> Argument:
    """An argument that is a number; optional where its default is None."""
    optional = bool(more.pop("optional", default is None and not more.get("required")))
    return Argument(name, Kind.FLOAT, default, low, optional=optional, **more)


def fraction(name: str, default: float | None, **more: Any) -> Argument:
    """An argument that is a number from 0 to below 1."""
    return number(name, default, high=1.0, **{"high_open": True, **more})


def whole(name: str, default: int | None, low: int | None = 0, **more: Any) -> Argument:
    """An argument that is a whole number; optional where its default is None."""
    optional = default is None and not more.get("required")
    return Argument(name, Kind.INT, default, low, optional=optional, **more)


def flag(name: str, default: bool) -> Argument:
    """An argument that is True or False."""
    return Argument(name, Kind.BOOL, default)


def patterns(name: str) -> Argument:
    """An argument that is some regular expressions, or none."""
    return Argument(name, Kind.PATTERNS, optional=True)


def choice(name: str, default: str | None, *choices: str) -> Argument:
    """An argument that is one of some texts."""
    return Argument(name, Kind.TEXT, default, choices=choices, optional=default is None)


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns a hint with the allowed name nearest to a wrong one, or all where none is near."""
    allowed = sorted({str(candidate) for candidate in names})
    lower = {candidate.lower(): candidate for candidate in allowed}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if found:
        return f"Did you mean {lower[found[0]]!r}?"
    return "Allowed: " + ", ".join(allowed) + "."


def unknown(what: str, kind: str, name: str, names: Iterable[str]) -> InvalidArgument:
    """Builds the error for a name that is not in a table."""
    hint = nearest(name[:_LONGEST_NAME], names)
    return InvalidArgument(f"{what}: got the unknown {kind} {shown(name)}. {hint}")


def validated_arguments(
    table: tuple[Argument, ...],
    given: Mapping[str, object],
    aliases: Mapping[str, str],
    what: str,
) -> tuple[tuple[str, Any], ...]:
    """Validates given arguments and returns those that differ from the defaults, in table order."""
    by_name = {argument.name: argument for argument in table}
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = aliases.get(key, key)
        if name not in by_name:
            known = (*by_name, *(alias for alias, of in aliases.items() if of in by_name))
            raise unknown(what, "argument", key, known)
        if name in values:
            spellings = [each for each in given if aliases.get(each, each) == name]
            raise InvalidArgument(f"{what}: got {' and '.join(spellings)}, which mean the same")
        values[name] = by_name[name].validated(value, what)
    for argument in table:
        if argument.required and argument.name not in values:
            raise InvalidArgument(f"{what}: {argument.name} must be given, {argument.allowed()}")
    return tuple(
        (argument.name, values[argument.name])
        for argument in table
        if argument.name in values
        and (argument.required or values[argument.name] != argument.default)
    )


def named_arguments(
    given: Mapping[str, Any], table: Iterable[Argument], what: str
) -> dict[str, Any]:
    """Values by the names of arguments, which may be written in any case that tells them apart."""
    names = [argument.name for argument in table]
    found: dict[str, Any] = {}
    for key, value in given.items():
        alike = [name for name in names if name.lower() == key.lower()]
        name = key if key in names or len(alike) != 1 else alike[0]
        if name not in names:
            raise unknown(what, "parameter", key, names)
        if name in found:
            raise InvalidArgument(f"{what}: got {name} twice; allowed: once")
        found[name] = value
    return found


def with_defaults(table: tuple[Argument, ...], values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Returns every argument with its value or else its default."""
    return {argument.name: argument.default for argument in table} | dict(values)


MAX_OUTPUTS = 100
T = TypeVar("T")


@dataclass(frozen=True)
class ByOutput(Generic[T]):
    """One value for each output.

    Attributes:
        values: in the order of the outputs, or of ``names``.
        names: of the outputs; None where the order counts.
    """

    values: tuple[T, ...]
    names: tuple[str, ...] | None = None

    def of(self, outputs: Sequence[str], what: str) -> tuple[T | None, ...]:
        """The values in the order of a model's outputs, None for those that are not named.

        Raises:
            InvalidArgument: there are more or fewer, or a name that no output has.
        """
        if self.names is None:
            if len(self.values) != len(outputs):
                raise InvalidArgument(
                    f"{what}: got {len(self.values)} for the {len(outputs)} outputs of the model; "
                    "allowed: one for each output, in their order"
                )
            return self.values
        for name in self.names:
            if outputs.count(name) != 1:
                raise InvalidArgument(
                    f"{what}: got {shown(name)}; allowed: names of outputs, which are the layers "
                    f"that make them. {nearest(name[:80], outputs)}"
                )
        found = dict(zip(self.names, self.values, strict=True))
        return tuple(found.get(name) for name in outputs)


def by_output(value: object, parse: Callable[[object], T], what: str) -> ByOutput[T]:
    """Reads a list, or a dictionary from names of outputs.

    Raises:
        InvalidArgument: it is empty or too long, or a key is no text.
    """
    names: tuple[str, ...] | None = None
    values: list[object] = []
    if isinstance(value, dict):
        values = list(value.values())
        names = tuple(name for name in value if isinstance(name, str) and name)
    elif isinstance(value, list | tuple):
        values = list(value)
    if not 0 < len(values) <= MAX_OUTPUTS or (names is not None and len(names) != len(values)):
        raise InvalidArgument(
            f"{what}: got {shown(value)}; it must be a list with one element for each output, or a "
            f"dictionary from names of outputs, for at most {MAX_OUTPUTS} of them"
        )
    return ByOutput(tuple(parse(element) for element in values), names)
