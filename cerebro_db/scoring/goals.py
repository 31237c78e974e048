"""The one rule by which configurations are ranked: in the view, in notices, for ensembles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from cerebro_db.configs.custom import is_custom
from cerebro_db.configs.model_outputs import OutputSpec, first_metric
from cerebro_db.configs.monitors import is_minimised

LOSS = "loss"


def common_goal(models: Iterable[Sequence[OutputSpec]]) -> str:
    """``max`` or ``min`` of the first metric where all models have the same; else ``loss``.

    A value of one metric says nothing about that of another.
    """
    found = {_compared(outputs) for outputs in models}
    metric, _ = found.pop() if len(found) == 1 else (LOSS, None)
    # Of a registered function nobody knows which way it is better.
    if metric == LOSS or is_custom(metric):
        return LOSS
    return "min" if is_minimised(metric) else "max"


def badness(goal: str, metric: float | None, loss: float | None) -> tuple[bool, float, float]:
    """By this models are sorted, the best first; ``cerebro.leaderboard`` has the same in SQL."""
    last = math.inf
    loss = last if loss is None or math.isnan(loss) else loss
    value = loss if goal == LOSS else metric
    if value is None or math.isnan(value):
        return True, last, loss
    return False, -value if goal == "max" else value, loss


def _compared(outputs: Sequence[OutputSpec]) -> tuple[str, Any]:
    """The class of the first metric, and all else that decides what it measures."""
    metric = first_metric(outputs)
    if metric is None:
        return LOSS, None
    place = next(place for place, output in enumerate(outputs) if output.metrics)
    arguments = {k: v for k, v in metric.all_arguments().items() if k != "name"}
    return metric.name, (place, repr(sorted(arguments.items())))
