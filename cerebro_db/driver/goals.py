"""Which way a configuration's first metric is better."""

from __future__ import annotations

from cerebro_db.configs.parameters import CompileParams

_MINIMISED = (
    "Crossentropy", "CrossEntropy", "Error", "Hinge", "Divergence", "LogCosh", "Poisson",
    "FalsePositives", "FalseNegatives",
)  # fmt: skip


def goal_of(params: CompileParams) -> str:
    """``max`` or ``min`` of the first metric, or ``loss`` where there is no metric."""
    if not params.metrics:
        return "loss"
    name = params.metrics[0].name
    return "min" if any(part in name for part in _MINIMISED) else "max"
