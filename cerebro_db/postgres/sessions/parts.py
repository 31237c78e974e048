"""Large values in parts, both ways: the server takes and gives a ``bytea`` as text of twice its size, within 1 GB.

A value that is sent goes to the trainer of the session, part by part, and comes back within the server into the statement that is
meant. What that statement holds is a call of a function then, which the planner does not copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

# A session that does not block moves what is left of a message after each piece that the server has taken, so that the time
# of one part grows with the square of its size.
PART_BYTES = 2**20
# Smaller values are not worth a trainer.
LARGE_BYTES = 16 * 2**20
_PLACE = re.compile("%[%s]")
_JOINED = "(SELECT cerebro._joined_bytes(%s, %s))"


def joined(run: Run, data: bytes | bytearray | memoryview) -> int:
    """Send bytes to the trainer of a session; returns the token by which functions of that session find them.

    Args:
        run: runs a statement in the session.
        data: any number of bytes.
    """
    token, view = None, memoryview(data)
    for start in range(0, max(len(view), 1), PART_BYTES):
        part = view[start : start + PART_BYTES]
        token = run("SELECT cerebro._join_state(%s, %s::bytea)", (token, part))[0][0]
    return int(token or 0)


def is_large(value: object) -> bool:
    """True for bytes that go in parts."""
    return isinstance(value, bytes | bytearray | memoryview) and len(value) > LARGE_BYTES


def in_parts(run: Run, sql: str, parameters: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The statement with its largest value sent before it; as it is where none is large.

    Args:
        run: runs a statement in the session in which this one will run.
        sql, parameters: of the statement; its places are ``%s``.
    """
    large = [place for place, value in enumerate(parameters) if is_large(value)]
    if not large:
        return sql, parameters
    place = max(large, key=lambda one: len(parameters[one]))
    data = parameters[place]
    values = [*parameters[:place], joined(run, data), len(data), *parameters[place + 1 :]]
    return _with(sql, place, _JOINED), values


def _with(sql: str, place: int, text: str) -> str:
    """A statement with another text in one of its places."""
    found = [one for one in _PLACE.finditer(sql) if one[0] == "%s"][place]
    return f"{sql[: found.start()]}{text}{sql[found.end() :]}"


def parts_of(value: str) -> str:
    """The query that returns a value in parts, a row each, in their order; none of an empty one, and none of NULL.

    Args:
        value: SQL of a ``bytea``, which is computed once.
    """
    return (
        f"SELECT pg_catalog.substring(v.value, p.start, {PART_BYTES}) "
        f"FROM (SELECT {value} AS value OFFSET 0) v, "
        f"pg_catalog.generate_series(1, pg_catalog.octet_length(v.value), {PART_BYTES}) p(start)"
    )
