"""Values of variables on their way into TensorFlow and out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_db.training.state import State
from cerebro_db.training.traced import Traced

# Up to so many bytes the calls take longer than the copies.
_SMALL_BYTES = 2**20
# The function that moves all at once is worth its making for a program that is used again.
_TIMES_BEFORE = 3
_JOINED = (np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64))


class Transfer:
    """Loads and saves the variables of one model and its optimizer.

    Small ones that are moved often go as one vector of each type; others one by one.

    Args:
        variables: of Keras, by their names in states.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = dict(variables)
        self._groups: dict[np.dtype[Any], list[str]] = {}
        size = 0
        for name, variable in self._variables.items():
            dtype = np.dtype(variable.value.dtype.as_numpy_dtype)
            self._groups.setdefault(dtype, []).append(name)
            size += dtype.itemsize * int(np.prod(variable.shape))
        self._joins = size <= _SMALL_BYTES and set(self._groups) <= set(_JOINED)
        self._loads = self._saves = 0
        self._assign: Any = None
        self._read: Any = None

    def load(self, state: State) -> None:
        """Set all variables; names, shapes and dtypes are theirs."""
        self._loads += 1
        if not self._joins or self._loads <= _TIMES_BEFORE:
            for name, variable in self._variables.items():
                assign(variable, state[name])
            return
        if self._assign is None:
            self._assign = self._assigning()
        groups = self._groups.values()
        self._assign(*(np.concatenate([state[n].reshape(-1) for n in group]) for group in groups))

    def save(self) -> State:
        """The values as they are now."""
        self._saves += 1
        if not self._joins or self._saves <= _TIMES_BEFORE:
            return {name: v.value.numpy() for name, v in self._variables.items()}
        if self._read is None:
            self._read = Traced(tf.function(self._joined, autograph=False))
        found = {}
        for group, vector in zip(self._groups.values(), self._read(), strict=True):
            values, start = vector.numpy(), 0
            for name in group:
                shape = self._variables[name].shape
                end = start + int(np.prod(shape))
                found[name] = values[start:end].reshape(shape)
                start = end
        return {name: found[name] for name in self._variables}

    def _joined(self) -> list[Any]:
        return [
            tf.concat([tf.reshape(self._variables[n].value.read_value(), [-1]) for n in group], 0)
            for group in self._groups.values()
        ]

    def _assigning(self) -> Any:
        sizes = [
            [int(np.prod(self._variables[name].shape)) for name in group]
            for group in self._groups.values()
        ]

        def split(*vectors: Any) -> None:
            parts = zip(self._groups.values(), vectors, sizes, strict=True)
            for group, vector, lengths in parts:
                for name, part in zip(group, tf.split(vector, lengths), strict=True):
                    variable = self._variables[name]
                    assign(variable, tf.reshape(part, variable.shape))

        signature = [
            tf.TensorSpec((sum(lengths),), tf.as_dtype(dtype))
            for dtype, lengths in zip(self._groups, sizes, strict=True)
        ]
        return Traced(tf.function(split, input_signature=signature, autograph=False))


def assign(variable: Any, value: Any) -> None:
    """Set a Keras variable; the raw operation is several times faster than ``assign``."""
    tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=value)
