"""SQL of predictions on Greenplum: one statement, in which each segment predicts the rows it has.

A function is called with the rows of a union, one branch after the other: what makes the process of
a segment a worker, the chunks of the models, the rows, an end. It keeps the rows until a batch is full,
of which each row tells the size, and then returns the predictions for all of them. Only these leave the segment, for where the output
has them. Were the union read in another order, the function would refuse what comes too early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from cerebro_db.postgres.dialects.segments.packing import SegmentPacking
from cerebro_db.postgres.dialects.statements.answers import (
    Answer,
    Classes,
    Contributions,
    Several,
    Values,
    estimate,
)
from cerebro_db.postgres.dialects.statements.orders import Statement
from cerebro_db.postgres.dialects.statements.prediction import (
    PredictionStatements,
    left_out_rows,
)
from cerebro_db.postgres.dialects.statements.sources import (
    PackedSource,
    RowSource,
    Source,
    StoredModel,
)
from cerebro_db.postgres.names import QualifiedName, quote

_MODELS = QualifiedName("pg_temp", "cerebro_models")
_COPY = QualifiedName("pg_temp", "cerebro_copy")
_SEEN = QualifiedName("pg_temp", "cerebro_seen")


class Brought(NamedTuple):
    """A model that a statement brings to all segments.

    Attributes:
        number: of it among those whose mean counts.
        stored: where it is.
        key: of it there.
        task: JSON of what a worker must know of it.
    """

    number: int
    stored: StoredModel
    key: int
    task: str


class SegmentPrediction(PredictionStatements):
    """Texts of the statements."""

    begin = "BEGIN"
    segment_keys = SegmentPacking.segment_keys
    # There is no order in which rows would have numbers.
    row_number, first_row = "NULL::bigint", "f.id NULLS FIRST"

    def _distributed(self, source: Source) -> str:
        """Predictions of packed rows lie where their ids say; others where the server puts them."""
        if not isinstance(source, PackedSource):
            return ""
        return f" DISTRIBUTED BY ({', '.join(quote(name) for name, _ in source.ids)})"

    # Parameters: keys that lie on different segments, one on each; the preparation of a worker.
    stage = f"""
    CREATE TEMPORARY TABLE {_MODELS.sql} (segment_key integer, kind integer, number integer,
        chunk integer, task text, data bytea) ON COMMIT DROP DISTRIBUTED BY (segment_key);
    ALTER TABLE {_MODELS.sql} ALTER data SET STORAGE EXTERNAL;
    INSERT INTO {_MODELS.sql}
    SELECT k.segment_key, v.kind, 0, 0, v.task, NULL
      FROM pg_catalog.unnest(%s::integer[]) AS k(segment_key),
           (VALUES (-1, %s::text), (3, NULL)) AS v(kind, task)
    """

    def bring(self, model: Brought) -> Statement:
        """Put a model on every segment."""
        stored = model.stored
        chunk = "0" if stored.chunk is None else f"s.{quote(stored.chunk)}"
        sql = f"""
        INSERT INTO {_MODELS.sql}
        SELECT k.segment_key, 0, %s, {chunk}, CASE WHEN {chunk} = 0 THEN %s::text END,
               s.{quote(stored.state)}
          FROM {stored.table.sql} s, {_MODELS.sql} k
         WHERE s.{quote(stored.key)} = %s AND k.kind = -1
        """
        return sql, [model.number, model.task, model.key]

    # The models that are there, with whether all of their chunks have a value.
    brought = f"""
    SELECT m.number, pg_catalog.bool_and(m.data IS NOT NULL) FROM {_MODELS.sql} m
     WHERE m.kind = 0 GROUP BY 1
    """

    # Whether the rows of a relation do not lie spread over all segments. Parameter: its name.
    needs_copy = """
    SELECT NOT EXISTS (
        SELECT 1 FROM pg_catalog.gp_distribution_policy p
         WHERE p.localoid = pg_catalog.to_regclass(%s) AND p.policytype = 'p'
           AND p.numsegments = (SELECT pg_catalog.count(*) FROM pg_catalog.gp_segment_configuration
                                 WHERE role = 'p' AND content >= 0))
    """

    def copy(self, source: RowSource) -> tuple[str, RowSource]:
        """Spread the rows of a view, say; and what is read of the copy."""
        listed = "".join(f", {one} AS x{place}" for place, one in enumerate(source.more))
        if source.ignores:
            listed += f", {source.id}::text AS id, {source.fault} AS fault"
        text = (
            f"CREATE TEMPORARY TABLE {_COPY.sql} ON COMMIT DROP AS SELECT {source.named}, "
            f"{source.features} AS features{listed} FROM {source.table.sql} t DISTRIBUTED RANDOMLY"
        )
        names = ["features", *(f"x{place}" for place in range(len(source.more)))]
        inputs = tuple(one.copied(name) for one, name in zip(source.inputs, names, strict=True))
        keys = tuple(f"t.id{place}" for place in range(len(source.keys)))
        return text, replace(source, table=_COPY, keys=keys, inputs=inputs)

    def seen(self, source: RowSource, columns: Sequence[str]) -> tuple[str, RowSource]:
        """Copy columns of a view as the caller sees them; and what is read of the copy."""
        listed = ", ".join(map(quote, columns))
        text = (
            f"CREATE TEMPORARY TABLE {_SEEN.sql} ON COMMIT DROP AS "
            f"SELECT {listed} FROM {source.table.sql} DISTRIBUTED RANDOMLY"
        )
        return text, replace(source, table=_SEEN, seen="", some="")

    # The rows of the copy that are left out.
    left_out = left_out_rows(_COPY.sql, " ORDER BY t.id")

    def predict(
        self, output: QualifiedName, source: Source, answer: Answer, batch_rows: int
    ) -> Statement:
        """Predict all rows and insert what is asked of each."""
        rows, parameters = _rows(source, batch_rows)
        branches = [
            f"SELECT m.kind, m.number, m.chunk, {task} AS task, m.data, NULL::text AS id "
            f"FROM {_MODELS.sql} m WHERE m.kind = {kind}"
            for kind, task in (
                (-1, "cerebro._with_functions(m.task)"),
                (0, "m.task"),
                (3, "m.task"),
            )
        ]
        given = " UNION ALL ".join([*branches[:2], rows, branches[2]])
        ids = "" if isinstance(source, PackedSource) else "pg_catalog.unnest((s.r).ids) AS id, "
        ranks = answer.ranks if isinstance(answer, Classes) else 1
        predicted = f"""
        (SELECT {ids}pg_catalog.generate_series(1, (s.r).rows) AS k, (s.r).piece AS piece,
                (s.r).classes AS classes, (s.r).numbers AS numbers
           FROM (SELECT cerebro._predict_spread(i.kind, i.number, i.chunk, i.task, i.data, i.id) AS r
                   FROM ({given}) i) s
          WHERE (s.r).rows > 0) p
        """
        first = f"INSERT INTO {output.sql} SELECT {_named(source, ranks)}"
        if isinstance(answer, Several | Contributions):
            of_row, more = answer.rows("p.k")
            return f"{first}, o.* FROM {predicted}, LATERAL ({of_row}) o", [*parameters, *more]
        if isinstance(answer, Values):
            value = estimate(answer.shape, place="p.k")
            return f"{first}, %s, {value} FROM {predicted}", [answer.name, *parameters]
        sql = (
            f"{first}, %s, (%s::text[])[p.classes[p.k] + 1], p.numbers[p.k], "
            f"(p.k - 1) %% {ranks} + 1 FROM {predicted}"
        )
        values: list[object] = [answer.name, list(answer.values), *parameters]
        if answer.above == -math.inf:
            return sql, values
        return f"{sql} WHERE p.numbers[p.k] > %s", [*values, answer.above]

    def named_row(self, number: int | None, table: QualifiedName) -> str:
        """Words that lead a user to a row: there is no order in which it would have a number."""
        return f"a row of {table}"


def _rows(source: Source, batch_rows: int) -> Statement:
    """Branch of the union with the rows to predict."""
    if not isinstance(source, PackedSource):
        data = source.sent("r.x")
        if source.more:  # one after another, with the length of each
            more = enumerate(source.inputs[1:])
            listed = [data, *(one.sent(f"r.x{place}") for place, one in more)]
            data = f"pg_catalog.array_send(ARRAY[{', '.join(listed)}])"
        others = "".join(f", {one} AS x{place}" for place, one in enumerate(source.more))
        kept = "WHERE t.fault IS NULL" if source.ignores else ""
        sql = (
            f"SELECT 1, %s, 0, NULL, {data}, r.id::text FROM (SELECT {source.id} AS id, "
            f"{source.features} AS x{others} FROM {source.table.sql} t {kept}) r"
        )
        return sql, [batch_rows]
    sql = f"""
    SELECT 2, LEAST(%s, t.num_rows - g.start), 0, NULL, {source.slices},
           t.partition_key || ',' || t.buffer_id || ',' || g.start
      FROM {source.table.sql} t,
           pg_catalog.generate_series(0, t.num_rows - 1, %s) AS g(start)
    """
    return sql, [batch_rows] * (2 + len(source.columns))


def _named(source: Source, ranks: int) -> str:
    """Expression that names a row, as the output has it."""
    if isinstance(source, PackedSource):
        key, buffer_id, start = (
            f"pg_catalog.split_part(p.piece, ',', {n})::integer" for n in (1, 2, 3)
        )
        return f"{key}, {buffer_id}, {start} + (p.k - 1) / {ranks} + 1"
    kinds = [kind.replace("%", "%%") for _, kind in source.ids]
    if len(kinds) == 1:
        return f"p.id::{kinds[0]}"
    return ", ".join(f"(p.id::json ->> {place})::{kind}" for place, kind in enumerate(kinds))
