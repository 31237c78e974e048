"""Values out of JSON that came from elsewhere: each is checked to be what is expected."""

from __future__ import annotations

import json
from typing import Any

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

_LIMIT = 2**63
_MAX_ROWS = 2**40


class Fields:
    """A JSON object, read field by field.

    Args:
        value: what was parsed.
        what: names it in messages.
    """

    def __init__(self, value: Any, what: str = "task") -> None:
        if not isinstance(value, dict):
            raise InvalidArgument(f"{what}: got {shown(value)}; allowed: a JSON object")
        self._value, self._what = value, what

    @classmethod
    def parse(cls, text: str | None, what: str = "task") -> Fields:
        """The object that a text describes.

        Raises:
            InvalidArgument: it is no JSON, or no object.
        """
        try:
            return cls(json.loads(text or "null"), what)
        except (ValueError, RecursionError):
            raise InvalidArgument(f"{what}: got {shown(text)}; allowed: JSON") from None

    def text(self, name: str) -> str:
        """A text that the server can hold."""
        value = str(self._of(name, str, "a text"))
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise self._wrong(name, value, "a text of whole characters, without NUL")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """A truth value; one that may be missing has a default."""
        if default is not None and name not in self._value:
            return default
        return bool(self._of(name, bool, "true or false"))

    def integer(self, name: str, low: int = -_LIMIT, high: int = _LIMIT - 1) -> int:
        """A whole number within bounds."""
        value = self._of(name, int, "a whole number")
        if isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(name, value, f"{low} to {high}")
        return int(value)

    def number(self, name: str) -> float:
        """A number."""
        value = self._of(name, (int, float), "a number")
        if isinstance(value, bool):
            raise self._wrong(name, value, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self._wrong(name, value, "a number") from None

    def integers(
        self, name: str, low: int, high: int = _MAX_ROWS, most: int = 2**31
    ) -> tuple[int, ...]:
        """A list of whole numbers within bounds, at most so many."""
        values = self._of(name, list, "a list")
        good = len(values) <= most and all(
            isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
            for value in values
        )
        if not good:
            raise self._wrong(name, values, f"up to {most} whole numbers from {low} to {high}")
        return tuple(values)

    def texts(self, name: str) -> dict[str, str]:
        """An object of texts."""
        fields = self.object(name)
        return {key: fields.text(key) for key in fields._value}

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        return [Fields(value, f"{self._what}.{name}") for value in self._of(name, list, "a list")]

    def object(self, name: str) -> Fields:
        """An object."""
        return Fields(self._of(name, dict, "an object"), f"{self._what}.{name}")

    def has(self, name: str) -> bool:
        """True if there is anything of that name."""
        return name in self._value

    def raw(self, name: str) -> Any:
        """Whatever is there."""
        return self._of(name, object, "something")

    def _of(self, name: str, kind: Any, allowed: str) -> Any:
        if name not in self._value:
            raise InvalidArgument(f"{self._what}: got no {name!r}; allowed: {allowed}")
        value = self._value[name]
        if not isinstance(value, kind):
            raise self._wrong(name, value, allowed)
        return value

    def _wrong(self, name: str, value: Any, allowed: str) -> InvalidArgument:
        return InvalidArgument(f"{self._what}: got {shown(value)} for {name!r}; allowed: {allowed}")
