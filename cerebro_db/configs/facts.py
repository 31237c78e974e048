"""The facts of an architecture that estimates and programs need, as a value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_db.errors import InvalidArgument

Shapes = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True)
class ArchitectureFacts:
    """What the estimates need to know of an architecture.

    Args:
        parameters: number of trainable weights.
        multiply_adds: of the forward pass of one row.
        has_random: whether layers draw random numbers while they train, as dropout does.
        layers: number of layers, nested ones included.
        input_shapes, output_shapes: without the batch dimension; None where a size is free.
    """

    parameters: int
    multiply_adds: int
    has_convolution: bool
    has_random: bool
    layers: int
    input_shapes: Shapes
    output_shapes: Shapes

    def to_json(self) -> str:
        """Returns canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ArchitectureFacts:
        """Reads what `to_json` wrote."""
        try:
            values = json.loads(text)
            for key in ("input_shapes", "output_shapes"):
                values[key] = _shapes(values[key])
            return cls(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidArgument(f"architecture facts: got {text[:80]!r}; {error}") from error


def _shapes(value: Any) -> Shapes:
    return tuple(tuple(size for size in shape) for shape in value)
