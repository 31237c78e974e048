"""Loss and metrics of configurations over buffers, as sums that add up over partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cerebro_db.configs.architecture import fingerprint
from cerebro_db.configs.losses import Target
from cerebro_db.configs.parameters import CompileParams, MetricSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.training import models
from cerebro_db.training.environment import shielded
from cerebro_db.training.program import assign, named_model_variables
from cerebro_db.training.state import State
from cerebro_db.training.targets import TargetFacts, encode, encoding_for

_BATCH_FLOATS = 4 * 1024 * 1024
_MAX_BATCH = 4096

_ACCURACY = {
    "ids": "SparseCategoricalAccuracy",
    "onehot": "CategoricalAccuracy",
    "binary": "BinaryAccuracy",
}


@dataclass(frozen=True)
class Partial:
    """What one pass over some rows contributes.

    Attributes:
        rows: number of rows.
        loss_sum: sum over the rows of the loss of their batch.
        metrics: per metric its variables, which add up.
    """

    rows: int
    loss_sum: float
    metrics: tuple[tuple[np.ndarray, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values; float32 survives JSON exactly."""
        metrics = [[array.tolist() for array in arrays] for arrays in self.metrics]
        return {"rows": self.rows, "loss_sum": self.loss_sum, "metrics": metrics}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Partial:
        """The reverse of :meth:`to_json`."""
        metrics = tuple(tuple(np.asarray(a) for a in arrays) for arrays in value["metrics"])
        return Partial(int(value["rows"]), float(value["loss_sum"]), metrics)


class Scorer:
    """A model with its loss and metrics, for every configuration of its kind.

    Args:
        architecture: the checked JSON.
        params: compile parameters of the first configuration.
        facts: the stored targets.
    """

    def __init__(self, architecture: dict[str, Any], params: CompileParams, facts: TargetFacts) -> None:
        self._facts = facts
        with shielded():
            self.model = models.build(architecture, seed=0, dropout=params.dropout)
            self._penalty = models.Penalty()
            self._penalty.attach(self.model, params)
            self.model.compile(loss=models.make_loss(params.loss))
            units = self.model.outputs[0].shape[-1]
            self._loss_encoding = encoding_for(facts, params.loss.target, units)
            self._metrics = [self._make_metric(spec, units) for spec in params.metrics]
        self.batch_size = _batch_size(self.model)
        signature = (
            tf.TensorSpec((None, *self.model.inputs[0].shape[1:]), tf.float32),
            tf.TensorSpec((None, *facts.shape), tf.as_dtype(facts.dtype)),
        )
        self._measure = tf.function(self._trace, input_signature=signature, autograph=False)
        self._names = named_model_variables(self.model)

    @staticmethod
    def key(architecture: dict[str, Any], params: CompileParams, facts: TargetFacts) -> tuple[Any, ...]:
        """Configurations with equal keys share a scorer."""
        penalties = (params.l1 is not None, params.l2 is not None)
        return (fingerprint(architecture), params.loss, params.metrics, params.dropout, penalties, facts)

    def load(self, state: State, params: CompileParams) -> None:
        """Take the model's part of a state and the strengths of the penalties."""
        with shielded():
            self._penalty.assign(params)
            for name, variable in self._names.items():
                assign(variable, state[name])

    def measure(self, features: np.ndarray, targets: np.ndarray) -> Partial:
        """Score the rows of one buffer with what is loaded."""
        loss_sum = 0.0
        with shielded():
            for metric, _ in self._metrics:
                metric.reset_state()
            for start in range(0, len(features), self.batch_size):
                stop = start + self.batch_size
                loss_sum += float(self._measure(features[start:stop], targets[start:stop]))
            metrics = tuple(tuple(v.numpy() for v in metric.variables) for metric, _ in self._metrics)
        return Partial(len(features), loss_sum, metrics)

    def results(self, partial: Partial) -> tuple[float, list[float]]:
        """Loss and the value of each metric."""
        values = []
        with shielded():
            for (metric, _), arrays in zip(self._metrics, partial.metrics, strict=True):
                for variable, array in zip(metric.variables, arrays, strict=True):
                    variable.assign(array)
                values.append(float(np.mean(np.asarray(metric.result()))))
        return partial.loss_sum / max(partial.rows, 1), values

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The model's output, ``float32[rows, ...]``."""
        parts = []
        with shielded():
            for start in range(0, len(features), self.batch_size):
                parts.append(self._forward(features[start : start + self.batch_size]).numpy())
        return np.concatenate(parts)

    # -- inside ----------------------------------------------------------------
    @tf.function(autograph=False, reduce_retracing=True)
    def _forward(self, features: Any) -> Any:
        return self.model(features, training=False)

    def _trace(self, features: Any, stored: Any) -> Any:
        predictions = self.model(features, training=False)
        targets = encode(tf, stored, self._loss_encoding, self._facts)
        loss = self.model.compute_loss(x=features, y=targets, y_pred=predictions, training=False)
        for metric, encoding in self._metrics:
            metric.update_state(encode(tf, stored, encoding, self._facts), predictions)
        return loss * tf.cast(tf.shape(features)[0], tf.float32)

    def _make_metric(self, spec: MetricSpec, units: int) -> tuple[Any, str]:
        if spec.target is Target.LOSS:
            encoding = self._loss_encoding
        else:
            encoding = encoding_for(self._facts, spec.target, units)
        name = spec.name
        if name == "accuracy":  # as Keras resolves it from the shapes
            wide = "BinaryAccuracy" if units == 1 else "CategoricalAccuracy"
            name = _ACCURACY.get(encoding, wide)
        try:
            return getattr(keras.metrics, name)(**dict(spec.arguments)), encoding
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"Keras refuses the metric {spec.name}: {error}") from None


def add_partials(partials: Sequence[Partial]) -> Partial:
    """The sum of passes, added in the order given."""
    total = partials[0]
    for partial in partials[1:]:
        metrics = tuple(
            tuple(np.asarray(a + b, a.dtype) for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(total.metrics, partial.metrics, strict=True)
        )
        total = Partial(total.rows + partial.rows, total.loss_sum + partial.loss_sum, metrics)
    return total


def _batch_size(model: keras.Model) -> int:
    """Rows of one scoring batch: a power of two whose largest activation stays small."""
    widest = 1
    for layer in model.layers:
        for tensor in [t for t in _outputs(layer) if t is not None]:
            widest = max(widest, int(np.prod([size or 1 for size in tensor.shape[1:]])))
    fitting = max(1, _BATCH_FLOATS // widest)
    return int(min(_MAX_BATCH, 2 ** int(np.log2(fitting))))


def _outputs(layer: Any) -> list[Any]:
    try:
        output = layer.output
    except (AttributeError, ValueError):
        return []
    return list(output) if isinstance(output, list | tuple) else [output]
