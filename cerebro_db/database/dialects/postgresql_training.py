"""SQL text of training on PostgreSQL: a hop and a scoring pass are one statement each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_db.database.names import QualifiedName, quote
from cerebro_db.database.packed import PackedTable

STATES_SCHEMA = "cerebro_states"

Statement = tuple[str, list[Any]]


def states_table(run_id: int) -> QualifiedName:
    """The table that holds the states of a run."""
    return QualifiedName(STATES_SCHEMA, f"run_{run_id}")


@dataclass(frozen=True)
class HopOrder:
    """What the statement of one hop is made from.

    Attributes:
        run_id, mst_key, epoch, position, partition_key: which hop of the plan.
        version: hops that the configuration has done before.
        next_partition_key: where it goes afterwards, None at the end of what is planned.
        worker: number of the worker.
        waited: seconds that the worker was idle before.
        task: JSON for the worker.
        salt: what places the buffers; None leaves them in the order of their ids.
        passes: how often the buffers are read: 1, or the passes of the hop where they are streamed.
        reads: whether the buffers are read at all, or the worker has the partition in memory.
        weights_from: architecture table and model id whose model_weights are the start.
        keeps_previous: whether the state before must stay, because it is still to be scored.
    """

    run_id: int
    mst_key: int
    epoch: int
    position: int
    partition_key: int
    version: int
    next_partition_key: int | None
    worker: int
    waited: float
    task: str
    salt: str | None
    passes: int
    reads: bool
    weights_from: tuple[QualifiedName, int] | None
    keeps_previous: bool


class PostgreSQLTraining:
    """Statements of a run. The rows of a hop and its new state are one transaction."""

    def create_states(self, run_id: int) -> str:
        """The table of states: insert-only but for versions that nothing needs any more."""
        table = states_table(run_id).sql
        return (
            f"CREATE TABLE {table} (mst_key integer NOT NULL, version integer NOT NULL, "
            "partition_key integer, state bytea NOT NULL, PRIMARY KEY (mst_key, version)); "
            f"ALTER TABLE {table} ALTER COLUMN state SET STORAGE EXTERNAL"
        )

    def hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train one configuration on one partition; returns what the hop did."""
        rows, parameters = self._rows_of_hop(packed, order)
        states = states_table(order.run_id).sql
        discard = "" if order.keeps_previous else _DISCARD.format(states=states)
        sql = _HOP.format(rows=rows, states=states, discard=discard)
        parameters += [order.mst_key, order.version + 1, order.next_partition_key]
        if discard:
            parameters += [order.mst_key, order.version]
        parameters += [
            order.run_id, order.mst_key, order.epoch, order.position, order.partition_key,
            order.worker, order.waited,
        ]  # fmt: skip
        return sql, parameters

    def scan(self, packed: PackedTable, order: ScanOrder) -> Statement:
        """Score many configurations on one partition; returns JSON."""
        buffers = _SCAN_BUFFERS.format(packed=packed.relation.name.sql, **_columns(packed))
        if order.results is None:
            source = _STATES_OF_RUN.format(states=states_table(order.run_id).sql)
        else:
            source = _STATES_OF_RESULTS.format(results=order.results.sql)
        sql = _SCAN.format(states=source, buffers=buffers if order.reads else "")
        parameters: list[Any] = [order.task, order.mst_keys, order.versions, order.tasks]
        return sql, parameters + ([order.partition_key] if order.reads else [])

    def discard(self, run_id: int, mst_keys: list[int], versions: list[int]) -> Statement:
        """Drop states that nothing needs any more."""
        sql = (
            f"DELETE FROM {states_table(run_id).sql} s "
            "USING unnest(%s::int[], %s::int[]) AS t(mst_key, version) "
            "WHERE s.mst_key = t.mst_key AND s.version = t.version"
        )
        return sql, [mst_keys, versions]

    def _rows_of_hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        weights = "NULL::bytea"
        parameters: list[Any] = [order.task]
        if order.weights_from is not None:
            table, model_id = order.weights_from
            weights = f"(SELECT a.model_weights FROM {table.sql} a WHERE a.model_id = %s)"
            parameters.append(model_id)
        sql = _FIRST_ROW.format(weights=weights, states=states_table(order.run_id).sql)
        parameters += [order.mst_key, order.version]
        if order.reads:
            place = _PLACE_IN_ORDER
            if order.salt is not None:
                place = _PLACE_SHUFFLED
                parameters.append(order.salt)
            sql += _HOP_BUFFERS.format(
                place=place, packed=packed.relation.name.sql, **_columns(packed)
            )
            parameters += [order.passes - 1, order.partition_key]
        return sql, parameters


@dataclass(frozen=True)
class ScanOrder:
    """What the statement of one scoring pass is made from.

    Attributes:
        task: JSON that the configurations have in common.
        mst_keys, versions, tasks: of the states to score.
        reads: whether the buffers are read, or the worker has the partition in memory.
        results: the output table of a run, where its final states are scored, not those on the way;
            the run_id and the versions are then of no matter.
    """

    run_id: int
    partition_key: int
    task: str
    mst_keys: list[int]
    versions: list[int]
    tasks: list[str]
    reads: bool
    results: QualifiedName | None = None


def _columns(packed: PackedTable) -> dict[str, str]:
    x, y = packed.input.name, packed.target.name
    return {
        "x": quote(x),
        "x_shape": quote(f"{x}_shape"),
        "y": quote(y),
        "y_shape": quote(f"{y}_shape"),
    }


_FIRST_ROW = """
SELECT 0 AS kind, 0 AS subepoch, ''::text AS place, %s::text AS task, s.state, {weights} AS weights,
       NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
  FROM (SELECT 1) AS one LEFT JOIN {states} s ON s.mst_key = %s AND s.version = %s
"""

_PLACE_SHUFFLED = "md5(%s || '/' || g.subepoch || '/' || p.buffer_id)"
_PLACE_IN_ORDER = "lpad(p.buffer_id::text, 10, '0')"

_HOP_BUFFERS = """
UNION ALL
SELECT 1, g.subepoch, {place}, NULL, NULL, NULL, p.buffer_id, p.{x}, p.{x_shape}, p.{y}, p.{y_shape}
  FROM {packed} p CROSS JOIN generate_series(0, %s) AS g(subepoch)
 WHERE p.partition_key = %s
"""

_DISCARD = """,
discarded AS (DELETE FROM {states} WHERE mst_key = %s AND version = %s)"""

# The insertion of the hop reads what was saved, so that the state is written before it is timed.
_HOP = """
WITH visited AS (
    SELECT cerebro.cerebro_train(kind, task, state, weights, subepoch, buffer_id,
                                 x, x_shape, y, y_shape
                                 ORDER BY kind, subepoch, place COLLATE "C") AS result
      FROM ({rows}) AS input
),
saved AS (
    INSERT INTO {states} (mst_key, version, partition_key, state)
    SELECT %s, %s, %s, (result).state FROM visited
    RETURNING version
){discard},
hop AS (
INSERT INTO cerebro.catalog_hops
       (run_id, mst_key, epoch, position, partition_key, worker, pid, started, finished,
        waited, read, trained, written, rows, loss, compiled, cached, memory_mb)
SELECT %s, %s, %s, %s, %s, %s, pg_backend_pid(), statement_timestamp(), clock_timestamp(),
       %s, (v.result).read_seconds, (v.result).train_seconds,
       extract(epoch FROM clock_timestamp()) - (v.result).trained_at,
       (v.result).rows, (v.result).loss, (v.result).compiled, (v.result).cached,
       (v.result).memory_mb
  FROM saved CROSS JOIN visited v
RETURNING rows, loss
)
SELECT h.rows, h.loss, (v.result).kept FROM hop h CROSS JOIN visited v
"""

_SCAN = """
SELECT cerebro.cerebro_measure(kind, task, state, buffer_id, x, x_shape, y, y_shape
                               ORDER BY kind, place)
  FROM (
SELECT 0 AS kind, 0 AS place, %s::text AS task, NULL::bytea AS state, NULL::int AS buffer_id,
       NULL::bytea AS x, NULL::int[] AS x_shape, NULL::bytea AS y, NULL::int[] AS y_shape
UNION ALL
SELECT 1, t.mst_key, t.task, s.state, NULL, NULL, NULL, NULL, NULL
  FROM unnest(%s::int[], %s::int[], %s::text[]) AS t(mst_key, version, task)
  JOIN {states}
{buffers}) AS input
"""

_STATES_OF_RUN = "{states} s ON s.mst_key = t.mst_key AND s.version = t.version"
_STATES_OF_RESULTS = (
    "(SELECT o.mst_key, o.model_state AS state FROM {results} o) s ON s.mst_key = t.mst_key"
)

_SCAN_BUFFERS = """UNION ALL
SELECT 2, p.buffer_id, NULL, NULL, p.buffer_id, p.{x}, p.{x_shape}, p.{y}, p.{y_shape}
  FROM {packed} p WHERE p.partition_key = %s
"""
