"""Some rows of a table, drawn by a seed, as the features that a model is given."""

from __future__ import annotations

import base64
import itertools
import random
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.postgres.dialects.statements.sources import PackedSource, RowSource
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.session import Session


@dataclass(frozen=True)
class Sample:
    """Rows of a table.

    Attributes:
        rows: how many.
        data: of each input all rows: float32 of a packed table, else arrays as the server sends them.
        is_packed: which of the two.
    """

    rows: int
    data: bytes
    is_packed: bool

    def task(self) -> dict[str, Any]:
        """Part of a worker's task."""
        data = base64.b64encode(self.data).decode("ascii")
        return {"rows": self.rows, "data": data, "packed": self.is_packed}

    def numbers(self) -> array[float]:
        """The numbers of packed rows."""
        return array("f", self.data)


def drawn(session: Session, source: RowSource | PackedSource, rows: int, seed: int) -> Sample:
    """So many rows of a source, or all where there are fewer; which ones depends on the seed and the rows alone."""
    draw = _of_packed if isinstance(source, PackedSource) else _of_rows
    return draw(session, source, rows, seed)  # type: ignore[arg-type]


def _of_rows(session: Session, source: RowSource, rows: int, seed: int) -> Sample:
    """Rows in the order of a hash of their features: rows that are equal are as good as each other."""
    inputs = list(enumerate(source.inputs))
    sent = ", ".join(f"{one.sent(f'f.v{place}')} AS x{place}" for place, one in inputs)
    values = ", ".join(f"{one.value('t')} AS v{place}" for place, one in inputs)
    joined = " || ".join(f"s.x{place}" for place, _ in inputs)
    lists = " || ".join(
        f"pg_catalog.string_agg(d.x{place}, ''::bytea ORDER BY d.h)" for place, _ in inputs
    )
    sql = (
        f"SELECT pg_catalog.count(*)::integer, {lists} FROM ("
        f"SELECT s.*, pg_catalog.decode(pg_catalog.md5(pg_catalog.convert_to(%s::text, 'UTF8') || {joined}), 'hex') "
        f"AS h FROM (SELECT {sent} FROM (SELECT {values} FROM {source.rows} OFFSET 0) f) s "
        f"WHERE ({joined}) IS NOT NULL ORDER BY h LIMIT %s) d"
    )
    count, data = session.run(sql, (str(seed), rows))[0]
    return Sample(count, bytes(data or b""), is_packed=False)


def _of_packed(session: Session, source: PackedSource, rows: int, seed: int) -> Sample:
    """Rows at places that the seed chooses."""
    listed = (
        f"SELECT t.partition_key, t.buffer_id, t.num_rows FROM {source.table.sql} t ORDER BY 1, 2"
    )
    buffers = session.run(listed)
    ends = list(itertools.accumulate(count for *_, count in buffers))
    total = ends[-1] if ends else 0
    places = sorted(random.Random(seed).sample(range(total), min(rows, total)))
    found = [(place, bisect_right(ends, place)) for place in places]
    keys, ids, numbers = [], [], []
    for place, buffer in found:
        keys.append(buffers[buffer][0])
        ids.append(buffers[buffer][1])
        numbers.append(place - (ends[buffer] - buffers[buffer][2]))
    return Sample(len(places), _read(session, source, (keys, ids, numbers)), is_packed=True)


def _read(session: Session, source: PackedSource, places: Sequence[Sequence[int]]) -> bytes:
    lists = " || ".join(
        f"pg_catalog.string_agg(pg_catalog.substring(t.{quote(name)}, c.n * {size} + 1, {size}), ''::bytea "
        "ORDER BY c.place)"
        for name, size in source.columns
    )
    sql = (
        f"SELECT {lists} FROM unnest(%s::integer[], %s::integer[], %s::integer[]) WITH ORDINALITY "
        f"AS c(k, b, n, place) JOIN {source.table.sql} t ON t.partition_key = c.k AND t.buffer_id = c.b"
    )
    return bytes(session.run(sql, tuple(map(list, places)))[0][0] or b"")
