"""Which way a configuration's first metric is better."""

from __future__ import annotations

from cerebro_db.configs.monitors import is_minimised
from cerebro_db.configs.parameters import CompileParams


def goal_of(params: CompileParams) -> str:
    """``max`` or ``min`` of the first metric, or ``loss`` where there is no metric."""
    if not params.metrics:
        return "loss"
    return "min" if is_minimised(params.metrics[0].name) else "max"
