"""Learning rates of schedules, in double precision, by the formulas of torch and of Keras."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from cerebro_db.configs.functions.optimizers import ScheduleSpec
from cerebro_db.configs.functions.torch_schedules import TorchSchedule
from cerebro_db.errors import InvalidArgument


def scheduled_rate(spec: ScheduleSpec, step: int) -> float:
    """The learning rate at a step, from 0.

    Raises:
        InvalidArgument: there is no such schedule for PyTorch models.
    """
    if isinstance(spec, TorchSchedule):
        return spec.rate(step)
    find = _SCHEDULES.get(spec.name)
    if find is None:
        raise InvalidArgument(
            f"learning_rate: got the schedule {spec.name} for a PyTorch model; allowed: "
            + ", ".join(_SCHEDULES)
        )
    return find(spec.all_arguments(), step)


def _cosine(given: dict[str, Any], step: int) -> float:
    start, target = given["initial_learning_rate"], given["warmup_target"]
    warmup = given["warmup_steps"]
    if target is not None and step < warmup:
        return start + (target - start) * step / warmup
    high = start if target is None else target
    done = min(max(step - (warmup if target is not None else 0), 0), given["decay_steps"])
    return _fallen(high, done / given["decay_steps"], given["alpha"])


def _fallen(high: float, share: float, alpha: float) -> float:
    """A rate on half a cosine from all of it to a share."""
    return high * ((1 - alpha) * 0.5 * (1 + math.cos(math.pi * share)) + alpha)


def _restarts(given: dict[str, Any], step: int) -> float:
    share, factor = step / given["first_decay_steps"], given["t_mul"]
    if factor == 1.0:
        number = math.floor(share)
        share -= number
    else:
        number = math.floor(math.log(1 - share * (1 - factor)) / math.log(factor))
        share = (share - (1 - factor**number) / (1 - factor)) / factor**number
    high = given["initial_learning_rate"]
    return float(high * ((1 - given["alpha"]) * 0.5 * given["m_mul"] ** number
                         * (1 + math.cos(math.pi * share)) + given["alpha"]))  # fmt: skip


def _exponential(given: dict[str, Any], step: int) -> float:
    power = _power(given, step)
    return float(given["initial_learning_rate"] * given["decay_rate"] ** power)


def _inverse(given: dict[str, Any], step: int) -> float:
    return float(given["initial_learning_rate"] / (1 + given["decay_rate"] * _power(given, step)))


def _power(given: dict[str, Any], step: int) -> float:
    share = step / given["decay_steps"]
    return math.floor(share) if given["staircase"] else share


def _pieces(given: dict[str, Any], step: int) -> float:
    boundaries, values = (
        value if isinstance(value, tuple) else (value,)
        for value in (given["boundaries"], given["values"])
    )
    return float(values[bisect_left(boundaries, step)])


def _polynomial(given: dict[str, Any], step: int) -> float:
    steps = given["decay_steps"]
    if given["cycle"]:
        steps *= max(1, math.ceil(step / steps))
    low = given["end_learning_rate"]
    left = 1 - min(step, steps) / steps
    return float((given["initial_learning_rate"] - low) * left ** given["power"] + low)


_SCHEDULES: Mapping[str, Callable[[dict[str, Any], int], float]] = {
    "CosineDecay": _cosine,
    "CosineDecayRestarts": _restarts,
    "ExponentialDecay": _exponential,
    "InverseTimeDecay": _inverse,
    "PiecewiseConstantDecay": _pieces,
    "PolynomialDecay": _polynomial,
}
