"""States that are stored in chunks, joined in the memory of a session for one function call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cerebro_db.errors import InvalidState
from cerebro_db.server.entry import entry
from cerebro_db.training import state as states

_KEY = "cerebro.joined"
# The largest value of the server, less a little for its header.
_MAX_VALUE_BYTES = 2**30 - 2**10


@dataclass
class _Joined:
    """The chunks of the one state that is joined at present."""

    token: int = 0
    chunks: list[bytes] = field(default_factory=list)


@entry
def join_state(plpy: Any, gd: dict[str, Any], token: int | None, state: bytes | None) -> int:
    """Take a chunk; the first one forgets whatever was joined before."""
    joined: _Joined = gd.setdefault(_KEY, _Joined())
    if token is None:
        joined.token += 1
        joined.chunks = []
    elif token != joined.token:
        raise InvalidState(f"got the token {token} where a state of token {joined.token} is joined")
    if state is None:
        raise InvalidState("got NULL for a chunk of a state")
    joined.chunks.append(state)
    return joined.token


def take_joined(gd: dict[str, Any], token: int | None) -> bytes:
    """The bytes of a joined state, which is forgotten."""
    joined: _Joined = gd.get(_KEY, _Joined())
    if token is None or token != joined.token or not joined.chunks:
        raise InvalidState(f"got the token {token}; there is no state of that token")
    chunks, joined.chunks = joined.chunks, []
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


@entry
def state_weights(plpy: Any, gd: dict[str, Any], token: int | None) -> bytes | None:
    """The weights of a state as float32; None where no value of the server can hold them."""
    model = states.of_model(states.from_bytes(take_joined(gd, token)))
    weights = [array for name, array in model.items() if name.startswith(states.WEIGHTS)]
    if 4 * sum(array.size for array in weights) > _MAX_VALUE_BYTES:
        return None
    return b"".join(array.astype(np.float32).tobytes() for array in weights)
