"""Facts read from tables that any user can make: their types and ranges are checked first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cerebro_db.errors import WrongObjectType
from cerebro_db.postgres.names import QualifiedName

MAX_CLASSES = 1_000_000
MAX_TARGETS = 1_000_000
# As float32, more than a value of the server can hold.
MAX_INPUTS = 2**28
MAX_SIZE = 2**31 - 1
MAX_DIMENSIONS = 32
# Inputs or outputs of a model.
MAX_LISTED = 100
_SHOWN = 60

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """The row of a summary table.

    Attributes:
        role: the name of the argument, for messages.
        table: where the row is from.
        row: its values by column.
        hint: what makes such tables.
    """

    role: str
    table: QualifiedName
    row: Mapping[str, Any]
    hint: str

    def text(self, name: str) -> str:
        """A text."""
        return self._text(name, self.row[name])

    def texts(self, name: str) -> list[str]:
        """Texts, at least one."""
        return [self._text(name, value) for value in self._list(name)]

    def names(self, name: str) -> list[str]:
        """Names of columns, each once."""
        found = self.texts(name)
        if len(found) > MAX_LISTED or len(set(found)) < len(found):
            raise self._wrong(name, f"at most {MAX_LISTED} different names")
        return found

    def choice(self, name: str, value: Any, *allowed: str) -> str:
        """One of some words."""
        if value not in allowed:
            raise self._wrong(name, " or ".join(allowed))
        return str(value)

    def whole(self, name: str, value: Any, low: int, high: int = MAX_SIZE) -> int:
        """A whole number."""
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(name, f"a whole number from {low} to {high}")
        return value

    def wholes(self, name: str) -> list[int]:
        """Whole numbers, at least one."""
        return [self.whole(name, value, 0) for value in self._list(name)]

    def count(self, name: str, value: Any) -> int:
        """A number of classes; NULL is 0."""
        return 0 if value is None else self.whole(name, value, 0, MAX_CLASSES)

    def at(self, name: str, index: int) -> Any:
        """An element of an array, or of JSON."""
        found = self._list(name)
        if index >= len(found):
            raise self._wrong(name, "more elements")
        return found[index]

    def divisor(self, name: str) -> float:
        """A finite number that is not 0."""
        value = self.row[name]
        if not isinstance(value, int | float) or not math.isfinite(value) or not value:
            raise self._wrong(name, "a finite number except 0")
        return float(value)

    def shape(self, name: str, value: Any, most: int = MAX_INPUTS) -> Shape:
        """Sizes of dimensions, of at most so many elements together."""
        if not isinstance(value, list | tuple) or len(value) > MAX_DIMENSIONS:
            raise self._wrong(name, f"at most {MAX_DIMENSIONS} whole numbers")
        found = tuple(self.whole(name, size, 1) for size in value)
        if math.prod(found) > most:
            raise self._wrong(name, f"a shape of at most {most} elements")
        return found

    # -- inside ----------------------------------------------------------------
    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        return value

    def _list(self, name: str) -> list[Any]:
        value = self.row[name]
        if isinstance(value, str):
            with suppress(ValueError):
                value = json.loads(value)
        if not isinstance(value, list) or not value:
            raise self._wrong(name, "an array with at least one element")
        return value

    def _wrong(self, name: str, allowed: str) -> WrongObjectType:
        got = repr(self.row[name])
        shown = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}..."
        return WrongObjectType(
            f"{self.role}: {self.table} has {shown} in column {name}; allowed: {allowed}",
            hint=self.hint,
        )
