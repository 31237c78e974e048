"""The memory of a worker, estimated before a run starts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

_MB = 2**20
# Measured with TensorFlow 2.21 on x86-64, resident, peaks: a server process with TensorFlow in it;
# a program, of a plain loop and of one that XLA compiled; what a hop holds of a model at once, as
# multiples of the bytes of its parameters (gradients, updates) and of its whole state (as it comes,
# in variables, in the next state's bytes and their copy for the row).
_BASE_BYTES = 750 * _MB
_PROGRAM_BYTES = 20 * _MB
_COMPILED_BYTES = 60 * _MB
_PARAMETERS, _STATE = 3.0, 5.2
# Arrays as large as the parameters that an optimizer keeps; those that are not here keep two.
_SLOTS = {"SGD": 1, "Adagrad": 1, "Adafactor": 1, "Lion": 1}
_DEFAULT_SLOTS = 2
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Load:
    """What one configuration asks of a worker.

    Attributes:
        program: equal for configurations that share a program.
        parameters: of the model.
        optimizer: name of the class.
        compiled: whether XLA compiles the program.
        averages: whether the optimizer keeps averages of the parameters.
    """

    program: object
    parameters: int
    optimizer: str
    compiled: bool
    averages: bool = False

    @property
    def state_bytes(self) -> int:
        """Of the whole state."""
        slots = _SLOTS.get(self.optimizer, _DEFAULT_SLOTS)
        return _FLOAT_BYTES * self.parameters * (1 + slots + self.averages)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a worker is expected to need at most.

    Attributes:
        base: with TensorFlow, before it trains anything.
        cache: decoded partitions.
        programs: compiled ones.
        states: of the largest model, while it is trained.
    """

    base: int
    cache: int
    programs: int
    states: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.base + self.cache + self.programs + self.states

    def __str__(self) -> str:
        parts = {
            "TensorFlow": self.base,
            "data": self.cache,
            "programs": self.programs,
            "states": self.states,
        }
        return ", ".join(f"{name} {size // _MB} MB" for name, size in parts.items())


def worker_memory(loads: Collection[Load], data_bytes: int, cache_bytes: int) -> MemoryEstimate:
    """Estimate the peak of a worker that may meet every configuration.

    Args:
        loads: of the configurations.
        data_bytes: of all packed tables of the run, decoded.
        cache_bytes: of them that a worker may keep.
    """
    programs = {load.program: load.compiled for load in loads}
    return MemoryEstimate(
        base=_BASE_BYTES,
        cache=min(data_bytes, cache_bytes),
        programs=sum(_COMPILED_BYTES if jit else _PROGRAM_BYTES for jit in programs.values()),
        states=max(
            (
                int(_PARAMETERS * _FLOAT_BYTES * load.parameters + _STATE * load.state_bytes)
                for load in loads
            ),
            default=0,
        ),
    )
