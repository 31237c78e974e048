"""What is wrong with an id beyond an embedding, as a message and read back from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cerebro_db.errors import ConfigurationFailed, InvalidData

_PLACE = re.compile(
    r"^input (\d+), place (\d+) of its features: got ([-+.\w]+), the id (-?\d+) of the embedding "
    r"'(.*)'; allowed: 0 to (\d+)$",
    re.DOTALL,
)
HINT = "the embedding has as many rows as its input_dim says: correct such rows, or train a model with more"


@dataclass(frozen=True)
class IdFault:
    """An id beyond an embedding.

    Attributes:
        layer: name of the embedding.
        id: the whole number that is looked up.
        size: rows of the embedding.
        input_place: place of the input, from 0; None where the id is no copy of a feature.
        place: of the feature within a row of the input, from 0.
        value: the feature.
    """

    layer: str
    id: int
    size: int
    input_place: int | None = None
    place: int = 0
    value: float = 0.0

    @property
    def message(self) -> str:
        """What was got and what is allowed; a driver reads it back to find the row."""
        got = f"the id {self.id} of the embedding {self.layer!r}; allowed: 0 to {self.size - 1}"
        if self.input_place is None:
            return f"got {got}"
        return (
            f"input {self.input_place + 1}, place {self.place + 1} of its features: "
            f"got {self.value:.9g}, {got}"
        )

    @property
    def at_place(self) -> str:
        """The same for a column that is named already."""
        return self.message.partition(", ")[2]

    @staticmethod
    def of(message: str) -> IdFault | None:
        """The fault that a message tells; None where it tells none, or no place."""
        found = _PLACE.match(message)
        if found is None:
            return None
        first, place, value, number, layer, last = found.groups()
        return IdFault(
            layer, int(number), int(last) + 1, int(first) - 1, int(place) - 1, float(value)
        )


class IdsBeyond(InvalidData):
    """Rows with ids beyond an embedding.

    Args:
        row: the first of them, from 0.
        fault: what is wrong with it.
    """

    def __init__(self, row: int, fault: IdFault) -> None:
        super().__init__(fault.message, HINT)
        self.row, self.fault = row, fault

    def within(self, where: str) -> ConfigurationFailed:
        """The error for a configuration, with the place of the row."""
        return ConfigurationFailed(f"{where}: {self.message}", HINT)
