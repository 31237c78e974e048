"""Declarations: what a user names, which arguments it has, and which values these may have.

Losses, metrics, optimizers, schedules, callbacks, operations between layers, functions of expressions, parameters of
strategies and of search methods are declared in this one form. A :class:`Constraint` says which values are allowed,
an :class:`Argument` is a name with a constraint, bounds and a default, a :class:`Declaration` is a name with arguments,
and :class:`Declarations` are all of one kind. The check of values, the messages, and the tests of values that are
refused follow from them.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from cerebro_db.configs.grammar import Call, named_values
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_LONGEST_NAME = 80
INTEGER_LIMIT = 2**31 - 1
_MOST_REPETITIONS = 1
Arguments = tuple[tuple[str, Any], ...]


class Constraint(msgspec.Struct, frozen=True):
    """Values that an argument may have.

    Attributes:
        words: what is allowed, for messages.
        read: returns a value in its canonical type.  Raises ValueError where it is not allowed.
        refused: some values that are not allowed, for tests.
        is_numeric: whether they are numbers, of which a range may be searched.
        is_whole: whether values of a range are rounded.
        takes_lists: whether a list of such values is allowed, too.
        is_list: whether a value alone counts as a list of one, and a list may be empty.
    """

    words: str
    read: Callable[[Any], Any]
    refused: tuple[Any, ...] = ()
    is_numeric: bool = False
    is_whole: bool = False
    takes_lists: bool = False
    is_list: bool = False


def _check(is_allowed: bool) -> None:
    if not is_allowed:
        raise ValueError


def is_number(value: object) -> bool:
    """True for a finite number whose whole part has 64 bits at most if it is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def is_whole(value: object, low: int = -INTEGER_LIMIT) -> bool:
    """True for a whole number of 32 bits that is written without a point."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= INTEGER_LIMIT


def _float(value: Any) -> float:
    _check(is_number(value))
    return float(value)


def _whole(value: Any) -> int:
    _check(is_number(value) and value == int(value) and abs(value) <= INTEGER_LIMIT)
    return int(value)


def _truth(value: Any) -> bool:
    _check(isinstance(value, bool))
    return bool(value)


def _text(value: Any) -> str:
    _check(isinstance(value, str))
    return str(value)


def _scalar(value: Any) -> Any:
    _check(isinstance(value, str | bool) or is_number(value))
    return value


def _pattern(value: Any) -> str:
    """A regular expression that no text can keep busy for long."""
    text = _text(value)
    _check(not set(text) & set("({") and sum(map(text.count, "*+?")) <= _MOST_REPETITIONS)
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        raise ValueError from None
    return text


def _nothing(value: Any) -> Any:
    raise ValueError


def allowed_if(words: str, check: Callable[[Any], bool], *refused: Any) -> Constraint:
    """The constraint of values that a function is true for; they are left as they are."""

    def read(value: Any) -> Any:
        _check(check(value))
        return value

    return Constraint(words, read, refused)


FLOAT = Constraint("a number", _float, ("nonsense", [1], True), is_numeric=True)
FLOATS = Constraint(
    "a number or a list of numbers", _float, ("nonsense", [], ["nonsense"]),
    is_numeric=True, takes_lists=True,
)  # fmt: skip
INT = Constraint(
    "a whole number", _whole, ("nonsense", [1], True, 0.5, 2**31), is_numeric=True, is_whole=True
)
INTS = Constraint(
    "a whole number or a list of whole numbers", _whole, ("nonsense", [], 0.5, [0.5]),
    is_numeric=True, is_whole=True, takes_lists=True,
)  # fmt: skip
BOOL = Constraint("True or False", _truth, ("nonsense", 1, [True]))
TEXT = Constraint("a text", _text, (7, True, ["nonsense"]))
PATTERNS = Constraint(
    "a regular expression (no groups, no {}, at most one of * + ?) or a list of them", _pattern,
    (7, "(a)", "a{2}", "a*b*", "[", ["+"]), takes_lists=True, is_list=True,
)  # fmt: skip
OBJECT = Constraint("an object of Keras", _nothing)
SCALAR = Constraint("a text, a number, True or False", _scalar, ([1], {}))


class Argument(msgspec.Struct, frozen=True):
    """A named argument: its constraint, its default and its bounds.

    Attributes:
        low, high: bounds of a number, themselves allowed unless `low_open` or `high_open`.
        choices: the only texts allowed.
        optional: whether None is allowed.
        required: whether there is no default.
    """

    name: str
    kind: Constraint
    default: Any = None
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    required: bool = False

    def validated(self, value: object, what: str) -> Any:
        """The value in its canonical type; lists become tuples.

        Raises:
            InvalidArgument: it is not allowed.
        """
        if value is None and self.optional:
            return None
        is_list = self.kind.takes_lists and isinstance(value, list | tuple)
        if is_list and (value or self.kind.is_list):
            return tuple(self._single(element, what) for element in value)  # type: ignore[attr-defined]
        single = self._single(value, what)
        return (single,) if self.kind.is_list else single

    def allowed(self) -> str:
        """Words for the values that are allowed."""
        if self.choices:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        words = self.kind.words + self._bounds()
        return words + (" or None" if self.optional else "")

    def refused(self) -> Iterator[Any]:
        """Some values that are refused: of other types, beyond the bounds, and other texts than the choices."""
        yield from self.kind.refused
        if self.choices:
            yield "none of the choices"
        if self.low is not None:
            yield self.low if self.low_open else self.low - 1
        if self.high is not None:
            yield self.high if self.high_open else self.high + 1

    def accepted(self) -> Iterator[Any]:
        """Some values that are allowed: the default, the bounds, the choices."""
        if not self.required:
            yield self.default
        yield from self.choices
        if self.low is not None and not self.low_open:
            yield self.low
        if self.high is not None and not self.high_open:
            yield self.high

    def _bounds(self) -> str:
        lowest, highest = _plain(self.low), _plain(self.high)
        low = "" if self.low is None else f" {'above' if self.low_open else 'from'} {lowest}"
        high = "" if self.high is None else f" {'below' if self.high_open else 'to'} {highest}"
        return low + high

    def _single(self, value: object, what: str) -> Any:
        try:
            result = self.kind.read(value)
            _check(not self.choices or result in self.choices)
            _check(not self.kind.is_numeric or self._in_range(result))
        except ValueError:
            raise InvalidArgument(
                f"{what}: got {self.name}={_written(value)}; it must be {self.allowed()}"
            ) from None
        return result

    def _in_range(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.high_open)


def _plain(bound: float | None) -> str:
    """A bound as one reads it: all digits of a whole number."""
    return str(bound) if bound is None or isinstance(bound, int) else f"{bound:g}"


def _written(value: object) -> str:
    """A value as it was given; a name alone has no parentheses."""
    if isinstance(value, Call) and not value.arguments and not value.values:
        return value.name
    return shown(value)


def number(name: str, default: float | None, low: float | None = 0.0, **more: Any) -> Argument:
    """An argument that is a number; optional where its default is None."""
    optional = bool(more.pop("optional", default is None and not more.get("required")))
    return Argument(name, FLOAT, default, low, optional=optional, **more)


def fraction(name: str, default: float | None, **more: Any) -> Argument:
    """An argument that is a number from 0 to below 1."""
    return number(name, default, high=1.0, **{"high_open": True, **more})


def whole(name: str, default: int | None, low: int | None = 0, **more: Any) -> Argument:
    """An argument that is a whole number; optional where its default is None."""
    optional = default is None and not more.get("required")
    return Argument(name, INT, default, low, optional=optional, **more)


def flag(name: str, default: bool) -> Argument:
    """An argument that is True or False."""
    return Argument(name, BOOL, default)


def choice(name: str, default: str | None, *choices: str) -> Argument:
    """An argument that is one of some texts."""
    return Argument(name, TEXT, default, choices=choices, optional=default is None)


class Target(StrEnum):
    """Form in which a loss or a metric wants the target of a row.

    IDS is the id of the class; ONEHOT one value per class. BINARY (0 or 1) and FLOAT (any number)
    have the shape of the model's output: class ids become one-hot where the output is wider than
    one. LOSS is what the loss wants.
    """

    IDS = "ids"
    ONEHOT = "onehot"
    BINARY = "binary"
    FLOAT = "float"
    LOSS = "same as loss"


class Declaration(msgspec.Struct, frozen=True):
    """Something with arguments that a text may name: a class of Keras, or a function.

    Attributes:
        by_place: so many of the arguments may be given without their names.
        names: other names in parameter texts; the first one is also the default label of a metric.
        target: what a loss or a metric wants.
        open_ended: whether more tensors may follow the arguments of a function.
    """

    name: str
    arguments: tuple[Argument, ...]
    by_place: int = 0
    names: tuple[str, ...] = ()
    target: Target = Target.LOSS
    open_ended: bool = False

    def given(self, call: Call, what: str) -> dict[str, Any]:
        """The arguments of a call by name, not checked yet."""
        places = tuple(argument.name for argument in self.arguments[: self.by_place])
        return named_values(call, places, what)

    def validated(self, call: Call, what: str) -> Arguments:
        """The arguments of a call that differ from the defaults."""
        return validated_arguments(self.arguments, self.given(call, what), {}, what)


class Declarations(Mapping[str, Declaration]):
    """Declarations of one kind by name, which texts may have a prefix to: ``keras.losses.``.

    Args:
        module: of Keras, such as ``losses``.
        kind: of what is declared, for messages.
        declared: what is allowed.
        refused: why others are not, by name.
    """

    def __init__(
        self,
        module: str,
        kind: str,
        declared: Iterable[Declaration],
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._module, self._kind, self.refused = module, kind, refused
        self._declared = {one.name: one for one in declared}
        self.prefixes = (
            "", f"{module}.", f"keras.{module}.", f"tf.keras.{module}.", f"tensorflow.keras.{module}.",
        )  # fmt: skip
        others = {name.lower(): one for one in self._declared.values() for name in one.names}
        # A class such as Accuracy may share its lower-case name with a function.
        self._by_name = {name.lower(): one for name, one in self._declared.items()} | others
        self._listed: Iterable[str] = self._by_name if others else self._declared
        self._refused = {name.lower(): reason for name, reason in refused.items()}

    def __getitem__(self, name: str) -> Declaration:
        return self._declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def has(self, name: str) -> bool:
        """True if a name is declared or refused; upper and lower case do not matter."""
        return name.lower() in self._by_name or name.lower() in self._refused

    def find(self, name: str, what: str) -> Declaration:
        """The declaration of a class, a function or an alias; upper and lower case do not matter, as in MADlib.

        Raises:
            InvalidArgument: it is refused, or there is none.
        """
        head, dot, bare = name.rpartition(".")
        if head + dot not in self.prefixes:
            raise InvalidArgument(
                f"{what}: got the {self._kind} {shown(name)}; allowed are those of keras.{self._module}",
                "Functions that an administrator has registered are written custom.name.",
            )
        if bare.lower() in self._refused:
            raise InvalidArgument(
                f"{what}: got the {self._kind} {name!r}; {self._refused[bare.lower()]}"
            )
        found = self._by_name.get(bare.lower())
        if found is None:
            raise unknown(what, self._kind, name, self._listed)
        return found


class Named(msgspec.Struct, frozen=True):
    """A parsed name: that of a declaration, with the arguments that differ from its defaults.

    Each kind of declarations has a class of its own, with these in ``declared``.
    """

    declared: ClassVar[Mapping[str, Declaration]] = MappingProxyType({})

    name: str
    arguments: Arguments = ()

    def all_arguments(self) -> dict[str, Any]:
        """Every argument with its value, defaults included; registered functions have none."""
        found = self.declared.get(self.name)
        return with_defaults(() if found is None else found.arguments, self.arguments)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint with the allowed name nearest to a wrong one, or all where none is near."""
    allowed = sorted({str(candidate) for candidate in names})
    lower = {candidate.lower(): candidate for candidate in allowed}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if found:
        return f"Did you mean {lower[found[0]]!r}?"
    return "Allowed: " + ", ".join(allowed) + "."


def unknown(what: str, kind: str, name: str, names: Iterable[str]) -> InvalidArgument:
    """The error for a name that is not in a table."""
    hint = nearest(name[:_LONGEST_NAME], names)
    return InvalidArgument(f"{what}: got the unknown {kind} {shown(name)}. {hint}")


def validated_arguments(
    table: tuple[Argument, ...],
    given: Mapping[str, object],
    aliases: Mapping[str, str],
    what: str,
) -> Arguments:
    """The given arguments that differ from the defaults, checked, in the order of the table."""
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
    """Every argument with its value, or else its default."""
    return {argument.name: argument.default for argument in table} | dict(values)
