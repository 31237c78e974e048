"""SQL of predictions on PostgreSQL: rows go to workers in batches, a piece of the table a statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cerebro_db.columns.inputs import Input, sent_array
from cerebro_db.postgres.dialects.postgresql.packing_extras import FAULTS_SHOWN
from cerebro_db.postgres.dialects.postgresql.prediction_answers import (
    Answer,
    Several,
    Values,
    estimate,
)
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.tables.kinds import DRAFTS, PREDICTIONS

if TYPE_CHECKING:
    from cerebro_db.postgres.dialects.greenplum6.prediction import GreenplumPrediction

Statement = tuple[str, list[Any]]
# Which rows of a source a statement is about: None for all, the first block and the one after the
# last, or a partition with its first and last buffer.
Piece = tuple[int, ...] | None

PACKED_IDS = (("partition_key", "integer"), ("buffer_id", "integer"), ("row_number", "integer"))
# The rows of a piece in a statement that leaves some of them out.
READ = "cerebro_rows"
UNFINISHED = DRAFTS.text()

# A piece is a few batches: small enough to keep all workers busy to the end. It depends on the
# table only, as do the batches in it: they, and so all results, are the same for any workers.
PIECE_BLOCKS = 256
PIECE_ROWS = 32_768
ADDRESSED_SINCE = 140000


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
            f" || pg_catalog.string_agg({sent_array(f's.x{place}')}, ''::bytea)"
            for place in range(len(self.more))
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
    """

    table: QualifiedName
    columns: tuple[tuple[str, int], ...]

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
    places = "pg_catalog.generate_series(1, p.n) AS u(place)"

    def batches(self, token: int, batch_rows: int, piece: Piece) -> Statement:
        """Batches ``p``: slices of buffers, and what was predicted for their rows."""
        sql = f"""
        (SELECT b.partition_key, b.buffer_id, b.start, b.n, q.classes, q.numbers
           FROM (SELECT t.partition_key, t.buffer_id, g.start, LEAST(%s, t.num_rows - g.start) AS n,
                        {self.slices} AS x
                   FROM {self.table.sql} t,
                        pg_catalog.generate_series(0, t.num_rows - 1, %s) AS g(start)
                  WHERE t.partition_key = %s AND t.buffer_id BETWEEN %s AND %s OFFSET 0) b,
                LATERAL cerebro._predict_buffer(%s, b.x, b.n) q
         OFFSET 0) p
        """
        rows = [batch_rows] * (2 + len(self.columns))
        return sql, [*rows, *(piece or ()), token]


Source = RowSource | PackedSource


@dataclass(frozen=True)
class StoredModel:
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


_SCANS = "SET LOCAL enable_hashagg = off; SET LOCAL synchronize_seqscans = off"


class PostgreSQLPrediction:
    """Texts of the statements.

    Args:
        server_version: before ADDRESSED_SINCE a scan of some blocks reads all of them.
    """

    # What all workers see is what the first of them saw. Batches that come in order are sorted
    # with little memory; hashing them takes all rows'. A scan must begin where the table does.
    begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {_SCANS}"
    follow = f"BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT %s; {_SCANS}"
    export = "SELECT pg_catalog.pg_export_snapshot()"
    try_lock = "SELECT pg_catalog.pg_try_advisory_lock(%s)"
    # Whether segments predict, each the rows that it has.
    in_one_statement = False
    # What tells where a row of a scan is, and which of several is named.
    row_number, first_row = "pg_catalog.row_number() OVER ()", "f.n"

    def __init__(self, server_version: int = ADDRESSED_SINCE) -> None:
        self.has_addressed_scans = server_version >= ADDRESSED_SINCE

    @property
    def spread(self) -> GreenplumPrediction | None:
        """These statements where rows are spread over segments, None elsewhere."""
        return None

    def create(self, table: QualifiedName, source: Source, columns: str, unfinished: bool) -> str:
        """The table of predictions, empty; ``columns`` are those of Classes or Values."""
        ids = ", ".join(f"{quote(name)} {kind.replace('%', '%%')}" for name, kind in source.ids)
        comment = UNFINISHED if unfinished else PREDICTIONS.text()
        return (
            f"CREATE TABLE {table.sql} ({ids}, class_name text, {columns}); "
            f"COMMENT ON TABLE {table.sql} IS '{comment}'"
        )

    def finish(self, table: QualifiedName, output: QualifiedName) -> str:
        """A table that is complete gets its name."""
        return (
            f"ALTER TABLE {table.sql} RENAME TO {quote(output.name)}; {PREDICTIONS.comment(output)}"
        )

    def leftover(self, table: QualifiedName) -> Statement:
        """The comment of a table, if there is one."""
        sql = (
            "SELECT pg_catalog.obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s"
        )
        return sql, [table.schema, table.name]

    def drop(self, table: QualifiedName) -> str:
        """Remove what is not finished."""
        return f"DROP TABLE IF EXISTS {table.sql}"

    def load(self, stored: StoredModel) -> str:
        """Load a model into the worker; returns a token. Parameters: task, key of the model."""
        return _load("cerebro._begin_prediction(%s", stored)

    def extend(self, stored: StoredModel) -> str:
        """Load one more model, whose predictions count too. Parameters: token, task, key."""
        return _load("cerebro._extend_prediction(%s, %s", stored)

    def is_empty(self, source: Source) -> str:
        """Query of one boolean, true where the source has no rows."""
        return f"SELECT NOT EXISTS (SELECT 1 FROM {source.any_row})"

    def repeated(self, source: RowSource) -> str:
        """Number of ids that several rows have, of these rows, and of all rows."""
        keys = source.keys
        if not source.comparable:
            keys = tuple(f'{key}::text COLLATE "C"' for key in keys)
        return (
            "SELECT pg_catalog.count(CASE WHEN d.n > 1 THEN 1 END) AS ids, "
            "COALESCE(pg_catalog.sum(CASE WHEN d.n > 1 THEN d.n END), 0)::bigint AS rows, "
            "COALESCE(pg_catalog.sum(d.n), 0)::bigint AS total FROM ("
            f"SELECT pg_catalog.count(*) AS n FROM {source.rows} GROUP BY {', '.join(keys)}) d"
        )

    def reached(self, source: RowSource) -> str:
        """Rows that the pieces of a source have. Parameters: the first block, the one after the last."""
        return (
            f"SELECT pg_catalog.count(*) FROM {source.table.sql} t "
            "WHERE t.ctid >= ('(' || %s || ',0)')::tid AND t.ctid < ('(' || %s || ',0)')::tid"
        )

    def extent(self, source: Source) -> Statement | None:
        """Extent that pieces are cut from; None for a source that is one piece."""
        if isinstance(source, PackedSource):
            sql = "SELECT t.partition_key, t.buffer_id, t.num_rows FROM {} t ORDER BY 1, 2"
            return sql.format(source.table.sql), []
        if not (source.addressed and self.has_addressed_scans):
            return None
        sql = (
            "SELECT (pg_catalog.pg_relation_size(pg_catalog.to_regclass(%s)) "
            "/ pg_catalog.current_setting('block_size')::bigint)::integer"
        )
        return sql, [source.table.text]

    def pieces(self, source: Source, extent: Sequence[tuple[Any, ...]]) -> list[Piece]:
        """The pieces of a source.

        Args:
            extent: the rows of the statement of that name; none where there is no statement.
        """
        if isinstance(source, PackedSource):
            return _buffers(extent)
        if not extent:
            return [None]
        ((blocks,),) = extent
        return [(first, first + PIECE_BLOCKS) for first in range(0, blocks, PIECE_BLOCKS)]

    def insertion(
        self,
        output: QualifiedName,
        source: Source,
        answer: Answer,
        token: int,
        batch_rows: int,
        piece: Piece,
    ) -> Statement:
        """Statement that predicts the rows of a piece and inserts the answers of each.

        Where rows are left out: how many, the first ids, and what is wrong with these.
        """
        statement = self._inserted(output, source, answer, token, batch_rows, piece)
        if not (isinstance(source, RowSource) and source.ignores):
            return statement
        rows, ends = source.read(piece)
        sql = f"WITH {READ} AS ({rows}), inserted AS ({statement[0]}) {left_out_rows(READ)}"
        return sql, [*ends, *statement[1]]

    def _inserted(
        self,
        output: QualifiedName,
        source: Source,
        answer: Answer,
        token: int,
        batch_rows: int,
        piece: Piece,
    ) -> Statement:
        batches, parameters = source.batches(token, batch_rows, piece)
        if isinstance(answer, Several):
            rows, given = answer.rows()
            sql = f"""
            INSERT INTO {output.sql}
            SELECT {source.row_ids}, o.*
              FROM {batches}, LATERAL (SELECT u.* FROM {source.places} OFFSET 0) i,
                   LATERAL ({rows}) o
            """
            return sql, [*parameters, *given]
        if isinstance(answer, Values):
            sql = f"""
            INSERT INTO {output.sql}
            SELECT {source.row_ids}, %s, {estimate(answer.shape)}
              FROM {batches}, LATERAL (SELECT u.* FROM {source.places} OFFSET 0) i
            """
            return sql, [answer.name, *parameters]
        place = f"((i.place - 1) * {answer.ranks} + i.rank)::integer"
        sql = f"""
        INSERT INTO {output.sql}
        SELECT {source.row_ids}, %s, (%s::text[])[p.classes[{place}] + 1], p.numbers[{place}],
               i.rank
          FROM {batches},
               LATERAL (SELECT u.*, r.rank
                          FROM {source.places}, pg_catalog.generate_series(1, %s) AS r(rank)
                        OFFSET 0) i
        """
        given = [answer.name, list(answer.values), *parameters, answer.ranks]
        if answer.above == -math.inf:
            return sql, given
        return f"{sql} WHERE p.numbers[{place}] > %s", [*given, answer.above]

    def named_row(self, number: int | None, table: QualifiedName) -> str:
        """Words that lead a user to a row of ``culprit``."""
        return f"row {number} of the scan of {table}"

    def row_with(self, source: RowSource, place: int) -> str:
        """The first row with an id among its features.

        Args:
            place: of the input.

        Parameters: divisor, place of the feature from 1, the id. Columns: number in the scan, id.
        """
        features = (source.features, *source.more)[place]
        return f"""
        SELECT f.n, f.id FROM (
            SELECT {self.row_number} AS n, {source.id}::text AS id, {features} AS x
              FROM {source.table.sql} t) f
         WHERE (SELECT pg_catalog.trunc(u.v::float8 / %s)
                  FROM pg_catalog.unnest(f.x) WITH ORDINALITY AS u(v, place)
                 WHERE u.place = %s) = %s
         ORDER BY {self.first_row} LIMIT 1
        """

    def buffer_with(self, table: QualifiedName, column: str) -> str:
        """The first row of a packed table with these bytes in a column.

        Parameters: bytes of a row, place from 1 of the bytes in it, the bytes. Columns: partition, buffer, row.
        """
        return f"""
        SELECT t.partition_key, t.buffer_id, (g.i + 1)::integer
          FROM {table.sql} t, pg_catalog.generate_series(0, t.num_rows - 1) AS g(i)
         WHERE pg_catalog.substring(t.{quote(column)}, (g.i * %s + %s)::integer, 4) = %s
         ORDER BY 1, 2, 3 LIMIT 1
        """

    def culprit(self, source: RowSource, shapes: Sequence[Sequence[int]]) -> str:
        """The first row that cannot be predicted on.

        Parameters: divisor, for each input. Columns: number in the scan, id, place of the input,
        fault (null, shape, ...), shape.
        """
        parts = []
        for place, (one, shape) in enumerate(zip(source.inputs, shapes, strict=True)):
            found, got = one.fault("r.x", shape, "%s"), one.shape_of("r.x")
            parts.append(
                f"SELECT r.n, r.id::text AS id, {place} AS place, {found} AS fault, {got} AS shape "
                f"FROM (SELECT {self.row_number} AS n, "
                f"{source.id} AS id, {one.value('t')} AS x FROM {source.rows}) r"
            )
        faulty = "f.fault IS NULL AND" if source.ignores else "f.fault IS NOT NULL OR"
        return f"""
        SELECT f.n, f.id, f.place, f.fault, f.shape FROM ({" UNION ALL ".join(parts)}) f
         WHERE {faulty} f.id IS NULL ORDER BY {self.first_row}, f.place LIMIT 1
        """


def left_out_rows(relation: str, order: str = "") -> str:
    """Query of the rows that are left out: their count, the first ids, and the faults of these."""
    return (
        f"SELECT pg_catalog.count(*), (pg_catalog.array_agg(t.id{order}))[1:{FAULTS_SHOWN}], "
        f"(pg_catalog.array_agg(t.fault{order}))[1:{FAULTS_SHOWN}] "
        f"FROM {relation} t WHERE t.fault IS NOT NULL"
    )


def _load(call: str, stored: StoredModel) -> str:
    # No row, rather than one of a NULL, where there is no such model.
    return (
        f"SELECT {call}, j.token) FROM (SELECT cerebro.cerebro_joined_state({stored.chunks}) "
        f"AS token FROM {stored.table.sql} s WHERE s.{quote(stored.key)} = %s) j "
        "WHERE j.token IS NOT NULL"
    )


def _buffers(extent: Sequence[tuple[int, int, int]]) -> list[Piece]:
    """Buffers of one partition that follow each other, until they have enough rows."""
    pieces: list[Piece] = []
    key, first, last, total = -1, 0, 0, PIECE_ROWS
    for partition_key, buffer_id, rows in extent:
        if partition_key == key and total < PIECE_ROWS:
            last, total = buffer_id, total + rows
            pieces[-1] = (key, first, last)
        else:
            key, first, last, total = partition_key, buffer_id, buffer_id, rows
            pieces.append((key, first, last))
    return pieces
