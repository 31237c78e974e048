"""Calls of a function that TensorFlow has traced, without the steps that find out what a call is like."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Traced:
    """A function of one signature; it is traced by its first call.

    Args:
        function: of ``tf.function``, with an input signature.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._concrete: Any = None

    def __call__(self, *values: Any) -> Any:
        """Call it with arrays, or numbers, of the types of the signature."""
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function()
        return self._concrete(*map(tf.convert_to_tensor, values))
