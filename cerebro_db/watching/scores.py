"""Score by which configurations are compared, as a number that is smaller where it is better."""

from __future__ import annotations

import math

from cerebro_db.watching.reading import LOSS, Standing


def badness(goal: str, one: Standing) -> float:
    """The value that a configuration is ranked by, as ``cerebro.leaderboard`` has it; NaN where there is none."""
    metrics = one.validation_metrics or one.training_metrics
    loss = one.training_loss if one.validation_loss is None else one.validation_loss
    if goal == LOSS:
        return math.nan if loss is None else loss
    if not metrics:
        return math.nan
    return -metrics[0] if goal == "max" else metrics[0]


def score(goal: str, one: Standing) -> float:
    """The same as it was measured."""
    value = badness(goal, one)
    return -value if goal == "max" else value
