"""Storage of targets, and what a loss or metric is given instead.

NumPy is imported late: a driver has its workers begin before it needs any array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cerebro_db.configs.arguments import Target
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class TargetFacts:
    """The dependent variable of a packed table, or the first of several.

    Attributes:
        kind: ``class`` (stored as int32 ids) or ``float`` (stored as float32).
        num_classes: number of classes; 0 for float targets.
        shape: shape of one float target, ``()`` for a scalar.
        weighted: whether each row has a sample weight beside its target.
        more: the others, of the further outputs of a model.
        values: the values of two classes, as text, by their ids; of other targets none.
        counts: rows of each class, where a configuration weighs classes by them.
    """

    kind: str
    num_classes: int
    shape: tuple[int, ...]
    weighted: bool = False
    more: tuple[TargetFacts, ...] = ()
    values: tuple[str | None, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def balanced(self) -> tuple[float, ...]:
        """The weight of each class by which all classes count the same, as in scikit-learn; 1 for one without rows."""
        found = sum(1 for count in self.counts if count)
        rows = sum(self.counts)
        return tuple(rows / (found * count) if count else 1.0 for count in self.counts)

    def with_values(self, class_values: Sequence[Sequence[str | None]]) -> TargetFacts:
        """The same with the class values of each target."""
        first, *more = [
            replace(one, values=tuple(values) if one.num_classes == 2 else ())
            for one, values in zip(self.each, class_values, strict=True)
        ]
        return replace(first, weighted=self.weighted, more=tuple(more))

    @property
    def each(self) -> tuple[TargetFacts, ...]:
        """The targets one by one, in the order of the outputs."""
        return (replace(self, weighted=False, more=()), *self.more)

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers of a target."""
        import numpy as np

        return np.dtype(np.int32 if self.kind == "class" else np.float32)

    @property
    def record(self) -> np.dtype:
        """Record in the buffers: the target of a row, and its weight if there is one.

        Of several targets, how a row of all of them is held in memory.
        """
        import numpy as np

        if not self.weighted and not self.more:
            return self.dtype
        little = [("target", self.dtype.newbyteorder("<"), self.shape)]
        little += [
            (f"target_{place}", facts.dtype.newbyteorder("<"), facts.shape)
            for place, facts in enumerate(self.more, 1)
        ]
        weight = [("weight", np.dtype("<f4"), ())] if self.weighted else []
        return np.dtype([*little, *weight])


def plain(stored: np.ndarray) -> np.ndarray:
    """The targets out of what is stored, without weights; of several the first."""
    return stored["target"] if stored.dtype.names else stored


def parts(stored: np.ndarray) -> tuple[np.ndarray, ...]:
    """Each of the targets out of what is stored, without weights."""
    names = stored.dtype.names
    if not names:
        return (stored,)
    return tuple(stored[name] for name in names if name != "weight")


def encoding_for(facts: TargetFacts, wanted: Target, units: int) -> str:
    """The encoding of targets for one loss or metric.

    Args:
        facts: the stored targets.
        wanted: what the loss or metric computes with.
        units: last dimension of the model's output.

    Returns:
        ``float``, ``ids``, ``binary`` or ``onehot``.

    Raises:
        InvalidArgument: the output does not fit the classes.
    """
    if facts.kind == "float":
        if wanted is Target.IDS:
            raise InvalidArgument(
                "got a loss or metric for class ids and a float target; allowed: one for "
                "numbers, or a target of integer, text or boolean type",
                hint="mse is a loss for numbers; docs/sql/configurations.md tells the target of each under Compile parameters",
            )
        return "float"
    if wanted is Target.IDS and units >= facts.num_classes:
        return "ids"
    if wanted is not Target.IDS and units == facts.num_classes and units > 1:
        return "onehot"
    if wanted not in (Target.IDS, Target.ONEHOT) and units == 1 and facts.num_classes <= 2:
        return "binary"
    if facts.num_classes < 2:
        raise InvalidArgument(
            "got a target of one class; allowed: of two classes or more",
            hint="all rows of the packed table have the same class, so there is nothing to tell "
            "apart; pack rows of other classes, too, or name num_classes",
        )
    raise InvalidArgument(
        f"got an architecture with {units} outputs for {facts.num_classes} classes; "
        "allowed: as many outputs as classes, or one output for two classes with a binary loss",
        hint="the units of the last layer of the architecture are its outputs",
    )


def encodings_for(
    facts: TargetFacts, wanted: Sequence[Target], units: Sequence[int]
) -> tuple[str, ...]:
    """The encoding of each of several targets.

    Args:
        facts: of all of them.
        wanted: what is computed of each.
        units: of each output.

    Raises:
        InvalidArgument: there are more or fewer outputs than targets, or one does not fit.
    """
    if not len(facts.each) == len(wanted) == len(units):
        raise InvalidArgument(
            f"got a model of {len(units)} outputs for {len(facts.each)} targets; allowed: as many"
        )
    return tuple(
        encoding_for(one, target, size)
        for one, target, size in zip(facts.each, wanted, units, strict=True)
    )
