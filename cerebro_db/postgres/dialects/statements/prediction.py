"""SQL of predictions on PostgreSQL: rows go to workers in batches, a piece of the table a statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cerebro_db.postgres.dialects.statements.answers import (
    Answer,
    Contributions,
    Several,
    Values,
    estimate,
)
from cerebro_db.postgres.dialects.statements.orders import Statement
from cerebro_db.postgres.dialects.statements.packing import FAULTS_SHOWN
from cerebro_db.postgres.dialects.statements.sources import (
    READ,
    PackedSource,
    Piece,
    RowSource,
    Source,
    StoredModel,
)
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.tables.kinds import DRAFTS, PREDICTIONS

UNFINISHED = DRAFTS.text()

# A piece is a few batches: small enough to keep all workers busy to the end. It depends on the
# table only, as do the batches in it: they, and so all results, are the same for any workers.
PIECE_BLOCKS = 256
PIECE_ROWS = 32_768
ADDRESSED_SINCE = 140000


_SCANS = "SET LOCAL enable_hashagg = off; SET LOCAL synchronize_seqscans = off"


class PredictionStatements:
    """Texts of the statements.

    Args:
        server_version: before ADDRESSED_SINCE a scan of some blocks reads all of them.
    """

    # What all workers see is what the first of them saw. Batches that come in order are sorted
    # with little memory; hashing them takes all rows'. A scan must begin where the table does.
    begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {_SCANS}"
    follow = f"BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT %s; {_SCANS}"
    export = "SELECT pg_catalog.pg_export_snapshot()"
    # What tells where a row of a scan is, and which of several is named.
    row_number, first_row = "pg_catalog.row_number() OVER ()", "f.n"

    def __init__(self, server_version: int = ADDRESSED_SINCE) -> None:
        self.has_addressed_scans = server_version >= ADDRESSED_SINCE

    def create(self, table: QualifiedName, source: Source, columns: str, unfinished: bool) -> str:
        """The table of predictions, empty; ``columns`` are those of Classes or Values."""
        ids = ", ".join(f"{quote(name)} {kind.replace('%', '%%')}" for name, kind in source.ids)
        comment = UNFINISHED if unfinished else PREDICTIONS.text()
        return (
            f"CREATE TABLE {table.sql} ({ids}, class_name text, {columns}){self._distributed(source)}; "
            f"COMMENT ON TABLE {table.sql} IS '{comment}'"
        )

    def _distributed(self, source: Source) -> str:
        """End of CREATE TABLE of predictions, behind its columns."""
        return ""

    def finish(self, table: QualifiedName, output: QualifiedName) -> str:
        """A table that is complete gets its name."""
        return (
            f"ALTER TABLE {table.sql} RENAME TO {quote(output.name)}; {PREDICTIONS.comment(output)}"
        )

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
        if isinstance(answer, Several | Contributions):
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

    def culprit(self, source: RowSource) -> str:
        """The first row that cannot be predicted on.

        Columns: number in the scan, id, place of the input, fault (null, shape, ...), shape.
        """
        parts = []
        for place, one in enumerate(source.inputs):
            found, got = one.fault("r.x"), one.shape_of("r.x")
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
