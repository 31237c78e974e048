"""Optimizers of torch over the parameters of a net, whose memory between steps has names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.configs.grids.groups import ParameterGroup, settings_of
from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends.torch.optimizer_kinds import KINDS, Kind, Numbers, Step, Tensors
from cerebro_db.training.state import OPTIMIZER, State

ITERATION = f"{OPTIMIZER}iteration"
# Names of Keras for what torch calls otherwise.
_OTHER_NAMES = {"lr": "learning_rate", "epsilon": "eps"}
_REFUSED = ("loss_scale_factor", "gradient_accumulation_steps")
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


class _Group(NamedTuple):
    """Parameters with the same rate and the same numbers.

    Attributes:
        places: of the parameters.
        numbers: of the optimizer for them.
        rate: their own learning rate; None for that of the optimizer.
        factor: by which that is multiplied.
    """

    places: tuple[int, ...]
    numbers: Numbers
    rate: float | None = None
    factor: float | None = None

    def rate_now(self, rate: float) -> float:
        """The learning rate where that of the optimizer is so; what changes that one changes this one in proportion."""
        if self.factor is not None:
            return rate * self.factor
        if self.rate is None:
            return rate
        own = self.numbers.rate
        return self.rate if rate == own or not own else self.rate * (rate / own)


def _groups(
    spec: OptimizerSpec, given: Sequence[ParameterGroup], names: Sequence[str]
) -> tuple[_Group, ...]:
    """Parameters by what they have of their own."""
    numbers = numbers_of(spec)
    found: dict[ParameterGroup, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(settings_of(name, given), []).append(place)
    return tuple(
        _Group(tuple(places), _with_decay(numbers, own.weight_decay), own.lr, own.lr_factor)
        for own, places in found.items()
    )


def _with_decay(numbers: Numbers, decay: float | None) -> Numbers:
    if decay is None:
        return numbers
    return Numbers(numbers.rate, {**numbers.others, "weight_decay": decay})


class Optimizer:
    """The steps of an optimizer.

    Args:
        spec: of one that keeps the same for each parameter as all that are prepared.
        parameters: that are trained, by name.
        groups: of parameters that have a rate or a decay of their own.
    """

    def __init__(
        self,
        spec: OptimizerSpec,
        parameters: Mapping[str, torch.Tensor],
        groups: Sequence[ParameterGroup] = (),
    ) -> None:
        self._kind = kind_of(spec)
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._slots = {
            slot: [self._empty(slot, one) for one in self._parameters] for slot in slot_names(spec)
        }
        self._steps = [torch.zeros((), dtype=torch.float32) for _ in self._parameters]
        self.iteration = 0
        self.prepare(spec, groups)

    def _empty(self, slot: str, parameter: torch.Tensor) -> torch.Tensor:
        if slot in self._kind.scalar:
            return torch.ones((), dtype=torch.float32)
        return torch.zeros_like(parameter, requires_grad=False)

    def prepare(self, spec: OptimizerSpec, groups: Sequence[ParameterGroup] = ()) -> None:
        """Take the numbers of a configuration."""
        self.numbers, self._clips = numbers_of(spec), clips_of(spec)
        self._groups = _groups(spec, groups, self._names)

    def step(self, gradients: Sequence[torch.Tensor | None], rate: float) -> None:
        """Change the parameters; those without a gradient stay, as in torch."""
        places = [place for place, one in enumerate(gradients) if one is not None]
        found = clipped([one for one in gradients if one is not None], self._clips)
        by_place = dict(zip(places, found, strict=True))
        for group in self._groups:
            self._step_of(group, by_place, rate)
        self.iteration += 1

    def _step_of(self, group: _Group, gradients: Mapping[int, torch.Tensor], rate: float) -> None:
        places = [place for place in group.places if place in gradients]
        if not places:
            return
        slots = {name: _some(ours, places) for name, ours in self._slots.items()}
        self._kind.step(
            Step(
                _some(self._parameters, places),
                [gradients[place] for place in places],
                slots,
                _some(self._steps, places),
                group.numbers,
                group.rate_now(rate),
                self.iteration == 0,
            )
        )

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
