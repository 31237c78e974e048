"""Schedules of the learning rate of ``torch.optim.lr_scheduler``, declared, and computed by its formulas.

The rate that an optimizer begins with is their first argument, as it is of the schedules of Keras.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from cerebro_db.configs.arguments import (
    INTS,
    Argument,
    Declaration,
    Declarations,
    choice,
    flag,
    number,
    whole,
)
from cerebro_db.configs.functions.optimizers import ScheduleSpec, parse_schedule
from cerebro_db.configs.grammar import Call, parse_call

_PREFIXES = ("torch.optim.lr_scheduler.", "optim.lr_scheduler.", "lr_scheduler.")
_START = number("initial_learning_rate", None, required=True)
_TOTAL, _LEAST = whole("total_iters", 5, low=1), number("eta_min", 0.0)
_OF_CALLBACK = "it is the callback of that name in fit parameters"
_CODE = "it is code; LearningRateScheduler takes registered functions"


def _declared(name: str, *own: Argument, start: Argument = _START) -> Declaration:
    return Declaration(name, (start, *own), 1 + len(own))


TORCH_SCHEDULES = Declarations(
    "optimizers.schedules",
    "learning-rate schedule",
    (
        _declared("ConstantLR", number("factor", 1 / 3, high=1.0), _TOTAL),
        _declared("CosineAnnealingLR", whole("T_max", None, low=1, required=True), _LEAST),
        _declared(
            "CosineAnnealingWarmRestarts", whole("T_0", None, low=1, required=True), whole("T_mult", 1, low=1), _LEAST
        ),
        _declared("ExponentialLR", number("gamma", None, required=True)),
        _declared("LinearLR", number("start_factor", 1 / 3, low_open=True), number("end_factor", 1.0), _TOTAL),
        _declared("MultiStepLR", Argument("milestones", INTS, low=0, required=True), number("gamma", 0.1)),
        _declared(
            "OneCycleLR", whole("total_steps", None, low=1, required=True), number("pct_start", 0.3, high=1.0),
            choice("anneal_strategy", "cos", "cos", "linear"), number("div_factor", 25.0, low_open=True),
            number("final_div_factor", 1e4, low_open=True), flag("three_phase", False),
            start=number("max_lr", None, required=True),
        ),
        _declared("PolynomialLR", _TOTAL, number("power", 1.0)),
        _declared("StepLR", whole("step_size", None, low=1, required=True), number("gamma", 0.1)),
    ),
    {
        "ChainedScheduler": "it is made of others",
        "CyclicLR": "it is not in this release",
        "LambdaLR": _CODE,
        "MultiplicativeLR": _CODE,
        "ReduceLROnPlateau": _OF_CALLBACK,
        "SequentialLR": "it is made of others",
    },
)  # fmt: skip


class TorchSchedule(ScheduleSpec, frozen=True):
    """A schedule of torch, with the arguments that differ from the defaults."""

    declared: ClassVar = TORCH_SCHEDULES

    def rate(self, step: int) -> float:
        """The learning rate at a step, from 0."""
        return float(_RATES[self.name](self.all_arguments(), step))


def parse_any_schedule(value: Call | str, what: str) -> ScheduleSpec:
    """Parse a schedule of torch or of Keras, as a call or as its text.

    Raises:
        InvalidArgument: it is no schedule, or an argument of it is wrong.
    """
    call = parse_call(value, what) if isinstance(value, str) else value
    name = _bare(call.name)
    if not TORCH_SCHEDULES.has(name):
        return parse_schedule(call, what)
    schedule = TORCH_SCHEDULES.find(name, what)
    return TorchSchedule(schedule.name, schedule.validated(call, f"{what}: {schedule.name}"))


def _bare(name: str) -> str:
    """A name without the modules of torch before it."""
    return next((name.removeprefix(one) for one in _PREFIXES if name.startswith(one)), name)


Given = Mapping[str, Any]


def _constant(given: Given, step: int) -> float:
    return float(_start(given) * (given["factor"] if step < given["total_iters"] else 1.0))


def _start(given: Given) -> float:
    return float(given["initial_learning_rate"])


def _cosine(given: Given, step: int) -> float:
    return _on_cosine(_start(given), given["eta_min"], step / given["T_max"])


def _on_cosine(high: float, low: float, share: float) -> float:
    return low + (high - low) * (1 + math.cos(math.pi * share)) / 2


def _restarts(given: Given, step: int) -> float:
    length, factor = given["T_0"], given["T_mult"]
    if factor == 1:
        return _on_cosine(_start(given), given["eta_min"], step % length / length)
    while step >= length:
        step, length = step - length, length * factor
    return _on_cosine(_start(given), given["eta_min"], step / length)


def _exponential(given: Given, step: int) -> float:
    return float(_start(given) * given["gamma"] ** step)


def _linear(given: Given, step: int) -> float:
    first, last = given["start_factor"], given["end_factor"]
    share = min(step, given["total_iters"]) / given["total_iters"]
    return float(_start(given) * (first + (last - first) * share))


def _milestones(given: Given, step: int) -> float:
    found = given["milestones"]
    listed = sorted(found) if isinstance(found, tuple) else [found]
    return float(_start(given) * given["gamma"] ** bisect_right(listed, step))


def _one_cycle(given: Given, step: int) -> float:
    """The rate on its way up to the highest one and down again; it stays where it is after the last step."""
    begins = 0.0
    last = given["total_steps"] - 1
    step = min(step, last)
    for ends, first, second in _phases(given):
        if step <= ends or ends == last:
            share = (step - begins) / (ends - begins) if ends > begins else 1.0
            return _annealed(given["anneal_strategy"], first, second, share)
        begins = ends
    raise AssertionError("a step lies in a phase")


def _phases(given: Given) -> list[tuple[float, float, float]]:
    """The last step of each phase, and its rates at both ends."""
    high, steps, share = given["max_lr"], given["total_steps"], given["pct_start"]
    start = high / given["div_factor"]
    least, top = start / given["final_div_factor"], share * steps - 1
    if not given["three_phase"]:
        return [(top, start, high), (steps - 1, high, least)]
    return [(top, start, high), (2 * share * steps - 2, high, start), (steps - 1, start, least)]


def _annealed(strategy: str, first: float, last: float, share: float) -> float:
    return _on_cosine(first, last, share) if strategy == "cos" else (last - first) * share + first


def _polynomial(given: Given, step: int) -> float:
    total = given["total_iters"]
    return float(_start(given) * (1 - min(step, total) / total) ** given["power"])


def _steps(given: Given, step: int) -> float:
    return float(_start(given) * given["gamma"] ** (step // given["step_size"]))


_RATES: Mapping[str, Callable[[Given, int], float]] = {
    "ConstantLR": _constant,
    "CosineAnnealingLR": _cosine,
    "CosineAnnealingWarmRestarts": _restarts,
    "ExponentialLR": _exponential,
    "LinearLR": _linear,
    "MultiStepLR": _milestones,
    "OneCycleLR": _one_cycle,
    "PolynomialLR": _polynomial,
    "StepLR": _steps,
}
