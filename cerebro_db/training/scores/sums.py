"""Sums of loss and metrics over some rows, from which their values over all rows follow.

A backend gives the loss of a batch. Where that is a mean over the rows, so many rows are its weight. Where
a mask or ``ignore_class`` leaves steps out, the steps that count are. ``reduction='sum'`` is added up, and of
Dice and Tversky over a whole batch the sums are kept that their quotient is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.grids.outputs import OutputSpec

ROWS, STEPS, SUM, OVERLAP = "rows", "steps", "sum", "overlap"
_EPSILON = 1e-7


@dataclass(frozen=True)
class LossPart:
    """Sums of the loss of one output over some rows.

    Attributes:
        kind: ``rows``, a sum weighted by rows; ``steps``, one weighted by the steps that count, and their
            number; ``sum``, a sum that is not divided; ``overlap``, sums of products, targets and outputs.
        sums: they add up over batches, buffers and partitions.
    """

    kind: str
    sums: tuple[float, ...]

    def __add__(self, other: LossPart) -> LossPart:
        return LossPart(self.kind, tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)))

    def value(self, rows: int, spec: LossSpec) -> float:
        """The loss over all rows."""
        if self.kind == OVERLAP:
            return _overlap(np.reshape(self.sums, (3, -1)), spec)
        if self.kind == SUM:
            return self.sums[0]
        if self.kind == STEPS:
            return self.sums[0] / self.sums[1] if self.sums[1] else 0.0
        return self.sums[0] / max(rows, 1)


def _overlap(sums: np.ndarray, spec: LossSpec) -> float:
    """Dice or Tversky by the formulas of Keras."""
    both, truth, found = sums
    arguments = spec.all_arguments()
    if spec.name == "Dice":
        shares = 2.0 * both / (truth + found + _EPSILON)
    else:
        missed, wrong = truth - both, found - both
        weighed = both + missed * arguments["alpha"] + wrong * arguments["beta"]
        shares = both / (weighed + _EPSILON)
    lost = 1.0 - shares
    total = np.sum(lost) if arguments["reduction"] == "sum" else np.mean(lost)
    return float(total)


@dataclass(frozen=True)
class Partial:
    """Share of one pass over some rows.

    Attributes:
        rows: number of rows.
        loss_sum: sum over the rows of the loss of their batch; where there are parts, of the penalties.
        units: last dimension of each output of the model.
        metrics: per metric its variables, which add up.
        losses: of several outputs the same sums for the loss of each, not weighted.
        parts: sums of the loss of each output where one of them is no mean over the rows.
    """

    rows: int
    loss_sum: float
    units: tuple[int, ...]
    metrics: tuple[tuple[np.ndarray, ...], ...]
    losses: tuple[float, ...] = ()
    parts: tuple[LossPart, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain values; float32 survives JSON exactly."""
        metrics = [[[a.dtype.name, a.tolist()] for a in arrays] for arrays in self.metrics]
        return {
            "rows": self.rows,
            "loss_sum": self.loss_sum,
            "units": list(self.units),
            "metrics": metrics,
            "losses": list(self.losses),
            "parts": [[part.kind, list(part.sums)] for part in self.parts],
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Partial:
        """The reverse of :meth:`to_json`."""
        metrics = tuple(
            tuple(np.asarray(values, dtype) for dtype, values in arrays)
            for arrays in value["metrics"]
        )
        return Partial(
            int(value["rows"]),
            float(value["loss_sum"]),
            tuple(map(int, value["units"])),
            metrics,
            tuple(map(float, value["losses"])),
            tuple(
                LossPart(kind, tuple(map(float, sums)))
                for kind, sums in value.get("parts", ())  # those of 0.1.0 have none
            ),
        )

    def loss(self, outputs: Sequence[OutputSpec]) -> float:
        """The total loss over all rows."""
        rows = max(self.rows, 1)
        total = self.loss_sum / rows
        for output, value in zip(outputs, self._values(outputs), strict=False):
            total += value if output.weight is None else value * output.weight
        return total

    def loss_of_each(self, outputs: Sequence[OutputSpec]) -> list[float]:
        """The loss of each of several outputs, not weighted; nothing of one."""
        if self.parts:
            return self._values(outputs) if len(outputs) > 1 else []
        return [loss / max(self.rows, 1) for loss in self.losses]

    def _values(self, outputs: Sequence[OutputSpec]) -> list[float]:
        given = zip(self.parts, outputs, strict=False)
        return [part.value(self.rows, output.loss) for part, output in given]


def add_partials(partials: Sequence[Partial]) -> Partial:
    """The sum of passes, added in the order given."""
    total = partials[0]
    for partial in partials[1:]:
        metrics = tuple(
            tuple(np.asarray(a + b, a.dtype) for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(total.metrics, partial.metrics, strict=True)
        )
        total = Partial(
            total.rows + partial.rows,
            total.loss_sum + partial.loss_sum,
            total.units,
            metrics,
            tuple(a + b for a, b in zip(total.losses, partial.losses, strict=True)),
            tuple(a + b for a, b in zip(total.parts, partial.parts, strict=True)),
        )
    return total
