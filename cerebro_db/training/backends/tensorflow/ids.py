"""Ids beyond an embedding: found before they are computed with, and reported with their row.

TensorFlow says where in a graph it was, XLA and GPUs say nothing and take another row of the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_db.training.scores.id_fault import IdFault

_LAYERS = ("Embedding", "ReversibleEmbedding")


@dataclass
class _Recorded:
    layer: Any
    ids: Any


class EmbeddingIds:
    """The ids that the embeddings of a model look up.

    Args:
        model: whose.
        inputs: of the model.
    """

    def __init__(self, model: Any, inputs: Any) -> None:
        self._model, self._inputs = model, inputs
        leaves = model._flatten_layers(include_self=False, recursive=True)
        self._layers = [layer for layer in leaves if type(layer).__name__ in _LAYERS]
        self._recorded: list[_Recorded] = []
        self._places: list[np.ndarray] | None = None
        self._function = tf.function(
            self._trace,
            input_signature=[tf.TensorSpec((None, *inputs.row), tf.float32)],
            autograph=False,
        )

    def fault(self, features: np.ndarray) -> tuple[int, IdFault] | None:
        """The first row with an id beyond an embedding, from 0, and what is wrong with it.

        Args:
            features: ``float32[rows, ...]``.
        """
        if not self._layers or not len(features):
            return None
        found = [one.numpy() for one in self._function(features)]
        for number, (recorded, ids) in enumerate(zip(self._recorded, found, strict=True)):
            size = int(recorded.layer.input_dim)
            if ids.size and (
                ids.max() >= size or ids.min() < -size
            ):  # Keras counts negative ones from the end
                return self._described(number, features, ids.reshape(len(features), -1), size)
        return None

    def _described(
        self, number: int, features: np.ndarray, ids: np.ndarray, size: int
    ) -> tuple[int, IdFault]:
        row, column = map(int, np.argwhere((ids >= size) | (ids < -size))[0])
        if self._places is None:
            self._places = self._found_places()
        place = int(self._places[number][column])
        name = self._recorded[number].layer.name
        if place < 0:
            return row, IdFault(name, int(ids[row, column]), size)
        value = float(features[row].reshape(-1)[place])
        for input_place, shape in enumerate(self._inputs.shapes):
            count = int(np.prod(shape))
            if place < count:
                return row, IdFault(name, int(ids[row, column]), size, input_place, place, value)
            place -= count
        raise AssertionError("a place beyond the inputs")

    def _found_places(self) -> list[np.ndarray]:
        """For each id the place of the feature that it is a copy of; -1 where it is none.

        Rows of numbers that tell their places, and the same further on: what differs by as much is a copy.
        """
        count = int(np.prod(self._inputs.row))
        numbers = np.arange(count, dtype=np.float32)
        probes = np.stack([numbers, numbers + count]).reshape(2, *self._inputs.row)
        found = []
        for ids in self._function(probes):
            first, second = ids.numpy().reshape(2, -1)
            is_copy = (second - first == count) & (first >= 0) & (first < count)
            found.append(np.where(is_copy, first, -1))
        return found

    def _trace(self, features: Any) -> list[Any]:
        """The ids of each embedding; what else the model computes is left out of the program."""
        graph = tf.compat.v1.get_default_graph()
        recorded: list[_Recorded] = []
        for layer in self._layers:
            layer.call = _recording(layer, layer.call, recorded)
        try:
            self._model(self._inputs.split(features), training=False)
        finally:
            for layer in self._layers:
                layer.call = layer.call.original
        # Those within a loop are not seen from outside.
        self._recorded = [one for one in recorded if getattr(one.ids, "graph", None) is graph]
        return [tf.cast(one.ids, tf.int32) for one in self._recorded]


def _recording(layer: Any, original: Any, recorded: list[_Recorded]) -> Any:
    def call(inputs: Any, *args: Any, **given: Any) -> Any:
        if not given.get("reverse") and not any(args):
            recorded.append(_Recorded(layer, inputs))
        return original(inputs, *args, **given)

    call.original = original  # type: ignore[attr-defined]
    return call
