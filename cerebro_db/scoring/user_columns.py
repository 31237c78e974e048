"""Columns as users know them, and which features of a model are of each."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from cerebro_db.columns.encoded import Encoding
from cerebro_db.models.trained import ModelTable

# Numbers of an array that are columns of their own; a longer one, or a picture, is one column.
MOST_ELEMENTS = 1000


class UserColumn(NamedTuple):
    """A column and its features.

    Attributes:
        name: of the column; of an array ``x[1]`` and so on.
        start, stop: places of its features among those of all inputs, one input after another.
    """

    name: str
    start: int
    stop: int

    def task(self) -> dict[str, int]:
        """Part of a worker's task."""
        return {"start": self.start, "stop": self.stop}


def user_columns(models: ModelTable) -> list[UserColumn]:
    """The columns of models, in the order of their features."""
    sizes = [math.prod(shape) for shape in models.input_shapes]
    starts = list(itertools.accumulate(sizes, initial=0))
    if isinstance(models.encoding, Encoding):
        of_part = dict(zip(models.encoding.parts, starts, strict=False))
        return [
            _column(piece.column.name, of_part[piece.part] + piece.first, piece.column.width)
            for piece in models.encoding.pieces
        ]
    found = []
    for place, (start, shape) in enumerate(zip(starts, models.input_shapes, strict=False)):
        known = models.independent_varnames
        name = known[place] if known else f"input {place + 1}"
        if models.encoding is None and len(shape) == 1 and shape[0] <= MOST_ELEMENTS:
            found += [_column(f"{name}[{n + 1}]", start + n, 1) for n in range(shape[0])]
        else:
            found.append(_column(name, start, math.prod(shape)))
    return found


def _column(name: str, start: int, width: int) -> UserColumn:
    return UserColumn(name, start, start + width)
