"""SQL of predictions on PostgreSQL: rows go to a worker in batches, in one statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.database.dialects.postgresql_packing import dimensions, fault
from cerebro_db.database.names import QualifiedName, quote

CLASS_COLUMNS = "class_value text, prob double precision, rank integer"
VALUE_COLUMNS = "estimated double precision"
ARRAY_COLUMNS = "estimated double precision[]"


@dataclass(frozen=True)
class RowSource:
    """What is predicted on.

    Attributes:
        table: any table or view.
        id: expression over the alias ``t`` that names a row.
        features: expression over ``t`` of an array type.
    """

    table: QualifiedName
    id: str
    features: str


class PostgreSQLPrediction:
    """Texts of the statements, each with the parameters that its docstring names."""

    # Sorting batches that come in order already takes little memory; hashing them takes all rows'.
    settings = "SET LOCAL enable_hashagg = off"

    def create(self, output: QualifiedName, id_name: str, id_type: str, columns: str) -> str:
        """The table of predictions, empty; ``columns`` are CLASS_COLUMNS or those of a value."""
        return (
            f"CREATE TABLE {output.sql} ({quote(id_name)} {id_type}, class_name text, {columns}); "
            f"COMMENT ON TABLE {output.sql} IS 'Cerebro-DB: predictions'"
        )

    def begin(self, states: QualifiedName) -> str:
        """Load a model into the worker; returns a token. Parameters: task, mst_key."""
        return (
            "SELECT cerebro._begin_prediction(%s, "
            "cerebro.cerebro_joined_state(s.state ORDER BY s.chunk)) "
            f"FROM {states.sql} s WHERE s.mst_key = %s"
        )

    def is_empty(self, source: RowSource) -> str:
        """Whether there is no row at all."""
        return f"SELECT NOT EXISTS (SELECT 1 FROM {source.table.sql} t)"

    def classes(self, output: QualifiedName, source: RowSource) -> str:
        """Insert the best classes of all rows.

        Parameters: class name, class values, batch size, token, and three times the number of
        classes of a row; then the probability that the classes must exceed.
        """
        place = "((i.place - 1) * %s + i.rank)::integer"
        return f"""
        INSERT INTO {output.sql}
        SELECT a.id, %s, (%s::text[])[a.class + 1], a.prob, a.rank
          FROM (SELECT i.id, p.classes[{place}] AS class, p.numbers[{place}] AS prob, i.rank
                  FROM {_predicted(source)},
                       LATERAL (SELECT u.id, u.place, r.rank
                                  FROM unnest(p.ids) WITH ORDINALITY AS u(id, place),
                                       pg_catalog.generate_series(1, %s) AS r(rank)
                                OFFSET 0) i) a
         WHERE a.prob > %s
        """

    def values(self, output: QualifiedName, source: RowSource, shape: Sequence[int]) -> str:
        """Insert the estimates of all rows. Parameters: target's name, batch size, token."""
        return f"""
        INSERT INTO {output.sql}
        SELECT i.id, %s, {_estimate(shape)}
          FROM {_predicted(source)}, LATERAL unnest(p.ids) WITH ORDINALITY AS i(id, place)
        """

    def culprit(self, source: RowSource, shape: Sequence[int]) -> str:
        """The first row that cannot be predicted on.

        Parameter: divisor. Columns: number in the scan, id, fault (null, shape, ...), shape.
        """
        return f"""
        SELECT f.n, f.id, f.fault, f.shape FROM (
            SELECT r.n, r.id::text AS id, {fault("r.x", shape, "%s")} AS fault,
                   {dimensions("r.x")} AS shape
              FROM (SELECT pg_catalog.row_number() OVER () AS n, {source.id} AS id,
                           {source.features} AS x FROM {source.table.sql} t) r) f
         WHERE f.fault IS NOT NULL OR f.id IS NULL ORDER BY f.n LIMIT 1
        """


def _predicted(source: RowSource) -> str:
    """Batches ``p``: the ids of their rows and what was predicted for these, one after another.

    OFFSET 0 fixes the order of the joins: a batch must go to the worker once, and its arrays must
    not be copied with every row. A NULL among ids or features is the worker's to see.
    """
    return f"""
    (SELECT b.ids, q.classes, q.numbers
       FROM (SELECT pg_catalog.array_agg(s.id) AS ids,
                    pg_catalog.count(s.id)::integer AS known,
                    pg_catalog.count(*)::integer AS n,
                    pg_catalog.string_agg(
                        COALESCE(pg_catalog.array_send(s.x), ''::bytea), ''::bytea) AS x
               FROM (SELECT {source.id} AS id, {source.features} AS x,
                            (pg_catalog.row_number() OVER () - 1) / %s AS batch
                       FROM {source.table.sql} t) s
              GROUP BY s.batch) b,
            LATERAL cerebro._predict_batch(%s, b.x, b.n, b.known) q
     OFFSET 0) p
    """


def _estimate(shape: Sequence[int], offset: int = 0, size: int | None = None) -> str:
    """The numbers of a row out of those of its batch, in the shape of the target."""
    size = math.prod(shape) if size is None else size
    first = f"((i.place - 1) * {size} + {offset + 1})::integer"
    if not shape:
        return f"p.numbers[{first}]"
    if len(shape) == 1:
        return f"p.numbers[{first}:((i.place - 1) * {size} + {offset + shape[0]})::integer]"
    step = math.prod(shape[1:])
    parts = (_estimate(shape[1:], offset + n * step, size) for n in range(shape[0]))
    return f"ARRAY[{', '.join(parts)}]"
