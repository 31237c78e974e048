"""SQL text of a rotation: one statement trains on all segments, each its own configuration.

The rows of an aggregate are grouped by the key that they are distributed by, so every group lies on its
segment and is trained there. What differs from segment to segment is in the key as well. The
states that come out are redistributed to the segments where they go next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cerebro_db.postgres.dialects.segments.training import (
    PREPARATION,
    SCANNED,
    by_key,
    cases,
    filled,
    partition_of,
    segment_after,
    segment_key_of,
)
from cerebro_db.postgres.dialects.statements.orders import HopOrder, ScanOrder, Statement
from cerebro_db.postgres.dialects.statements.training import (
    LEFT,
    PLACE_IN_ORDER,
    PLACE_SHUFFLED,
    columns_of,
    same_table,
    weights_of,
)
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.packed import PackedTable


class Rotation:
    """Statements of a run whose hops are made in steps."""

    def step(self, packed: PackedTable, orders: Sequence[HopOrder]) -> Statement:
        """Train each configuration on its partition, in one transaction.

        ``made`` reads what it returns: of a configuration that failed the error.

        Args:
            packed: what is trained on.
            orders: of different configurations and partitions, all with the same target.
        """
        keys = [_key(packed, order.partition_key) for order in orders]
        goals = [segment_after(packed, order) for order in orders]
        versions = [order.makes for order in orders]
        return filled(
            _STEP,
            {
                "states": orders[0].into,
                "goal": _by_segment("c", keys, goals, "integer"),
                "mst_key": _by_segment("c", keys, [order.mst_key for order in orders], "integer"),
                "version": _by_segment("c", keys, versions, "integer"),
                "following": _by_segment(
                    "c", keys, [order.next_partition_key for order in orders], "integer"
                ),
                "rows": _rows_of_step(packed, orders, keys),
                "left": LEFT,
            },
        )

    def sweep(self, packed: PackedTable, orders: Sequence[ScanOrder]) -> Statement:
        """Score the same configurations on several partitions; rows of partition key and JSON.

        Args:
            packed: one data set.
            orders: they differ in partition, task, and whether they read.
        """
        common = orders[0]
        keys = [_key(packed, order.partition_key) for order in orders]
        partitions = [order.partition_key for order in orders]
        reading = [key for key, order in zip(keys, orders, strict=True) if order.reads]
        versions = common.versions or [0] * len(common.mst_keys)
        states = " UNION ALL ".join(
            f"SELECT s.mst_key, {'s.version' if common.versions else '0'} AS version, s.chunk, "
            f"s.state FROM {table.sql} s"
            for table in common.states
        )
        parts: dict[str, Statement | str] = {
            "packed": packed.relation.name.sql,
            "segments": ("%s", [keys]),
            "scanned": SCANNED,
            "scored": (
                "%s::int[], %s::int[], %s::text[]",
                [common.mst_keys, versions, common.tasks],
            ),
            "states": states,
            "partition_key": _by_segment("i", keys, partitions, "integer"),
            "preparation": (PREPARATION, [common.preparation or ""]),
            "task": _by_segment("p", keys, [order.task for order in orders], "text"),
            "first": _firsts(packed, partitions, keys),
            "reading": ("%s", [reading]),
            "same": same_table(packed),
            **columns_of(packed),
        }
        parts["buffers"] = filled(_SWEEP_BUFFERS, parts) if reading else ""
        return filled(_SWEEP, parts)


def _rows_of_step(
    packed: PackedTable, orders: Sequence[HopOrder], keys: Sequence[int]
) -> Statement:
    """Rows for the aggregates: preparation, tasks, states and buffers."""
    weights = [weights_of(order) for order in orders]
    reading = [key for key, order in zip(keys, orders, strict=True) if order.reads]
    passes = [order.passes for order in orders]
    parts: dict[str, Statement | str] = {
        "packed": packed.relation.name.sql,
        "segments": ("%s", [list(keys)]),
        "first": _firsts(packed, [order.partition_key for order in orders], keys),
        "preparation": (PREPARATION, [orders[0].preparation or ""]),
        "task": _by_segment("p", keys, [order.task for order in orders], "text"),
        "weights": cases("p.segment_key", keys, weights, "bytea"),
        "place": cases("g.segment_key", keys, [_place(order) for order in orders], "bytea"),
        "passes": _by_segment("p", keys, passes, "integer"),
        "reading": ("%s", [reading]),
        "same": same_table(packed),
        **columns_of(packed),
    }
    parts["states"] = _states(orders, keys)
    parts["buffers"] = filled(_BUFFERS, parts) if reading else ""
    return filled(_ROWS, parts)


def _states(orders: Sequence[HopOrder], keys: Sequence[int]) -> Statement:
    """The rows of the states before, which may lie in several tables."""
    sources: dict[QualifiedName, list[tuple[int, HopOrder]]] = {}
    for key, order in zip(keys, orders, strict=True):
        if order.source is not None:
            sources.setdefault(order.source, []).append((key, order))
    sql, parameters = "", list[Any]()
    for source, found in sources.items():
        there = [key for key, _ in found]
        text, values = filled(
            _STATES,
            {
                "states": source.sql,
                "segments": ("%s", [there]),
                "mst_key": _by_segment("s", there, [o.mst_key for _, o in found], "integer"),
                "version": _by_segment("s", there, [o.version for _, o in found], "integer"),
            },
        )
        sql, parameters = sql + text, parameters + values
    return sql, parameters


def _key(packed: PackedTable, partition_key: int) -> int:
    return segment_key_of(partition_of(packed, partition_key))


def _place(order: HopOrder) -> Statement:
    if order.salt is None:
        return PLACE_IN_ORDER, []
    return PLACE_SHUFFLED, [order.salt]


def _firsts(packed: PackedTable, partitions: Sequence[int], keys: Sequence[int]) -> Statement:
    """The first buffer of each partition: a row that is there, once."""
    firsts = [partition_of(packed, key).buffers[0][0] for key in partitions]
    return _by_segment("p", keys, firsts, "integer")


def _by_segment(alias: str, keys: Sequence[int], values: Sequence[Any], kind: str) -> Statement:
    """A value that depends on the segment."""
    return by_key(f"{alias}.segment_key", keys, values, kind)


_ROWS = """
SELECT p.segment_key, -1 AS kind, 0 AS subepoch, ''::bytea AS place, {preparation} AS task,
       NULL::bytea AS state, NULL::bytea AS weights,
       NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
  FROM {packed} p WHERE p.segment_key = ANY ({segments}) AND p.buffer_id = {first}
UNION ALL
SELECT p.segment_key, 0, 0, '', {task}, NULL, {weights}, NULL, NULL, NULL, NULL, NULL
  FROM {packed} p WHERE p.segment_key = ANY ({segments}) AND p.buffer_id = {first}
{states}{buffers}"""

_STATES = """UNION ALL
SELECT s.segment_key, 1, s.chunk, '', NULL, s.state, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {states} s
 WHERE s.segment_key = ANY ({segments}) AND s.mst_key = {mst_key} AND s.version = {version}
"""

_BUFFERS = """UNION ALL
SELECT g.segment_key, 2, g.subepoch, {place}, NULL, NULL, NULL, g.buffer_id,
       g.x, g.x_shape, g.y, g.y_shape
  FROM (SELECT p.segment_key, p.buffer_id, p.{x} AS x, p.{x_shape} AS x_shape, p.{y} AS y,
               p.{y_shape} AS y_shape, generate_series(0, {passes} - 1) AS subepoch
          FROM {packed} p WHERE p.segment_key = ANY ({reading}){same}) AS g
"""

# What a failed configuration leaves has the negative version, which nothing ever looks for.
_STEP = """
INSERT INTO {states} (segment_key, mst_key, version, chunk, partition_key, state, report)
SELECT {goal}, {mst_key}, CASE WHEN (c.saved).chunk < 0 THEN -{version} ELSE {version} END,
       greatest((c.saved).chunk, 0), {following}, (c.saved).state, (c.saved).report
  FROM (SELECT v.segment_key, cerebro._saved_state(v.token) AS saved
          FROM (SELECT i.segment_key,
                       cerebro.cerebro_train(i.kind, i.task, i.state, i.weights, i.subepoch,
                                             i.buffer_id, i.x, i.x_shape, i.y, i.y_shape
                                             ORDER BY i.kind, i.subepoch, i.place)
                       AS token
                  FROM ({rows}) AS i GROUP BY i.segment_key) AS v) AS c
RETURNING {left}
"""

_SWEEP = """{scanned}
SELECT k.segment_key, t.mst_key, s.chunk, s.state, t.task
  FROM unnest({scored}) AS t(mst_key, version, task)
  JOIN ({states}) s ON s.mst_key = t.mst_key AND s.version = t.version
 CROSS JOIN unnest({segments}::int[]) AS k(segment_key);
DECLARE cerebro_scan NO SCROLL CURSOR FOR
SELECT {partition_key},
       cerebro.cerebro_measure(i.kind, i.task, i.state, i.buffer_id, i.x, i.x_shape, i.y,
                               i.y_shape ORDER BY i.kind, i.place, i.chunk)
  FROM (
SELECT p.segment_key, -1 AS kind, 0 AS place, 0 AS chunk, {preparation} AS task,
       NULL::bytea AS state, NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
  FROM {packed} p WHERE p.segment_key = ANY ({segments}) AND p.buffer_id = {first}
UNION ALL
SELECT p.segment_key, 0, 0, 0, {task}, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {packed} p WHERE p.segment_key = ANY ({segments}) AND p.buffer_id = {first}
UNION ALL
SELECT s.segment_key, 1, s.mst_key, s.chunk, s.task, s.state, NULL, NULL, NULL, NULL, NULL
  FROM pg_temp.cerebro_scan s
{buffers}) AS i GROUP BY i.segment_key;
FETCH ALL FROM cerebro_scan
"""

_SWEEP_BUFFERS = """UNION ALL
SELECT p.segment_key, 2, p.buffer_id, 0, NULL, NULL, p.buffer_id,
       p.{x}, p.{x_shape}, p.{y}, p.{y_shape}
  FROM {packed} p WHERE p.segment_key = ANY ({reading}){same}
"""
