"""States that are stored in chunks, joined in the memory of a session for one function call."""

from __future__ import annotations

from typing import Any

from cerebro_db.errors import InvalidState
from cerebro_db.server.entry import entry
from cerebro_db.training import state_layout
from cerebro_db.training.state_layout import WEIGHTS, Part

_KEY = "cerebro.joined"
# The largest value of the server, less a little for its header.
_MAX_VALUE_BYTES = 2**30 - 2**10


class _Joined:
    """The chunks of the one state that is joined at present."""

    def __init__(self) -> None:
        self.token = 0
        self.chunks: list[bytes] = []


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
    data = take_joined(gd, token)
    model = state_layout.of_model({part.name: part for part in state_layout.parts_of(data)})
    weights = [part for name, part in model.items() if name.startswith(WEIGHTS)]
    if 4 * sum(part.size for part in weights) > _MAX_VALUE_BYTES:
        return None
    return b"".join(_as_float32(data, part) for part in weights)


def _as_float32(data: bytes, part: Part) -> bytes | memoryview:
    if part.dtype == "float32":
        return memoryview(data)[part.start : part.end]
    from cerebro_db.training.state import array_of

    return array_of(data, part).astype("float32").tobytes()
