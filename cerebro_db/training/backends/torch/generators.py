"""Random numbers of a configuration: torch's generator, as arrays of its state.

Operations of ATen draw from one generator of the process. While a program trains it has the state of the
configuration's, and afterwards the one that it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from cerebro_db.training.state import State

_GENERATOR = "others/0/generator"
# Seed now and seed of the generator: replicas of a configuration get other seeds before they train.
_SEEDS = "others/1/seeds"


def seeded(seed: int) -> torch.Tensor:
    """The state of a generator as ``torch.manual_seed`` leaves it."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator.get_state()


def arrays(generator: torch.Tensor, seed: int) -> State:
    """A generator in a state."""
    found = generator.numpy().copy()
    return {_GENERATOR: found, _SEEDS: np.asarray([seed % 2**32] * 2, np.uint32)}


def taken(state: State) -> tuple[torch.Tensor, int]:
    """The generator of a state, and its seed.

    One whose seed was moved begins anew, from what it was and the new seed.
    """
    generator = torch.from_numpy(np.array(state[_GENERATOR]))
    now, made = map(int, state[_SEEDS])
    if now != made:
        generator = seeded(int(generator.view(torch.int32).long().sum()) * 31 + now)
    return generator, now


class Active:
    """A generator in use.

    Attributes:
        state: where it is afterwards.
    """

    def __init__(self, state: torch.Tensor) -> None:
        self.state = state


@contextmanager
def active(state: torch.Tensor, draws: bool) -> Iterator[Active]:
    """Let operations draw from a generator."""
    found = Active(state)
    if not draws:
        yield found
        return
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield found
        found.state = torch.get_rng_state()
    finally:
        torch.set_rng_state(before)
