"""Training loop of an architecture: forward, loss, gradients and a step for each batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.configs.grids.parameters import BALANCED, CompileParams, FitParams
from cerebro_db.training.backends.torch import generators, optimizers
from cerebro_db.training.backends.torch.ids import EmbeddingIds
from cerebro_db.training.backends.torch.initial import drawn
from cerebro_db.training.backends.torch.losses import Loss, check_weights
from cerebro_db.training.backends.torch.net import Net
from cerebro_db.training.backends.torch.nets import net_of, trained_names
from cerebro_db.training.backends.torch.penalties import Penalty
from cerebro_db.training.backends.torch.schedules import scheduled_rate
from cerebro_db.training.mixing import Partners
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.targets import TargetFacts, encodings_for, parts
from cerebro_db.training.state import (
    AVERAGES,
    LEARNING_RATE,
    OPTIMIZER,
    WEIGHTS,
    State,
    check_fits,
    of_model,
)


class Program:
    """A net, its optimizer and the loop over batches.

    Args:
        recipe: of the first configuration that it serves.
    """

    def __init__(self, recipe: Recipe) -> None:
        params = recipe.compile_params
        self._targets = recipe.targets
        self.net = net_of(recipe)
        self._names = trained_names(self.net.architecture, params)
        self._parameters = {name: self.net.tensors[name] for name in self._names}
        for one in self._parameters.values():
            one.requires_grad_(True)
        self._listed = list(self._parameters.values())
        self._optimizer = optimizers.Optimizer(
            params.optimizer, self._parameters, params.param_groups
        )
        self._losses = losses_of(recipe, self.net)
        self._weights = [output.weight for output in recipe.outputs]
        self._penalty = Penalty(params, self._parameters)
        self._averages = {
            name: torch.zeros_like(one)
            for name, one in self._parameters.items()
            if params.optimizer.keeps_averages
        }
        self._ids = EmbeddingIds(self.net)
        self._generator = generators.seeded(0)
        self._prepare(params, recipe.fit_params)

    @staticmethod
    def key(recipe: Recipe) -> tuple[Any, ...]:
        """Configurations with equal keys share a program."""
        params, fit = recipe.compile_params, recipe.fit_params
        spec = params.optimizer
        return (
            recipe.architecture_id,
            spec.name,
            optimizers.slot_names(spec),
            (spec.schedule is None, spec.keeps_averages),
            tuple((o.loss.name, repr(o.loss.arguments), o.weight) for o in recipe.outputs),
            (params.dropout, params.freeze, params.dtype_policy, params.loss_per_member),
            (params.l1 is not None, params.l2 is not None),
            fit.class_weight is not None,
            recipe.targets,
        )

    # -- state -----------------------------------------------------------------
    def prepare(self, params: CompileParams, fit: FitParams) -> None:
        """Take the numbers of a configuration."""
        if (params, fit) != self._prepared:
            self._prepare(params, fit)

    def _prepare(self, params: CompileParams, fit: FitParams) -> None:
        self._batch_size = fit.batch_size
        self._spec = params.optimizer
        self._optimizer.prepare(params.optimizer, params.param_groups)
        self._penalty.assign(params)
        self._class_weights = _class_weights(fit, self._targets)
        self._prepared = (params, fit)

    def initial_state(self, recipe: Recipe, seed: int, weights: bytes | None) -> State:
        """The state before the first hop: given weights, or drawn from the seed."""
        model = drawn(self.net, seed) if weights is None else self.net.from_weights(weights)
        found = model | self._fresh(recipe, model) | self._seed(seed)
        found = self.with_learning_rate(found, recipe)
        return {name: found[name] for name in self._expected}

    def _seed(self, seed: int) -> State:
        return generators.arrays(generators.seeded(seed), seed) if self.net.draws else {}

    def _fresh(self, recipe: Recipe, model: State) -> State:
        """What an optimizer keeps before its first step, and averages, which begin as the weights."""
        return self._fresh_of(recipe.compile_params.optimizer, model)

    def _fresh_of(self, spec: OptimizerSpec, model: State) -> State:
        shapes = {name: tuple(one.shape) for name, one in self._parameters.items()}
        dtypes = {
            name: str(one.dtype).removeprefix("torch.") for name, one in self._parameters.items()
        }
        found = optimizers.fresh_slots(spec, shapes, dtypes)
        found[optimizers.ITERATION] = np.asarray(0, np.int64)
        return found | {AVERAGES + name: model[WEIGHTS + name] for name in self._averages}

    @functools.cached_property
    def _expected(self) -> State:
        """Arrays of the names, shapes and types of a state."""
        model = self.net.described()
        found = {**model, **self._fresh_of(self._spec, model), **self._seed(0)}
        if self._spec.schedule is None:
            found[LEARNING_RATE] = np.zeros((), np.float32)
        return found

    def taken_over(self, state: State, recipe: Recipe) -> State:
        """The state of an earlier run as a configuration starts from it, with its own learning rate."""
        ours = set(filter(_of_optimizer, self._expected))
        adapted = self.with_learning_rate(state, recipe)
        if set(filter(_of_optimizer, adapted)) == ours:
            return adapted
        model = of_model(state)
        return self.with_learning_rate(model | self._fresh(recipe, model), recipe)

    def with_new_optimizer(self, state: State, recipe: Recipe) -> State:
        """The state with an optimizer that begins anew, but for its rate and what schedules count."""
        model = of_model(state)
        fresh = self._fresh(recipe, {name: state.get(name, array) for name, array in model.items()})
        kept = [LEARNING_RATE]
        if recipe.compile_params.optimizer.schedule is not None:
            kept.append(optimizers.ITERATION)
        fresh |= {name: state[name] for name in kept if name in state}
        return {name: fresh.get(name, array) for name, array in state.items()}

    def with_learning_rate(self, state: State, recipe: Recipe) -> State:
        """A state with the learning rate that a configuration starts with; a schedule counts its steps instead."""
        rate = optimizers.numbers_of(recipe.compile_params.optimizer).rate
        if rate is None:
            return {name: array for name, array in state.items() if name != LEARNING_RATE}
        return state | {LEARNING_RATE: np.asarray(rate, np.float32)}

    def load(self, state: State) -> None:
        """Take over a state.

        Raises:
            InvalidState: names, shapes or dtypes are not those of the program.
        """
        check_fits(state, self._expected)
        self.net.load(state)
        with torch.no_grad():
            self._optimizer.load(state)
            for name, average in self._averages.items():
                average.copy_(torch.from_numpy(np.array(state[AVERAGES + name])))
        if self.net.draws:
            self._generator, self._seeded = generators.taken(state)
        self._rate = state.get(LEARNING_RATE)

    def save(self) -> State:
        """The state as it is now."""
        found = {**self.net.save(), **self._optimizer.save()}
        found |= {AVERAGES + name: one.numpy().copy() for name, one in self._averages.items()}
        if self.net.draws:
            found |= generators.arrays(self._generator, self._seeded)
        if self._rate is not None:
            found[LEARNING_RATE] = np.asarray(self._rate, np.float32)
        return {name: found[name] for name in self._expected}

    # -- training ----------------------------------------------------------------
    def check_ids(self, features: np.ndarray) -> None:
        """Refuse ids beyond an embedding.

        Raises:
            IdsBeyond: with the first row that has one.
        """
        if (found := self._ids.fault(features)) is not None:
            raise IdsBeyond(*found)

    def train(
        self, features: np.ndarray, targets: np.ndarray, partners: Partners | None = None
    ) -> float:
        """Train on rows in their order, batch by batch.

        Returns:
            The sum over the rows of the loss of their batch.
        """
        inputs, stored, weights = self._data_of(features, targets)
        others = None if partners is None else self._data_of(features, partners.targets)[1:]
        total, size = 0.0, self._batch_size
        with generators.active(self._generator, self.net.draws) as generator:
            for start in range(0, len(features), size):
                stop = min(start + size, len(features))
                loss, gradients = self._loss_and_gradients(
                    [one[start:stop] for one in inputs],
                    [one[start:stop] for one in stored],
                    None if weights is None else weights[start:stop],
                    _mixing(others, partners, start, stop),
                )
                self._step(gradients)
                total += float(loss) * (stop - start)
        self._generator = generator.state
        return total

    def _data_of(
        self, features: np.ndarray, targets: np.ndarray
    ) -> tuple[list[Any], list[Any], Any]:
        """Inputs, targets of each output as the losses take them, and weights of rows if there are any."""
        stored = [torch.from_numpy(np.ascontiguousarray(one)) for one in parts(targets)]
        weights = None
        if self._targets.weighted:
            weights = torch.from_numpy(np.ascontiguousarray(targets["weight"]))
        if self._class_weights is not None:
            of_class = self._class_weights[stored[0].long()]
            weights = of_class if weights is None else of_class * weights
        truth = [loss.encode(one) for loss, one in zip(self._losses, stored, strict=True)]
        return self.net.split(np.require(features, requirements="W")), truth, weights

    def _loss_and_gradients(
        self, inputs: list[Any], truth: list[Any], weights: Any, mixing: Mixing | None = None
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        outputs = self.net.train(inputs)
        loss = total_loss(self._losses, self._weights, outputs, truth, weights)
        if mixing is not None:
            other = total_loss(self._losses, self._weights, outputs, mixing.truth, mixing.weights)
            loss = mixing.share * loss + (1 - mixing.share) * other
        if self._penalty.is_on:
            loss = loss + self._penalty()
        if not self._listed or not loss.requires_grad:
            return loss.detach(), [None] * len(self._listed)
        return loss.detach(), list(torch.autograd.grad(loss, self._listed, allow_unused=True))

    def _step(self, gradients: list[torch.Tensor | None]) -> None:
        with torch.no_grad():
            first = self._optimizer.iteration == 0
            self._optimizer.step(gradients, self._rate_now())
            if self._averages:
                self._average(first)

    def _rate_now(self) -> float:
        """The learning rate in double precision, as torch takes it."""
        if self._spec.schedule is not None:
            return scheduled_rate(self._spec.schedule, self._optimizer.iteration)
        own = self._optimizer.numbers.rate
        if own is not None and np.float32(own) == self._rate:
            return own
        return float(self._rate or 0.0)

    def _average(self, first: bool) -> None:
        """Take the weights into their averages, and put these in their place where that is wanted."""
        given = self._spec.all_arguments()
        share, every = float(given["ema_momentum"]), given.get("ema_overwrite_frequency")
        overwrites = every and self._optimizer.iteration % every == 0
        for name, average in self._averages.items():
            average.mul_(0.0 if first else share).add_(
                self._parameters[name], alpha=1.0 if first else 1 - share
            )
            if overwrites:
                self._parameters[name].copy_(average)

    # -- steps that are made together with others --------------------------------------
    def gradients(self, features: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss of a batch, and its gradients one after another, ``float32[gradient_size]``."""
        data = self._data_of(features, targets)
        with generators.active(self._generator, self.net.draws) as generator:
            loss, gradients = self._loss_and_gradients(*data)
        self._generator = generator.state
        flat = [
            torch.zeros(one.numel()) if gradient is None else gradient.reshape(-1).float()
            for gradient, one in zip(gradients, self._listed, strict=True)
        ]
        return float(loss), _joined(flat)

    def apply(self, gradients: np.ndarray) -> None:
        """Take a step of the optimizer by gradients that lie one after another."""
        self._step(list(self._apart(gradients)))

    def updated(self, gradients: np.ndarray) -> np.ndarray:
        """Apply gradients and return the flat weights."""
        self.apply(gradients)
        return self.weights()

    def weights(self) -> np.ndarray:
        """The weights that are trained, one after another: ``float32[gradient_size]``."""
        return _joined([one.detach().reshape(-1).float() for one in self._listed])

    def take(self, weights: np.ndarray) -> None:
        """Take over weights that are trained."""
        with torch.no_grad():
            for one, part in zip(self._listed, self._apart(weights), strict=True):
                one.copy_(part)

    def _apart(self, flat: np.ndarray) -> list[torch.Tensor]:
        """Parts of a flat array, in the shapes and types of the weights that are trained."""
        if not self._listed:
            return []
        whole = torch.from_numpy(np.array(flat, np.float32))
        parts_ = torch.split(whole, [one.numel() for one in self._listed])
        return [
            part.reshape(one.shape).to(one.dtype)
            for part, one in zip(parts_, self._listed, strict=True)
        ]

    @functools.cached_property
    def trained(self) -> frozenset[str]:
        """The names, in a state, of the weights that are trained."""
        return frozenset(WEIGHTS + name for name in self._names)

    @functools.cached_property
    def gradient_size(self) -> int:
        """Numbers of all gradients; one, a zero, where nothing trains."""
        return max(1, sum(one.numel() for one in self._listed))

    @functools.cached_property
    def untrained(self) -> Mapping[str, int]:
        """The floats of the model that no gradient changes, such as averages of batches: name and size."""
        return {
            WEIGHTS + one.name: math.prod(one.shape)
            for one in self.net.entries
            if one.name not in self._parameters and one.dtype == "float32"
        }


def losses_of(recipe: Recipe, net: Net) -> list[Loss]:
    """The loss of each output."""
    wanted = [output.loss.target for output in recipe.outputs]
    for output, units in zip(recipe.outputs, net.units(), strict=True):
        check_weights(output.loss, units)
    encodings = encodings_for(recipe.targets, wanted, net.units())
    given = zip(recipe.outputs, encodings, recipe.targets.each, strict=True)
    return [Loss(output.loss, encoding, facts) for output, encoding, facts in given]


class Mixing(NamedTuple):
    """The targets and weights of the rows with which those of a batch are mixed, and the share of the latter."""

    truth: list[Any]
    weights: Any
    share: float


def _mixing(
    others: tuple[list[Any], Any] | None, partners: Partners | None, start: int, stop: int
) -> Mixing | None:
    """Mixing of a batch; None where it is not mixed."""
    if others is None or partners is None:
        return None
    truth, weights = others
    part = None if weights is None else weights[start:stop]
    return Mixing([one[start:stop] for one in truth], part, float(partners.shares[start]))


def total_loss(
    losses: list[Loss], weights: list[float | None], outputs: list[Any], truth: list[Any], rows: Any
) -> torch.Tensor:
    """The weighted sum of the losses of all outputs, of rows that may have weights."""
    found = []
    for loss, weight, output, wanted in zip(losses, weights, outputs, truth, strict=True):
        value = loss.mean(output, wanted) if rows is None else loss.weighted(output, wanted, rows)
        found.append(value if weight is None else value * weight)
    return found[0] if len(found) == 1 else torch.stack(found).sum()


def _class_weights(fit: FitParams, targets: TargetFacts) -> torch.Tensor | None:
    if fit.class_weight is None:
        return None
    if fit.class_weight == BALANCED:
        return torch.tensor(targets.balanced, dtype=torch.float32)
    vector = torch.ones(targets.num_classes, dtype=torch.float32)
    for class_id, weight in fit.class_weight:
        vector[class_id] = weight
    return vector


def _of_optimizer(name: str) -> bool:
    return name.startswith((OPTIMIZER, AVERAGES)) and name != LEARNING_RATE


def _joined(parts_: list[torch.Tensor]) -> np.ndarray:
    found: np.ndarray = torch.cat(parts_).numpy() if parts_ else np.zeros(1, np.float32)
    return found
