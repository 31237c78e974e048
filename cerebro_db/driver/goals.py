"""Which way a configuration's first metric is better."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.configs.custom import is_custom
from cerebro_db.configs.model_outputs import OutputSpec, first_metric
from cerebro_db.configs.monitors import is_minimised


def goal_of(outputs: Sequence[OutputSpec]) -> str:
    """``max`` or ``min`` of the first metric, or ``loss`` where there is none that tells."""
    metric = first_metric(outputs)
    # Of a registered function nobody knows which way it is better.
    if metric is None or is_custom(metric.name):
        return "loss"
    return "min" if is_minimised(metric.name) else "max"
