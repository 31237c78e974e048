"""Which way a configuration's first metric is better."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.configs.model_outputs import OutputSpec, first_metric
from cerebro_db.configs.monitors import is_minimised


def goal_of(outputs: Sequence[OutputSpec]) -> str:
    """``max`` or ``min`` of the first metric, or ``loss`` where there is no metric."""
    metric = first_metric(outputs)
    if metric is None:
        return "loss"
    return "min" if is_minimised(metric.name) else "max"
