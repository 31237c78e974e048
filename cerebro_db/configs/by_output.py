"""Values that a user gives for each output of a model: in their order, or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cerebro_db.configs.arguments import nearest
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

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
