"""Options of a kind of column, as users write them behind its name: ``ple(32, target)``, ``cyclic(hour, zone=UTC)``.

A kind declares its options, each of which is a field of its struct. What is written is a list of values, separated by
commas; a value says by itself which option it is, as one takes numbers and another one certain words, or it is written
``name=value``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

_CALL = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        is_list: whether several values make one.
        is_named: whether its name has to be written.
        field: of the struct.
    """

    is_list: ClassVar[bool] = False
    is_named: ClassVar[bool] = False

    field: str

    @property
    def usage(self) -> str:
        """What is allowed, for messages."""
        raise NotImplementedError

    def value(self, text: str) -> Any:
        """The value that a text is; None if it is none of this option."""
        raise NotImplementedError

    def read(self, text: str) -> Any:
        """The value of what a user has written, with the name or without it; None if it is of another option."""
        name, equals, rest = text.partition("=")
        if equals:
            return self.value(rest) if name == self.field else None
        return None if self.is_named else self.value(text)

    def written(self, value: Any) -> list[str]:
        """The values as a user writes them."""
        return [str(one) for one in value] if self.is_list else [str(value)]


@dataclass(frozen=True)
class Whole(Option):
    """A whole number.

    Attributes:
        low, high: the smallest and the largest one.
    """

    low: int
    high: int

    @property
    def usage(self) -> str:
        """What is allowed."""
        return f"{self.field} from {self.low} to {self.high}"

    def value(self, text: str) -> int | None:
        """The number."""
        if not _WHOLE.fullmatch(text) or not self.low <= int(text) <= self.high:
            return None
        return int(text)


@dataclass(frozen=True)
class Word(Option):
    """One of several words."""

    words: tuple[str, ...]

    @property
    def usage(self) -> str:
        """What is allowed."""
        return " or ".join(self.words)

    def value(self, text: str) -> str | None:
        """The word."""
        return text if text in self.words else None


@dataclass(frozen=True)
class Words(Word):
    """Some of several words."""

    is_list: ClassVar[bool] = True

    @property
    def usage(self) -> str:
        """What is allowed."""
        return f"any of {', '.join(self.words)}"


@dataclass(frozen=True)
class Text(Option):
    """A text, which is written behind the name of the option."""

    is_named: ClassVar[bool] = True

    example: str

    @property
    def usage(self) -> str:
        """What is allowed."""
        return f"{self.field}={self.example}"

    def value(self, text: str) -> str | None:
        """The text."""
        return text or None

    def written(self, value: Any) -> list[str]:
        """The text behind the name."""
        return [f"{self.field}={value}"]


class Call(NamedTuple):
    """What a user has written: the name of a kind, and values of its options."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Call:
        """The call that a text is; one without parentheses is a name."""
        found = _CALL.fullmatch(text)
        if found is None:
            return cls(text, ())
        values = tuple(value.strip() for value in found[2].split(","))
        return cls(found[1], () if values == ("",) else values)


def read_options(options: Sequence[Option], values: Sequence[str]) -> dict[str, Any] | None:
    """The fields that the values are; None where one is of no option, or of one that has its value already."""
    found: dict[str, Any] = {}
    for text in values:
        for option in options:
            value = option.read(text) if option.is_list or option.field not in found else None
            if value is not None:
                break
        else:
            return None
        if option.is_list:
            value = (*found.get(option.field, ()), value)
        found[option.field] = value
    return found


def usage(name: str, options: Sequence[Option]) -> str:
    """What a user may write."""
    listed = ", ".join(one.usage for one in options)
    return f"{name}({listed})" if listed else name


def written(
    name: str, options: Sequence[Option], fields: Mapping[str, Any], usual: Mapping[str, Any]
) -> str:
    """A kind and its options as a user writes them; an option that has its usual value is left out.

    Args:
        fields: values by the names of the options.
        usual: those of an option that is not written.
    """
    listed = [
        text
        for one in options
        if fields[one.field] != usual[one.field]
        for text in one.written(fields[one.field])
    ]
    return f"{name}({', '.join(listed)})" if listed else name
