"""Optimizers of torch as functions over lists of tensors, whose memory between steps has names.

They are torch's own functions, called as ``torch.optim`` calls them on a processor, so that steps have the bits of
a loop of plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
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

from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.state import OPTIMIZER, State

ITERATION = f"{OPTIMIZER}iteration"
Tensors = list[torch.Tensor]
Slots = Mapping[str, Tensors]
# Names of Keras for what torch calls otherwise.
_OTHER_NAMES = {"lr": "learning_rate", "epsilon": "eps"}
_REFUSED = ("loss_scale_factor", "gradient_accumulation_steps")


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
_NAMES = "Adadelta, Adagrad, Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, Rprop, SGD"


def kind_of(spec: OptimizerSpec) -> Kind:
    """The class of optimizers of a name, of Keras' or of torch's.

    Raises:
        InvalidArgument: torch has none such, or an argument is one that only Keras has.
    """
    found = KINDS.get(spec.name.lower())
    if found is None:
        raise InvalidArgument(f"optimizer: got {spec.name} for a PyTorch model; allowed: {_NAMES}")
    given = spec.all_arguments()
    for name in _REFUSED:
        if given.get(name) is not None:
            raise InvalidArgument(
                f"optimizer: {spec.name}: got {name} for a PyTorch model; leave it out"
            )
    return found


def numbers_of(spec: OptimizerSpec) -> Numbers:
    """The numbers of an optimizer, by torch's names."""
    kind = kind_of(spec)
    given = {_OTHER_NAMES.get(name, name): value for name, value in spec.all_arguments().items()}
    rate = None if spec.schedule else float(given.get("learning_rate", 1e-3))
    if "betas" in given:
        given["beta1"], given["beta2"] = given["betas"]
    given |= {
        name: given[f"beta_{name[-1]}"]
        for name in ("beta1", "beta2")
        if f"beta_{name[-1]}" in given
    }
    if "rho" in given:  # of RMSprop in Keras
        given.setdefault("alpha", given["rho"])
    found = {
        name: default if given.get(name) is None else given[name]
        for name, default in kind.defaults.items()
    }
    if spec.name.lower() == "adamw" and "weight_decay" in given:
        found["weight_decay"] = given["weight_decay"] or 0.0
    return Numbers(rate, found)


def slot_names(spec: OptimizerSpec) -> tuple[str, ...]:
    """What the optimizer keeps for each parameter."""
    return kind_of(spec).slots(numbers_of(spec))


def fresh_slots(
    spec: OptimizerSpec, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]
) -> State:
    """What an optimizer keeps before its first step, without memory where all numbers are equal."""
    kind, numbers = kind_of(spec), numbers_of(spec)
    first = {
        "sum": numbers.others.get("initial_accumulator_value", 0.0),
        "step_size": numbers.rate or 0.0,
    }
    found: State = {}
    for name, shape in shapes.items():
        for slot in slot_names(spec):
            scalar = slot in kind.scalar
            value = np.asarray(
                1.0 if scalar else first.get(slot, 0.0), "float32" if scalar else dtypes[name]
            )
            found[f"{OPTIMIZER}{name}/{slot}"] = np.broadcast_to(value, () if scalar else shape)
    return found


class Optimizer:
    """The steps of an optimizer.

    Args:
        spec: of one that keeps the same for each parameter as all that are prepared.
        parameters: that are trained, by name.
    """

    def __init__(self, spec: OptimizerSpec, parameters: Mapping[str, torch.Tensor]) -> None:
        self._kind = kind_of(spec)
        self.numbers = numbers_of(spec)
        self._clips = clips_of(spec)
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._slots = {
            slot: [self._empty(slot, one) for one in self._parameters] for slot in slot_names(spec)
        }
        self._steps = [torch.zeros((), dtype=torch.float32) for _ in self._parameters]
        self.iteration = 0

    def _empty(self, slot: str, parameter: torch.Tensor) -> torch.Tensor:
        if slot in self._kind.scalar:
            return torch.ones((), dtype=torch.float32)
        return torch.zeros_like(parameter, requires_grad=False)

    def prepare(self, spec: OptimizerSpec) -> None:
        """Take the numbers of a configuration."""
        self.numbers, self._clips = numbers_of(spec), clips_of(spec)

    def step(self, gradients: Sequence[torch.Tensor | None], rate: float) -> None:
        """Change the parameters; those without a gradient stay, as in torch."""
        places = [place for place, one in enumerate(gradients) if one is not None]
        found = clipped([one for one in gradients if one is not None], self._clips)
        every = len(places) == len(gradients)
        slots = (
            self._slots if every else {n: _some(ours, places) for n, ours in self._slots.items()}
        )
        parameters = self._parameters if every else _some(self._parameters, places)
        steps = self._steps if every else _some(self._steps, places)
        if parameters:
            first = self.iteration == 0
            self._kind.step(parameters, found, slots, steps, self.numbers, rate, first)
        self.iteration += 1

    def load(self, state: State) -> None:
        """Take what a state keeps."""
        self.iteration = int(state[ITERATION])
        for slot, tensors in self._slots.items():
            for name, tensor in zip(self._names, tensors, strict=True):
                tensor.copy_(torch.from_numpy(np.array(state[f"{OPTIMIZER}{name}/{slot}"])))
        for step in self._steps:
            step.fill_(self.iteration)

    def save(self) -> State:
        """What is kept, copied."""
        found: State = {ITERATION: np.asarray(self.iteration, np.int64)}
        for name, place in zip(self._names, range(len(self._names)), strict=True):
            for slot, tensors in self._slots.items():
                found[f"{OPTIMIZER}{name}/{slot}"] = tensors[place].numpy().copy()
        return found


def _some(values: Tensors, places: Sequence[int]) -> Tensors:
    return [values[place] for place in places]


class Clips(NamedTuple):
    """How gradients are clipped: each to a norm, all together to a norm, or each number to a value."""

    norm: float | None = None
    together: float | None = None
    value: float | None = None


def clips_of(spec: OptimizerSpec) -> Clips | None:
    """The clipping of an optimizer; None for none."""
    given = spec.all_arguments()
    found = Clips(*(given.get(name) for name in ("clipnorm", "global_clipnorm", "clipvalue")))
    return None if found == Clips() else found


def clipped(gradients: Tensors, clips: Clips | None) -> Tensors:
    """Gradients after clipping, as ``torch.nn.utils`` does it."""
    if clips is None:
        return gradients
    if clips.value is not None:
        return [one.clamp(-clips.value, clips.value) for one in gradients]
    if clips.norm is not None:
        return [one * _factor(torch.linalg.vector_norm(one), clips.norm) for one in gradients]
    norms = torch.stack([torch.linalg.vector_norm(one) for one in gradients])
    return [
        one * _factor(torch.linalg.vector_norm(norms), clips.together or 0.0) for one in gradients
    ]


def _factor(norm: torch.Tensor, most: float) -> torch.Tensor:
    return torch.clamp(most / (norm + 1e-6), max=1.0)
