"""Backend of the smallest framework: SGD with momentum on the cross-entropy of one linear layer, in NumPy."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_db.configs.architectures.limits import ArchitectureLimits, refuse
from cerebro_db.configs.architectures.memory import (
    ArchitectureFacts,
    Load,
    check_worker_memory,
    worker_memory,
)
from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidState
from cerebro_db.training.backends import ModelSize, Tick
from cerebro_db.training.mixing import Partners
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.sums import Partial
from cerebro_db.training.state import LEARNING_RATE, State, check_fits, of_model

_KERNEL, _BIAS, _MOMENTUM = "weights/0/kernel", "weights/1/bias", "optimizer/momentum"


def _softmax(values: np.ndarray) -> np.ndarray:
    found = np.exp(values - values.max(axis=1, keepdims=True))
    return (found / found.sum(axis=1, keepdims=True)).astype(np.float32)


def _outputs(state: State, features: np.ndarray) -> np.ndarray:
    return _softmax(features @ state[_KERNEL] + state[_BIAS])


def _losses(outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(outputs[np.arange(len(targets)), targets], 1e-7))


class Program:
    untrained: Mapping[str, int] = {}
    trained = frozenset({_KERNEL, _BIAS})

    def __init__(self, recipe: Recipe) -> None:
        self._sizes = recipe.architecture["features"], recipe.architecture["classes"]
        self._state: State = {}
        self._batch_size = 1

    @property
    def gradient_size(self) -> int:
        return (self._sizes[0] + 1) * self._sizes[1]

    def prepare(self, params: Any, fit: Any) -> None:
        self._batch_size = fit.batch_size

    def initial_state(self, recipe: Recipe, seed: int, weights: bytes | None) -> State:
        flat = np.random.default_rng(seed).normal(0, 0.1, self.gradient_size).astype(np.float32)
        if weights is not None:
            flat = np.frombuffer(weights, np.float32)
        if len(flat) != self.gradient_size:
            raise InvalidState(f"got {len(flat)} weights; allowed: {self.gradient_size}")
        rate = recipe.compile_params.optimizer.all_arguments()["learning_rate"]
        first = self._split(flat)
        return first | {
            _MOMENTUM: np.zeros_like(flat),
            LEARNING_RATE: np.asarray(rate, np.float32),
        }

    def taken_over(self, state: State, recipe: Recipe) -> State:
        rate = recipe.compile_params.optimizer.all_arguments()["learning_rate"]
        return state | {LEARNING_RATE: np.asarray(rate, np.float32)}

    def with_new_optimizer(self, state: State, recipe: Recipe) -> State:
        return state | {_MOMENTUM: np.zeros_like(state[_MOMENTUM])}

    def load(self, state: State) -> None:
        features, classes = self._sizes
        check_fits(
            state,
            {
                _KERNEL: np.zeros((features, classes), np.float32),
                _BIAS: np.zeros(classes, np.float32),
                _MOMENTUM: np.zeros(self.gradient_size, np.float32),
                LEARNING_RATE: np.zeros((), np.float32),
            },
        )
        self._state = {name: array.copy() for name, array in state.items()}

    def save(self) -> State:
        return dict(self._state)

    def check_ids(self, features: np.ndarray) -> None:
        pass

    def train(
        self, features: np.ndarray, targets: np.ndarray, partners: Partners | None = None
    ) -> float:
        total = 0.0
        for start in range(0, len(features), self._batch_size):
            rows = slice(start, start + self._batch_size)
            loss, gradients = self.gradients(features[rows], targets[rows])
            if partners is not None:
                share = partners.shares[start]
                other, more = self.gradients(features[rows], partners.targets[rows])
                loss, gradients = (
                    share * loss + (1 - share) * other,
                    share * gradients + (1 - share) * more,
                )
            self.apply(gradients)
            total += loss * len(features[rows])
        return total

    def gradients(self, features: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        outputs = _outputs(self._state, features)
        loss = float(_losses(outputs, targets).mean())
        error = (outputs - np.eye(outputs.shape[1], dtype=np.float32)[targets]) / len(targets)
        parts = [(features.T @ error).ravel(), error.sum(axis=0)]
        return loss, np.concatenate(parts).astype(np.float32)

    def apply(self, gradients: np.ndarray) -> None:
        self.updated(gradients)

    def updated(self, gradients: np.ndarray) -> np.ndarray:
        momentum = np.float32(0.9) * self._state[_MOMENTUM] + gradients
        flat = self.weights() - self._state[LEARNING_RATE] * momentum
        self._state |= {_MOMENTUM: momentum, **self._split(flat)}
        return flat

    def weights(self) -> np.ndarray:
        return np.concatenate([self._state[_KERNEL].ravel(), self._state[_BIAS]])

    def take(self, weights: np.ndarray) -> None:
        self._state |= self._split(weights)

    def _split(self, flat: np.ndarray) -> State:
        features, classes = self._sizes
        kernel = flat[: features * classes].reshape(features, classes)
        return {_KERNEL: kernel.copy(), _BIAS: flat[features * classes :].copy()}


class Scorer:
    def __init__(self, recipe: Recipe) -> None:
        self.units = (recipe.architecture["classes"],)
        self.shapes = ((recipe.architecture["features"],),)
        self.row = self.shapes[0]
        self._metrics = len(recipe.outputs[0].metrics)
        self._state: State = {}

    def load(self, state: State, params: Any) -> None:
        self._state = of_model(state)

    def measure(self, features: np.ndarray, *targets: np.ndarray) -> Partial:
        outputs = _outputs(self._state, features)
        right = np.asarray((outputs.argmax(axis=1) == targets[0]).sum(), np.float32)
        counts = (right, np.asarray(len(features), np.float32))
        loss = float(_losses(outputs, targets[0]).sum())
        return Partial(len(features), loss, self.units, (counts,) * self._metrics)

    def predict(self, features: np.ndarray) -> list[np.ndarray]:
        return [_outputs(self._state, features)]

    predict_row = predict

    def check_training(self, recipe: Recipe) -> None:
        pass


class LinearBackend:
    name = "linear"

    def preload(self) -> None:
        pass

    set_environment = refuse_imported = preload

    def set_up(self, threads: int, use_gpus: bool) -> dict[str, Any]:
        return self.versions()

    def versions(self) -> dict[str, str]:
        return {"linear": "1"}

    def check_size(
        self, config: Mapping[str, Any], limits: ArchitectureLimits, memory_mb: int | None
    ) -> ModelSize:
        size = (config["features"] + 1) * config["classes"]
        if size > limits.parameters:
            refuse(f"got {size} parameters; allowed: {limits.parameters}")
        if memory_mb is not None:
            load = Load(None, size, "", compiled=False)
            check_worker_memory(worker_memory([load], 0, 0), memory_mb, "a model")
        return ModelSize(size, 4 * config["classes"], 4 * config["classes"], 0)

    def facts(
        self,
        config: Mapping[str, Any],
        limits: ArchitectureLimits,
        memory_mb: int | None,
        weights: bytes | None,
    ) -> ArchitectureFacts:
        size = self.check_size(config, limits, memory_mb)
        shapes = ((config["features"],),), ((config["classes"],),)
        counts = size.parameters, size.parameters, False, False, 1
        return ArchitectureFacts(*counts, *shapes, *size[1:])

    def export(
        self,
        recipe: Recipe,
        state: State,
        wanted: Format,
        documents: Mapping[str, str],
        tick: Tick,
    ) -> bytes:
        file = io.BytesIO()
        np.savez(file, **of_model(state), **documents)
        return file.getvalue()

    def program_key(self, recipe: Recipe) -> Hashable:
        return recipe.architecture_id, recipe.compile_params.optimizer.name

    program: Callable[[Any, Recipe], Program] = staticmethod(Program)

    def scorer_key(self, recipe: Recipe) -> Hashable:
        return recipe.architecture_id

    scorer: Callable[[Any, Recipe], Scorer] = staticmethod(Scorer)

    def metrics(self, recipe: Recipe, total: Partial) -> Sequence[float]:
        return [float(right / rows) for right, rows in total.metrics]


BACKEND = LinearBackend()
