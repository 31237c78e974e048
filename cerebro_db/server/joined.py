"""Bytes that come to this process in parts, and go so: states, weights and files that one value of a statement cannot hold."""

from __future__ import annotations

import resource
from typing import Any

from cerebro_db.configs.settings import Settings
from cerebro_db.errors import InvalidState
from cerebro_db.postgres.sessions.parts import PART_BYTES
from cerebro_db.server.entry import entry
from cerebro_db.server.limits import limit_memory
from cerebro_db.server.settings import settings_of
from cerebro_db.training.environment import configured

_KEY, _REST = "cerebro.joined", "cerebro.rest"
# A first chunk that is smaller is taken before limits are known, and so many bytes of them.
_LARGE_BYTES, _MOST_UNBOUND_BYTES = 2**20, 2**26


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
        if len(state or b"") >= _LARGE_BYTES and _is_unbound(plpy):
            limit_memory(settings_of(plpy))
        joined.token += 1
        joined.chunks = []
    elif token != joined.token:
        raise InvalidState(f"got the token {token} where a state of token {joined.token} is joined")
    if state is None:
        raise InvalidState("got NULL for a chunk of a state")
    if sum(map(len, joined.chunks)) + len(state) > _MOST_UNBOUND_BYTES and _is_unbound(plpy):
        limit_memory(Settings())  # a later chunk comes without anyone to ask
    joined.chunks.append(state)
    return joined.token


@entry
def joined_bytes(plpy: Any, gd: dict[str, Any], token: int | None, size: int | None) -> bytes:
    """The bytes that were joined, for a statement of the same session.

    Args:
        token: of them.
        size: how many were sent; a part whose error nobody has waited for is missing.
    """
    data = take_joined(gd, token)
    if len(data) != size:
        raise InvalidState(
            f"{size} bytes were sent, and {len(data)} have come to the process that joins them",
            hint="try again; the log of its keeper may tell more",
        )
    return data


def take_joined(gd: dict[str, Any], token: int | None) -> bytes:
    """The bytes of a joined state, which is forgotten."""
    joined: _Joined = gd.get(_KEY, _Joined())
    if token is None or token != joined.token or not joined.chunks:
        raise InvalidState(f"got the token {token}; there is no state of that token")
    chunks, joined.chunks = joined.chunks, []
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def first_part(gd: dict[str, Any], data: bytes) -> bytes | None:
    """The first part of bytes that leave this process in parts; what is left of others is forgotten."""
    gd[_REST] = memoryview(data)
    return next_part(gd)


def next_part(gd: dict[str, Any]) -> bytes | None:
    """The part after the last one that was taken; None after the end."""
    rest = gd.pop(_REST, b"")
    if len(rest) > PART_BYTES:
        gd[_REST] = rest[PART_BYTES:]
    return bytes(rest[:PART_BYTES]) or None


def _is_unbound(plpy: Any) -> bool:
    """True for a process whose first work this is; any other one has its limits.

    On a segment, where a process cannot ask for settings, it was prepared before.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    is_bound = hard != resource.RLIM_INFINITY or bool(configured().get("use_gpus"))
    return not is_bound and plpy.segment is None
