"""Replicas of a configuration: what tells them apart while they train, and the mean of their states."""

from __future__ import annotations

import math

import numpy as np

from cerebro_db.errors import InvalidState
from cerebro_db.training import state as states
from cerebro_db.training.state import State

# Generators of replicas are so far apart: the golden ratio, in 32 bits.
_APART = 0x9E3779B1
_GENERATORS, _GENERATOR_SHAPE = "others/", (2,)


def of_replica(state: State, place: int) -> State:
    """The state with which a replica trains: each draws random numbers of its own.

    Args:
        state: that all of them begin with.
        place: of the replica, from 0; the first one takes the state as it is.
    """
    if not place:
        return state
    generators = generators_of(state)
    return {
        name: _moved(array, place) if name in generators else array for name, array in state.items()
    }


def generators_of(state: State) -> set[str]:
    """The names of generators: a seed and a counter each."""
    return {
        name
        for name, array in state.items()
        if name.startswith(_GENERATORS)
        and array.dtype.kind in "iu"  # which one, a backend of Keras decides
        and array.shape == _GENERATOR_SHAPE
    }


def _moved(array: np.ndarray, place: int) -> np.ndarray:
    """Seed and counter of a generator, with another seed."""
    moved = array.copy()
    moved[0] = (int(array[0]) + place * _APART) % 2**32
    return moved


class StateMean:
    """Mean of states, weighted by rows; they are taken in one after another.

    Floats are averaged in double precision, in the order of the states. What is counted, and the state of
    generators, is that of the state with the most rows, the first one of these. Where no state has
    rows, all count alike.

    Args:
        weights: rows of each state, in their order.
    """

    def __init__(self, weights: list[float]) -> None:
        total = math.fsum(weights)
        alike = [1 / len(weights)] * len(weights)
        self._weights = [one / total for one in weights] if total else alike
        self._most = weights.index(max(weights))
        self._taken = 0
        self._sums: dict[str, np.ndarray] = {}
        self._whole: State = {}
        self._described: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}

    def add(self, data: bytes) -> None:
        """Take in the next state.

        Raises:
            InvalidState: it is none, or of another model than those before; or there were enough.
        """
        if self._taken == len(self._weights):
            raise InvalidState(f"got more than {self._taken} states of a round")
        state = states.from_bytes(data)
        found = {name: (array.dtype, array.shape) for name, array in state.items()}
        if self._taken and found != self._described:
            raise InvalidState(
                f"got a state of another model as number {self._taken + 1} of a round"
            )
        weight = self._weights[self._taken]
        for name, array in state.items():
            if array.dtype.kind != "f":
                continue
            part = array.astype(np.float64) * weight
            if self._taken:
                self._sums[name] += part
            else:
                self._sums[name] = part
        if not self._taken or self._taken == self._most:
            self._whole = {name: array for name, array in state.items() if name not in self._sums}
        self._described = found
        self._taken += 1

    def finish(self) -> bytes:
        """The mean.

        Raises:
            InvalidState: states are missing.
        """
        if self._taken < len(self._weights):
            raise InvalidState(f"got {self._taken} of {len(self._weights)} states of a round")
        mean = {
            name: self._sums[name].astype(dtype) if name in self._sums else self._whole[name]
            for name, (dtype, _) in self._described.items()
        }
        return states.to_bytes(mean)
