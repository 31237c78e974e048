"""Rows that are predicted on, and the SQL by which batches of them are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cerebro_db.columns.inputs import Input
from cerebro_db.postgres.dialects.statements.orders import Statement
from cerebro_db.postgres.names import QualifiedName, quote

# Which rows of a source a statement is about: None for all, the first block and the one after the
# last, or a partition with its first and last buffer.
Piece = tuple[int, ...] | None
PACKED_IDS = (("partition_key", "integer"), ("buffer_id", "integer"), ("row_number", "integer"))
# The rows of a piece in a statement that leaves some of them out.
READ = "cerebro_rows"


@dataclass(frozen=True)
class RowSource:
    """A table with a row for each example.

    Attributes:
        table: any table or view.
        ids: name and type of each column that names a row.
        keys: expressions over the alias ``t`` of these columns, or of their text.
        inputs: what is read of each row.
        addressed: whether the rows have addresses that may be read.
        comparable: whether all keys can be compared as they are.
        ignores: whether rows of images that cannot be read are left out.
        seen, some: what stands behind FROM to read all rows, or one, as the caller's session sees them;
            empty where that is the table itself.
    """

    table: QualifiedName
    ids: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    inputs: tuple[Input, ...]
    addressed: bool
    comparable: bool = True
    ignores: bool = False
    seen: str = ""
    some: str = ""

    @property
    def rows(self) -> str:
        """FROM item of the rows, with the alias ``t``."""
        return self.seen or f"{self.table.sql} t"

    @property
    def any_row(self) -> str:
        """FROM item of any of these rows, with the alias ``t``."""
        return self.some or self.rows

    @property
    def fault(self) -> str:
        """Fault of an image, or NULL: expression over ``t``."""
        return self.inputs[0].damage(self.features)

    @property
    def features(self) -> str:
        """The first input: expression over ``t``."""
        return self.inputs[0].value("t")

    @property
    def more(self) -> tuple[str, ...]:
        """The other inputs: expressions over ``t``."""
        return tuple(one.value("t") for one in self.inputs[1:])

    def read(self, piece: Piece) -> Statement:
        """The rows of a piece with what is wrong with them, from which ``batches`` then takes them."""
        where = "" if piece is None else "WHERE t.ctid >= %s::tid AND t.ctid < %s::tid"
        ends = [] if piece is None else [f"({block},0)" for block in piece]
        sql = (
            f"SELECT {self.named}, {self.features} AS x, {self.id}::text AS id, "
            f"{self.fault} AS fault FROM {self.rows} {where}"
        )
        return sql, ends

    @property
    def id(self) -> str:
        """Name of a row in one value; NULL where one of its keys is."""
        if len(self.keys) == 1:
            return self.keys[0]
        missing = " OR ".join(f"{key} IS NULL" for key in self.keys)
        listed = ", ".join(f"{key}::text" for key in self.keys)
        return f"CASE WHEN {missing} THEN NULL ELSE pg_catalog.json_build_array({listed})::text END"

    @property
    def row_ids(self) -> str:
        """The columns that name a row, over its place ``i`` in a batch."""
        return ", ".join(
            f"i.id{place}::{kind.replace('%', '%%')}" for place, (_, kind) in enumerate(self.ids)
        )

    @property
    def places(self) -> str:
        """The rows of a batch ``p``, with what names them."""
        numbers = range(len(self.keys))
        arrays = ", ".join(f"p.ids{place}" for place in numbers)
        names = ", ".join(f"id{place}" for place in numbers)
        return f"unnest({arrays}) WITH ORDINALITY AS u({names}, place)"

    def batches(self, token: int, batch_rows: int, piece: Piece) -> Statement:
        """Batches ``p``: ids of their rows, and what was predicted for these one after another.

        OFFSET 0 fixes the order of the joins: a batch must go to the worker once, and its arrays
        must not be copied with every row. A NULL among ids or features is the worker's to see.
        """
        where = "" if piece is None else "WHERE t.ctid >= %s::tid AND t.ctid < %s::tid"
        # All rows of the first input, then all of the next one.
        listed = "".join(f", {one} AS x{place}" for place, one in enumerate(self.more))
        joined = "".join(
            f" || pg_catalog.string_agg({one.sent(f's.x{place}')}, ''::bytea)"
            for place, one in enumerate(self.inputs[1:])
        )
        ends = [] if piece is None else [f"({block},0)" for block in piece]
        numbers = range(len(self.keys))
        known = " AND ".join(f"s.id{place} IS NOT NULL" for place in numbers)
        rows = f"{self.named}, {self.features} AS x{listed}", f"{self.rows} {where}"
        if self.ignores:
            ends = []
            names = ", ".join(f"t.id{place}" for place in numbers)
            rows = f"{names}, t.x", f"{READ} t WHERE t.fault IS NULL"
        sql = f"""
        (SELECT {", ".join(f"b.ids{place}" for place in numbers)}, q.classes, q.numbers
           FROM (SELECT {", ".join(f"pg_catalog.array_agg(s.id{n}) AS ids{n}" for n in numbers)},
                        pg_catalog.count(CASE WHEN {known} THEN 1 END)::integer AS known,
                        pg_catalog.count(*)::integer AS n,
                        pg_catalog.string_agg({self.sent("s.x")}, ''::bytea){joined} AS x
                   FROM (SELECT {rows[0]}, (pg_catalog.row_number() OVER () - 1) / %s AS batch
                           FROM {rows[1]}) s
                  GROUP BY s.batch) b,
                LATERAL cerebro._predict_batch(%s, b.x, b.n, b.known) q
         OFFSET 0) p
        """
        return sql, [batch_rows, *ends, token]

    @property
    def named(self) -> str:
        """The keys in a list of columns, by the names that they have there."""
        return ", ".join(f"{key} AS id{place}" for place, key in enumerate(self.keys))

    def sent(self, features: str) -> str:
        """The bytes of features, as a worker reads them."""
        return self.inputs[0].sent(features)


@dataclass(frozen=True)
class PackedSource:
    """A packed table.

    Attributes:
        table: of buffers.
        columns: names of those of the inputs, and the bytes of one row in a buffer of each.
        fold: the only one whose rows are wanted, by its number from 0 and of how many; None for all rows.
        wanted: of each partition the numbers of its buffers, and a bit for each row of these, the lowest first,
            where rows are in folds by their numbers.
    """

    table: QualifiedName
    columns: tuple[tuple[str, int], ...]
    fold: tuple[int, int] | None = None
    wanted: Mapping[int, Sequence[tuple[int, bytes]]] | None = None

    @property
    def any_row(self) -> str:
        """FROM item of any of the rows, with the alias ``t``."""
        return f"{self.table.sql} t"

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all inputs."""
        return sum(size for _, size in self.columns)

    @property
    def slices(self) -> str:
        """The rows of a buffer ``t`` from ``g.start``: all of the first input, then of the next.

        Parameter, for each input: how many rows at most.
        """
        return " || ".join(
            f"pg_catalog.substring(t.{quote(name)}, g.start * {size} + 1, "
            f"LEAST(%s, t.num_rows - g.start) * {size})"
            for name, size in self.columns
        )

    ids = PACKED_IDS
    row_ids = "p.partition_key, p.buffer_id, (p.start + i.place)::integer"

    @property
    def places(self) -> str:
        """The rows of a batch ``p``; of a fold those that ``training.folds.Fold`` holds out."""
        if self.wanted is not None:
            return (
                "(SELECT g.place FROM pg_catalog.generate_series(1, p.n) AS g(place) "
                "WHERE pg_catalog.get_bit(p.wanted, p.start + g.place - 1) = 1) AS u"
            )
        if self.fold is None:
            return "pg_catalog.generate_series(1, p.n) AS u(place)"
        number, count = self.fold
        return (
            "(SELECT g.place FROM pg_catalog.generate_series(1, p.n) AS g(place) "
            "WHERE pg_catalog.mod(p.start + g.place - 1 + p.buffer_id + p.partition_key, "
            f"{count}) = {number}) AS u"
        )

    def batches(self, token: int, batch_rows: int, piece: Piece) -> Statement:
        """Batches ``p``: slices of buffers, and what was predicted for their rows."""
        more, joined = ("", ""), ""
        given: list[Any] = []
        if self.wanted is not None and piece is not None:
            more = ", w.bits AS wanted", ", b.wanted"
            joined = (
                " JOIN unnest(%s::integer[], %s::bytea[]) AS w(buffer_id, bits) USING (buffer_id)"
            )
            given = [list(one) for one in zip(*self.wanted[piece[0]], strict=True)]
        sql = f"""
        (SELECT b.partition_key, b.buffer_id, b.start, b.n{more[1]}, q.classes, q.numbers
           FROM (SELECT t.partition_key, t.buffer_id, g.start, LEAST(%s, t.num_rows - g.start) AS n,
                        {self.slices} AS x{more[0]}
                   FROM {self.table.sql} t{joined},
                        pg_catalog.generate_series(0, t.num_rows - 1, %s) AS g(start)
                  WHERE t.partition_key = %s AND t.buffer_id BETWEEN %s AND %s OFFSET 0) b,
                LATERAL cerebro._predict_buffer(%s, b.x, b.n) q
         OFFSET 0) p
        """
        rows = [batch_rows] * (1 + len(self.columns))
        return sql, [*rows, *given, batch_rows, *(piece or ()), token]


Source = RowSource | PackedSource


class StoredModel(NamedTuple):
    """Place of the state, or the weights, of models.

    Attributes:
        table: with a row for each model, or for each chunk of one.
        key: name of the column that names a model.
        state: name of the column of what was trained.
        chunk: name of the column that orders the rows of a model; None where each has one row.
    """

    table: QualifiedName
    key: str = "mst_key"
    state: str = "state"
    chunk: str | None = "chunk"

    @property
    def chunks(self) -> str:
        """Columns that an aggregate takes, over the alias ``s``."""
        order = "" if self.chunk is None else f" ORDER BY s.{quote(self.chunk)}"
        return f"s.{quote(self.state)}{order}"
