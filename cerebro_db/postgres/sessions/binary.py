"""The binary format of COPY: the one way in which libpq moves large values without doubling them.

Its format is described in "COPY" of PostgreSQL's reference, under "Binary Format".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_HEAD = struct.Struct("!11sII")
_COUNT, _SIZE, _ARRAY = struct.Struct("!h"), struct.Struct("!i"), struct.Struct("!iII")
_DIMENSION, _ELEMENT = struct.Struct("!ii"), struct.Struct("!ii")
_END = -1


def rows(data: bytes) -> Iterator[list[bytes | None]]:
    """The rows of a whole COPY: the bytes of each value, None for NULL.

    Raises:
        ValueError: it is no such thing.
    """
    view = memoryview(data)
    signature, _, extension = _HEAD.unpack_from(view)
    if signature != _SIGNATURE:
        raise ValueError("got something else than a COPY in binary format")
    at = _HEAD.size + extension
    while True:
        (count,) = _COUNT.unpack_from(view, at)
        at += _COUNT.size
        if count == _END:
            return
        row: list[bytes | None] = []
        for _ in range(count):
            (size,) = _SIZE.unpack_from(view, at)
            at += _SIZE.size
            row.append(None if size < 0 else bytes(view[at : at + size]))
            at += max(size, 0)
        yield row


def integer(value: bytes | None) -> int | None:
    """The number of an ``integer``."""
    return None if value is None else int.from_bytes(value, "big", signed=True)


def integers(value: bytes | None) -> list[int] | None:
    """The numbers of an ``integer[]`` of one dimension; none of an empty one.

    Raises:
        ValueError: it has NULLs, or more dimensions.
    """
    if value is None:
        return None
    dimensions, has_nulls, _ = _ARRAY.unpack_from(value)
    if not dimensions:
        return []
    if dimensions > 1 or has_nulls:
        raise ValueError("got an array of several dimensions, or with NULL")
    count, _ = _DIMENSION.unpack_from(value, _ARRAY.size)
    start = _ARRAY.size + _DIMENSION.size
    places = range(start, start + count * _ELEMENT.size, _ELEMENT.size)
    return [_ELEMENT.unpack_from(value, place)[1] for place in places]


Value = int | bytes | None


def parts(given: Iterable[Sequence[Value]]) -> Iterator[bytes]:
    """A COPY of rows of ``integer`` and ``bytea``, piece by piece; large values as they are."""
    yield _HEAD.pack(_SIGNATURE, 0, 0)
    for row in given:
        yield _COUNT.pack(len(row))
        for value in row:
            if value is None:
                yield _SIZE.pack(-1)
            elif isinstance(value, int):
                yield _SIZE.pack(4) + value.to_bytes(4, "big", signed=True)
            else:
                yield _SIZE.pack(len(value))
                yield value
    yield _COUNT.pack(_END)


class Reader:
    """A file that is read piece by piece, as ``copy_expert`` does.

    Args:
        pieces: of it.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; none at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        most = len(self._rest) if size < 0 else size
        found, self._rest = bytes(self._rest[:most]), self._rest[most:]
        return found
