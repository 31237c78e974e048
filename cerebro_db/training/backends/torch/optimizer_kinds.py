"""Steps of the optimizers of torch, and what each keeps for a parameter.

They are torch's own functions, called as ``torch.optim`` calls them on a processor, so that steps have the bits of
a loop of plain PyTorch. Its fused functions round otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.optim.adadelta import adadelta
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamax import adamax
from torch.optim.nadam import nadam
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop
from torch.optim.rprop import rprop
from torch.optim.sgd import sgd

Tensors = list[torch.Tensor]
Slots = Mapping[str, Tensors]


@dataclass(frozen=True)
class Numbers:
    """Numbers of an optimizer.

    Attributes:
        rate: the learning rate; None where a schedule gives it.
        others: by torch's names, with ``beta1`` and ``beta2``.
    """

    rate: float | None
    others: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.others[name]


class Step(NamedTuple):
    """A step of an optimizer.

    Attributes:
        params, grads: parameters and their gradients.
        slots: what the optimizer keeps for each parameter, by its name.
        steps: counts of steps, one for each parameter.
        numbers: of the optimizer.
        rate: the learning rate.
        is_first: whether it is the first step.
    """

    params: Tensors
    grads: Tensors
    slots: Slots
    steps: Tensors
    numbers: Numbers
    rate: float
    is_first: bool


class Kind(NamedTuple):
    """A class of optimizers.

    Attributes:
        defaults: of torch, for what a declaration does not have.
        slots: from the numbers, the names of what it keeps for each parameter.
        step: takes a step.
        scalar: slots that are one number, which begins as 1.
    """

    defaults: Mapping[str, Any]
    slots: Callable[[Numbers], tuple[str, ...]]
    step: Callable[[Step], None]
    scalar: tuple[str, ...] = ()


def _step_sgd(step: Step) -> None:
    kept = step.slots.get("momentum_buffer")
    buffers: list[Any] = [None] * len(step.params) if kept is None or step.is_first else list(kept)
    sgd(
        step.params, step.grads, buffers, foreach=False, fused=False, lr=step.rate, maximize=step.numbers["maximize"],
        **{name: step.numbers[name] for name in ("weight_decay", "momentum", "dampening", "nesterov")},
    )  # fmt: skip
    if kept is not None and step.is_first:
        for ours, made in zip(kept, buffers, strict=True):
            ours.copy_(made)


def _step_adam(decoupled: bool) -> Callable[..., None]:
    def stepped(step: Step) -> None:
        adam(
            step.params, step.grads, step.slots["exp_avg"], step.slots["exp_avg_sq"], step.slots.get("max_exp_avg_sq", []),
            step.steps, foreach=False, fused=False, decoupled_weight_decay=decoupled, lr=step.rate,
            **{name: step.numbers[name] for name in _ADAM if name != "decoupled_weight_decay"},
            amsgrad=bool(step.numbers["amsgrad"]),
        )  # fmt: skip

    return stepped


def _step_nadam(step: Step) -> None:
    nadam(
        step.params, step.grads, step.slots["exp_avg"], step.slots["exp_avg_sq"], step.slots["mu_product"], step.steps,
        foreach=False, lr=step.rate, momentum_decay=step.numbers["momentum_decay"],
        decoupled_weight_decay=bool(step.numbers["decoupled_weight_decay"]),
        **{name: step.numbers[name] for name in _ADAM},
    )  # fmt: skip


def _step_radam(step: Step) -> None:
    radam(
        step.params, step.grads, step.slots["exp_avg"], step.slots["exp_avg_sq"], step.steps, foreach=False, lr=step.rate,
        decoupled_weight_decay=bool(step.numbers["decoupled_weight_decay"]),
        **{name: step.numbers[name] for name in _ADAM},
    )  # fmt: skip


def _step_adamax(step: Step) -> None:
    adamax(
        step.params, step.grads, step.slots["exp_avg"], step.slots["exp_inf"], step.steps, foreach=False, lr=step.rate,
        **{name: step.numbers[name] for name in _ADAM},
    )  # fmt: skip


def _step_adagrad(step: Step) -> None:
    adagrad(
        step.params, step.grads, step.slots["sum"], step.steps, foreach=False, fused=False, lr=step.rate,
        **{name: step.numbers[name] for name in ("weight_decay", "lr_decay", "eps", "maximize")},
    )  # fmt: skip


def _step_adadelta(step: Step) -> None:
    adadelta(
        step.params, step.grads, step.slots["square_avg"], step.slots["acc_delta"], step.steps, foreach=False, lr=step.rate,
        **{name: step.numbers[name] for name in ("rho", "eps", "weight_decay", "maximize")},
    )  # fmt: skip


def _step_rmsprop(step: Step) -> None:
    rmsprop(
        step.params, step.grads, step.slots["square_avg"], step.slots.get("grad_avg", []), step.slots.get("momentum_buffer", []),
        step.steps, foreach=False, lr=step.rate, maximize=step.numbers["maximize"], centered=bool(step.numbers["centered"]),
        **{name: step.numbers[name] for name in ("alpha", "eps", "weight_decay", "momentum")},
    )  # fmt: skip


def _step_rprop(step: Step) -> None:
    low, high = step.numbers["etas"]
    least, most = step.numbers["step_sizes"]
    rprop(
        step.params, step.grads, step.slots["prev"], step.slots["step_size"], step.steps, foreach=False, step_size_min=least,
        step_size_max=most, etaminus=low, etaplus=high, maximize=step.numbers["maximize"],
    )  # fmt: skip


_ADAM = ("beta1", "beta2", "weight_decay", "eps", "maximize")
_MOMENTS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "maximize": False}
_BOTH = ("exp_avg", "exp_avg_sq")


def _adam_slots(numbers: Numbers) -> tuple[str, ...]:
    return (*_BOTH, "max_exp_avg_sq") if numbers["amsgrad"] else _BOTH


def _rmsprop_slots(numbers: Numbers) -> tuple[str, ...]:
    momentum = ("momentum_buffer",) if numbers["momentum"] > 0 else ()
    return ("square_avg", *momentum, *(("grad_avg",) if numbers["centered"] else ()))


def _decayed(**others: Any) -> dict[str, Any]:
    return {"weight_decay": 0.0, "maximize": False, **others}


_COUPLED = {**_MOMENTS, "decoupled_weight_decay": False}
KINDS: Mapping[str, Kind] = {
    "sgd": Kind(
        _decayed(momentum=0.0, dampening=0.0, nesterov=False),
        lambda numbers: ("momentum_buffer",) if numbers["momentum"] else (),
        _step_sgd,
    ),
    "adam": Kind({**_MOMENTS, "amsgrad": False}, _adam_slots, _step_adam(False)),
    "adamw": Kind({**_MOMENTS, "amsgrad": False, "weight_decay": 0.01}, _adam_slots, _step_adam(True)),
    "nadam": Kind(
        {**_COUPLED, "momentum_decay": 0.004},
        lambda numbers: (*_BOTH, "mu_product"),
        _step_nadam,
        ("mu_product",),
    ),
    "radam": Kind(_COUPLED, lambda numbers: _BOTH, _step_radam),
    "adamax": Kind(_MOMENTS, lambda numbers: ("exp_avg", "exp_inf"), _step_adamax),
    "adagrad": Kind(
        _decayed(lr_decay=0.0, eps=1e-10, initial_accumulator_value=0.0), lambda numbers: ("sum",), _step_adagrad
    ),
    "adadelta": Kind(
        _decayed(rho=0.9, eps=1e-6), lambda numbers: ("square_avg", "acc_delta"), _step_adadelta
    ),
    "rmsprop": Kind(
        _decayed(alpha=0.99, eps=1e-8, momentum=0.0, centered=False), _rmsprop_slots, _step_rmsprop
    ),
    "rprop": Kind(
        _decayed(etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)), lambda numbers: ("prev", "step_size"), _step_rprop
    ),
}  # fmt: skip
