"""Which way a configuration's first metric is better."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.configs.model_outputs import OutputSpec, first_metric

_MINIMISED = (
    "Crossentropy", "CrossEntropy", "Error", "Hinge", "Divergence", "LogCosh", "Poisson",
    "FalsePositives", "FalseNegatives",
)  # fmt: skip


def goal_of(outputs: Sequence[OutputSpec]) -> str:
    """``max`` or ``min`` of the first metric, or ``loss`` where there is no metric."""
    metric = first_metric(outputs)
    if metric is None:
        return "loss"
    return "min" if any(part in metric.name for part in _MINIMISED) else "max"
