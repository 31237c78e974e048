"""Classes of Keras that parameters may name: one declaration each, for optimizers, schedules, losses and metrics alike.

What a text may say, how it is checked, what the reference lists and what a backend has to make are read from these declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import Argument, unknown, validated_arguments
from cerebro_db.configs.grammar import Call, named_values
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument


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


@dataclass(frozen=True)
class KerasClass:
    """A class of Keras and its arguments.

    Attributes:
        by_place: so many of the arguments may be given without their names.
        names: other names in parameter texts; the first one is also the default label of a metric.
        target: what a loss or a metric wants.
    """

    name: str
    arguments: tuple[Argument, ...]
    by_place: int = 0
    names: tuple[str, ...] = ()
    target: Target = Target.LOSS

    def given(self, call: Call, what: str) -> dict[str, Any]:
        """The arguments of a call by name, not checked yet."""
        places = tuple(argument.name for argument in self.arguments[: self.by_place])
        return named_values(call, places, what)

    def validated(self, call: Call, what: str) -> tuple[tuple[str, Any], ...]:
        """The arguments of a call that differ from the defaults."""
        return validated_arguments(self.arguments, self.given(call, what), {}, what)


class KerasClasses(Mapping[str, KerasClass]):
    """The allowed classes of a module of Keras, by name.

    Args:
        module: of Keras, such as ``losses``.
        kind: of such an object, for messages.
        classes: that are allowed.
        refused: why others are not, by name.
    """

    def __init__(
        self,
        module: str,
        kind: str,
        classes: Iterable[KerasClass],
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._module, self._kind, self.refused = module, kind, refused
        self._classes = {one.name: one for one in classes}
        self.prefixes = (
            "", f"{module}.", f"keras.{module}.", f"tf.keras.{module}.", f"tensorflow.keras.{module}.",
        )  # fmt: skip
        others = {name.lower(): one for one in self._classes.values() for name in one.names}
        # A class such as Accuracy may share its lower-case name with a function.
        self._by_name = {name.lower(): one for name, one in self._classes.items()} | others
        self._listed: Iterable[str] = self._by_name if others else self._classes
        self._refused = {name.lower(): reason for name, reason in refused.items()}

    def __getitem__(self, name: str) -> KerasClass:
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def has(self, name: str) -> bool:
        """True if a name means one of the classes, or one that is refused; upper and lower case do not matter."""
        return name.lower() in self._by_name or name.lower() in self._refused

    def find(self, name: str, what: str) -> KerasClass:
        """The class of its name, a function's name or an alias; upper and lower case do not matter, as in MADlib.

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
