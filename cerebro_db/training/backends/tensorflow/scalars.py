"""Scalars of an optimizer as variables, so that one program serves every value of them.

Keras keeps beta_1, momentum and their like as Python numbers, which a trace
bakes in. They are replaced by ``Scalar`` objects that read a variable. Where
Keras computes ``1 - beta`` in double precision before rounding, so does the
host here, which keeps results bit-identical to plain Keras.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_db.configs.functions.optimizers import OptimizerSpec
from cerebro_db.training.backends.tensorflow import models

VARIABLE_ARGUMENTS = ("beta_1", "beta_2", "epsilon", "momentum", "rho", "weight_decay")
# The optimizers within a MultiOptimizer have numbers of their own.
_WITH_CONSTANTS = ("MultiOptimizer", "Muon", "ScheduleFreeAdamW")


class Scalar:
    """A number of an optimizer that may change between calls of a program.

    Args:
        number: the first value; only whether it is zero is fixed for good.
    """

    dtype = "float32"

    def __init__(self, number: float) -> None:
        self._is_zero = number == 0
        self._value = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self._complement = tf.Variable(0.0, trainable=False, dtype=tf.float32)
        self._bound: tuple[Any, Any] | None = None
        self._number: float | None = None
        self.assign(number)

    def assign(self, number: float) -> None:
        """Set the value, rounded to float32 once, as a constant would be."""
        if number != self._number:
            self._number = None
            self._value.assign(np.float32(number))
            self._complement.assign(np.float32(1 - number))
            self._number = number

    def bind(self) -> None:
        """Read the variables here, outside of a loop that is about to be traced."""
        self._bound = (self._value.read_value(), self._complement.read_value())

    def release(self) -> None:
        """Forget the tensors of the trace that ended."""
        self._bound = None

    @property
    def _tensor(self) -> Any:
        return self._bound[0] if self._bound else self._value.read_value()

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        return tf.cast(self._tensor, dtype) if dtype else self._tensor

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, int | float) and other == 1:
            return self._bound[1] if self._bound else self._complement.read_value()
        return other - self._tensor

    def __sub__(self, other: Any) -> Any:
        return self._tensor - other

    def __mul__(self, other: Any) -> Any:
        return self._tensor * other

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return self._tensor + other

    __radd__ = __add__

    def __gt__(self, other: Any) -> bool:
        return self._against_zero(other) and not self._is_zero

    def __eq__(self, other: object) -> bool:
        return self._against_zero(other) and self._is_zero

    def __hash__(self) -> int:
        return id(self)

    @staticmethod
    def _against_zero(other: object) -> bool:
        if isinstance(other, int | float) and other == 0:
            return True
        raise TypeError(f"a variable scalar can be compared with 0 only, not with {other!r}")


@dataclass(frozen=True)
class OptimizerScalars:
    """Scalars of an optimizer's arguments that may change between calls of a program.

    Attributes:
        key: what may not: class, other arguments, and which scalars are not zero.
        numbers: the scalars by attribute name.
        learning_rate: a variable of Keras already; None where a schedule gives it.
    """

    key: tuple[Any, ...]
    numbers: dict[str, float]
    learning_rate: float | None


@functools.lru_cache(maxsize=1024)
def scalars_of(spec: OptimizerSpec) -> OptimizerScalars:
    """The scalars of an optimizer, defaults included."""
    if spec.parts:
        return OptimizerScalars((spec,), {}, None)
    optimizer = models.make_optimizer(spec)
    learning_rate = None if spec.schedule else float(optimizer.learning_rate.numpy())
    numbers = _numbers(optimizer)
    fixed = sorted(
        (name, repr(value))
        for name, value in spec.arguments
        if name not in numbers and (name != "learning_rate" or spec.schedule)
    )
    key = (spec.name, tuple(fixed), tuple(sorted(n for n, number in numbers.items() if number)))
    return OptimizerScalars(key, numbers, learning_rate)


def _needs_constants(optimizer: Any) -> bool:
    """True if TensorFlow rounds otherwise where a number of an optimizer is no constant.

    It changes the order of sums in which constants are.
    """
    centered = bool(getattr(optimizer, "centered", False))
    if isinstance(getattr(optimizer, "momentum", None), models.NegativeMomentum):
        return False  # Keras takes none such for a constant
    return centered or type(optimizer).__name__ in _WITH_CONSTANTS


def make_variable(optimizer: Any) -> dict[str, Scalar]:
    """Replace the scalars of an optimizer; it must be built already."""
    scalars = {name: Scalar(number) for name, number in _numbers(optimizer).items()}
    for name, scalar in scalars.items():
        setattr(optimizer, name, scalar)
    return scalars


def _numbers(optimizer: Any) -> dict[str, float]:
    if _needs_constants(optimizer):
        return {}
    found = {name: getattr(optimizer, name, None) for name in VARIABLE_ARGUMENTS}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
