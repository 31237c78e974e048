"""Values that float32 does not hold: counted where arrays are converted, reported in a NOTICE of the call."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

# Sessions of workers report by a NOTICE that begins so; no caller sees these.
TAG = "cerebro rounding "


@dataclass(frozen=True)
class Rounding:
    """The values of one column that float32 changes by more than it rounds any number.

    Attributes:
        column: its name, or the number of an input.
        count: how many values.
        worst: the largest relative error.
        value: the value that has it.
        place: where in its row that value is, from 0.
    """

    column: str
    count: int
    worst: float
    value: float
    place: int = 0

    def text(self) -> str:
        """The NOTICE of a worker, which ``gathered`` reads."""
        return TAG + json.dumps(asdict(self))

    def __add__(self, other: Rounding) -> Rounding:
        """Report on the values of two parts of one column together."""
        larger = other if other.worst > self.worst else self
        return replace(larger, count=self.count + other.count)

    def notice(self, name: str) -> str:
        """The NOTICE for the caller of a function.

        Args:
            name: of the column.
        """
        values = "value" if self.count == 1 else "values"
        return (
            f"column {name!r}: {self.count} {values} changed when stored as float32, with a relative "
            f"error of up to {self.worst:.2g} (that of {self.value!r}); float32 holds whole numbers up "
            "to 16777216 and, with about 7 digits, numbers from 1.2e-38 to 3.4e38"
        )


def gathered(texts: Iterable[str]) -> dict[str, Rounding]:
    """The columns of which workers have reported, by name."""
    found: dict[str, Rounding] = {}
    for text in texts:
        if TAG in text:
            one = Rounding(**json.loads(text.partition(TAG)[2]))
            found[one.column] = found[one.column] + one if one.column in found else one
    return found
