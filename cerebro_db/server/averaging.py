"""Entries of the aggregate that averages the states of a round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.errors import InvalidArgument, InvalidState
from cerebro_db.server.computing import Tick, compute, computing
from cerebro_db.server.entry import entry
from cerebro_db.server.memory import recall
from cerebro_db.server.training import checked
from cerebro_db.training.averaging import StateMean

_MOST_STATES = 100_000


@dataclass
class _Averaging:
    """The mean under way, and the state that is coming in, chunk by chunk.

    Attributes:
        place: of that state.
    """

    mean: StateMean
    place: int = 0
    chunks: list[bytes] = field(default_factory=list)

    def take(self) -> None:
        """The state is whole."""
        chunks, self.chunks = self.chunks, []
        self.mean.add(chunks[0] if len(chunks) == 1 else b"".join(chunks))


@entry
def average_step(
    plpy: Any,
    gd: dict[str, Any],
    token: int | None,
    weights: list[float | None] | None,
    place: int | None,
    state: bytes | None,
) -> int:
    """Take a chunk of a state; the states come in the order of their weights."""
    memory = recall(gd)
    if token is None:
        token = memory.begin(_Averaging(StateMean(_checked(weights))))
    work: _Averaging = memory.current(token, _Averaging)
    place = checked("place", place, work.place, work.place + 1)
    if state is None:
        raise InvalidState("got NULL for a chunk of a state")
    if place > work.place:
        compute(plpy, lambda tick: work.take())
        work.place = place
    work.chunks.append(state)
    return memory.token


def _checked(weights: list[float | None] | None) -> list[float]:
    """The rows of each state."""
    found = [one for one in weights or [] if one is not None and math.isfinite(one) and one >= 0]
    if weights is None or len(found) != len(weights) or not 0 < len(found) <= _MOST_STATES:
        raise InvalidArgument(f"weights: got {weights}; allowed: numbers from 0")
    return found


@entry
@computing
def average_final(tick: Tick, gd: dict[str, Any], token: int | None) -> int:
    """End a mean; the state that comes of it waits for ``saved_state`` of this token."""
    memory = recall(gd)
    work: _Averaging = memory.end(token, _Averaging)
    work.take()
    memory.saved = work.mean.finish()
    return memory.token
