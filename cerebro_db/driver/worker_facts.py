"""What workers are told of the inputs and targets of a packed table, as parts of their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cerebro_db.training.targets import TargetFacts


def target_task(targets: TargetFacts) -> dict[str, Any]:
    """How targets are stored."""
    first, *more = [_one(target) for target in targets.each]
    task = first | {"weighted": targets.weighted}
    return task | {"more": more} if more else task


def input_task(shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The shapes of several inputs; nothing where there is one."""
    return {"inputs": [list(shape) for shape in shapes]} if len(shapes) > 1 else {}


def _one(target: TargetFacts) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "num_classes": target.num_classes,
        "shape": list(target.shape),
    }
