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


class Kind(NamedTuple):
    """A class of optimizers.

    Attributes:
        defaults: of torch, for what a declaration does not have.
        slots: from the numbers, the names of what it keeps for each parameter.
        step: takes parameters, gradients, slots, steps, numbers, the rate, and whether it is the first step.
        scalar: slots that are one number, which begins as 1.
    """

    defaults: Mapping[str, Any]
    slots: Callable[[Numbers], tuple[str, ...]]
    step: Callable[..., None]
    scalar: tuple[str, ...] = ()


def _step_sgd(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    kept = slots.get("momentum_buffer")
    buffers: list[Any] = [None] * len(params) if kept is None or first else list(kept)
    sgd(
        params, grads, buffers, foreach=False, fused=False, lr=rate, maximize=numbers["maximize"],
        **{name: numbers[name] for name in ("weight_decay", "momentum", "dampening", "nesterov")},
    )  # fmt: skip
    if kept is not None and first:
        for ours, made in zip(kept, buffers, strict=True):
            ours.copy_(made)


def _step_adam(decoupled: bool) -> Callable[..., None]:
    def step(
        params: Tensors,
        grads: Tensors,
        slots: Slots,
        steps: Tensors,
        numbers: Numbers,
        rate: float,
        first: bool,
    ) -> None:
        adam(
            params, grads, slots["exp_avg"], slots["exp_avg_sq"], slots.get("max_exp_avg_sq", []),
            steps, foreach=False, fused=False, decoupled_weight_decay=decoupled, lr=rate,
            **{name: numbers[name] for name in _ADAM if name != "decoupled_weight_decay"},
            amsgrad=bool(numbers["amsgrad"]),
        )  # fmt: skip

    return step


def _step_nadam(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    nadam(
        params, grads, slots["exp_avg"], slots["exp_avg_sq"], slots["mu_product"], steps,
        foreach=False, lr=rate, momentum_decay=numbers["momentum_decay"],
        decoupled_weight_decay=bool(numbers["decoupled_weight_decay"]),
        **{name: numbers[name] for name in _ADAM},
    )  # fmt: skip


def _step_radam(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    radam(
        params, grads, slots["exp_avg"], slots["exp_avg_sq"], steps, foreach=False, lr=rate,
        decoupled_weight_decay=bool(numbers["decoupled_weight_decay"]),
        **{name: numbers[name] for name in _ADAM},
    )  # fmt: skip


def _step_adamax(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    adamax(
        params, grads, slots["exp_avg"], slots["exp_inf"], steps, foreach=False, lr=rate,
        **{name: numbers[name] for name in _ADAM},
    )  # fmt: skip


def _step_adagrad(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    adagrad(
        params, grads, slots["sum"], steps, foreach=False, fused=False, lr=rate,
        **{name: numbers[name] for name in ("weight_decay", "lr_decay", "eps", "maximize")},
    )  # fmt: skip


def _step_adadelta(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    adadelta(
        params, grads, slots["square_avg"], slots["acc_delta"], steps, foreach=False, lr=rate,
        **{name: numbers[name] for name in ("rho", "eps", "weight_decay", "maximize")},
    )  # fmt: skip


def _step_rmsprop(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    rmsprop(
        params, grads, slots["square_avg"], slots.get("grad_avg", []), slots.get("momentum_buffer", []),
        steps, foreach=False, lr=rate, maximize=numbers["maximize"], centered=bool(numbers["centered"]),
        **{name: numbers[name] for name in ("alpha", "eps", "weight_decay", "momentum")},
    )  # fmt: skip


def _step_rprop(
    params: Tensors,
    grads: Tensors,
    slots: Slots,
    steps: Tensors,
    numbers: Numbers,
    rate: float,
    first: bool,
) -> None:
    low, high = numbers["etas"]
    least, most = numbers["step_sizes"]
    rprop(
        params, grads, slots["prev"], slots["step_size"], steps, foreach=False, step_size_min=least,
        step_size_max=most, etaminus=low, etaplus=high, maximize=numbers["maximize"],
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
