"""SQL of predictions on PostgreSQL: rows go to a worker in batches, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.database.dialects.postgresql_packing import dimensions, fault
from cerebro_db.database.names import QualifiedName, quote


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

    def create(self, output: QualifiedName, id_name: str, id_type: str, is_class: bool) -> str:
        """The table of predictions, empty."""
        columns = "class_value text, prob double precision, rank integer"
        if not is_class:
            columns = "estimated double precision[]"
        return (
            f"CREATE TABLE {output.sql} ({quote(id_name)} {id_type}, class_name text, {columns}); "
            f"COMMENT ON TABLE {output.sql} IS 'Cerebro-DB: predictions'"
        )

    def begin(self, models: QualifiedName) -> str:
        """Load a model into the worker; returns a token. Parameters: task, mst_key."""
        return (
            "SELECT cerebro._begin_prediction(%s, m.model_state) "
            f"FROM {models.sql} m WHERE m.mst_key = %s"
        )

    def is_empty(self, source: RowSource) -> str:
        """Whether there is no row at all."""
        return f"SELECT NOT EXISTS (SELECT 1 FROM {source.table.sql} t)"

    def classes(self, output: QualifiedName, source: RowSource) -> str:
        """Classes of all rows. Parameters: class name, batch size, token."""
        return f"""
        INSERT INTO {output.sql}
        SELECT p.id, %s, c.value, c.prob, c.rank::integer
          FROM {_batches(source)},
               LATERAL unnest(p.class_values, p.numbers) WITH ORDINALITY AS c(value, prob, rank)
        """

    def values(self, output: QualifiedName, source: RowSource) -> str:
        """Estimated numbers of all rows. Parameters: name of the target, batch size, token."""
        return f"""
        INSERT INTO {output.sql} SELECT p.id, %s, p.numbers FROM {_batches(source)}
        """

    def to_scalars(self, output: QualifiedName) -> str:
        """Where a target is one number, so is its estimate."""
        return f"ALTER TABLE {output.sql} ALTER estimated TYPE double precision USING estimated[1]"

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


def _batches(source: RowSource) -> str:
    """Rows ``p(id, class_values, numbers)``; a NULL among ids or features is the worker's to see."""
    return f"""
    (SELECT pg_catalog.array_agg(s.id) AS ids, pg_catalog.count(s.id)::integer AS known,
            pg_catalog.count(*)::integer AS n,
            pg_catalog.string_agg(COALESCE(pg_catalog.array_send(s.x), ''::bytea), ''::bytea) AS x
       FROM (SELECT {source.id} AS id, {source.features} AS x,
                    (pg_catalog.row_number() OVER () - 1) / %s AS batch
               FROM {source.table.sql} t) s
      GROUP BY s.batch) b,
    LATERAL ROWS FROM (unnest(b.ids), cerebro._predict_batch(%s, b.x, b.n, b.known))
            AS p(id, class_values, numbers)
    """
