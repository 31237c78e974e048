"""The facts of an architecture that estimates and programs need, as a value."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_db.errors import InvalidArgument

_MOST = 10**30
Shapes = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True)
class ArchitectureFacts:
    """Facts of an architecture that the estimates are made from.

    Args:
        parameters: number of trainable weights.
        multiply_adds: of the forward pass of one row.
        has_random: whether layers draw random numbers while they train, as dropout does.
        layers: number of layers, nested ones included.
        input_shapes, output_shapes: without the batch dimension; None where a size is free.
        row_bytes: of all tensors of a forward pass in training, for each row.
        largest_bytes: of the largest of them, for each row.
        fixed_bytes: of tensors that do not grow with the batch.
    """

    parameters: int
    multiply_adds: int
    has_convolution: bool
    has_random: bool
    layers: int
    input_shapes: Shapes
    output_shapes: Shapes
    row_bytes: int = 0
    largest_bytes: int = 0
    fixed_bytes: int = 0

    def to_json(self) -> str:
        """Returns canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ArchitectureFacts:
        """Reads what `to_json` wrote; a table of models may hold anything else, too."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or set(values) | _LATER != set(_READERS):
                raise ValueError("not the facts of a model")
            return cls(**{key: _READERS[key](value) for key, value in values.items()})
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgument(
                f"architecture facts: got {text[:80]!r}; {error}",
                hint="cerebro.cerebro_load_model writes the column model_facts; set it to NULL to have it found anew",
            ) from error


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ValueError("a count is not a whole number from 0")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("a truth value is neither true nor false")
    return value


def _shapes(value: Any) -> Shapes:
    if not isinstance(value, list) or not all(isinstance(shape, list) for shape in value):
        raise ValueError("the shapes are not lists of sizes")
    return tuple(tuple(None if size is None else _count(size) for size in shape) for shape in value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "parameters": _count,
    "multiply_adds": _count,
    "layers": _count,
    "has_convolution": _truth,
    "has_random": _truth,
    "input_shapes": _shapes,
    "output_shapes": _shapes,
    "row_bytes": _count,
    "largest_bytes": _count,
    "fixed_bytes": _count,
}
# Tables of earlier versions lack these; a worker finds them anew before it trains.
_LATER = {"row_bytes", "largest_bytes", "fixed_bytes"}
