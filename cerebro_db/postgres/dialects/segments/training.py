"""SQL text of training on Greenplum: a hop trains on its segment and leaves its state on the next.

All rows that an aggregate takes lie on one segment, and their common segment_key says so: nothing but
the state travels. It goes where the row of the state belongs, which is where the configuration goes
next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from types import MappingProxyType
from typing import Any

from cerebro_db.errors import WrongObjectType
from cerebro_db.postgres.dialects.statements.orders import (
    AverageOrder,
    Goal,
    HopOrder,
    ScanOrder,
    Statement,
)
from cerebro_db.postgres.dialects.statements.training import (
    FIRST_ROW,
    LEFT,
    TASK,
    TRAINED,
    TrainingStatements,
    columns_of,
    same_table,
    weights_of,
)
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.buffers import PartitionInfo
from cerebro_db.postgres.tables.packed import PackedTable


class SegmentTraining(TrainingStatements):
    """Statements of a run where each partition is the rows of one segment."""

    binds_workers = True
    # No statistics are collected of what is written: the states of a scan, or a state whose table they would lock.
    settings = ("SET gp_autostats_mode = none",)
    most_hops = 16
    _segment, _distributed = "segment_key", " DISTRIBUTED BY (segment_key)"
    _original = "coalesce(s.partition_key, 0) >= 0"

    def together(self, column: str) -> str:
        """End of CREATE TABLE that puts all rows of a key on one segment."""
        return f" DISTRIBUTED BY ({column})"

    def begin_states(
        self,
        table: QualifiedName,
        previous: QualifiedName,
        packed: PackedTable,
        first: Mapping[int, int],
        version: int = 0,
        others: Mapping[int, Sequence[int]] = MappingProxyType({}),
    ) -> Statement:
        """Copy the states that configurations begin with to where they are trained next."""
        places = [
            (mst_key, key, key if is_first else COPY)
            for mst_key, key_of_first in first.items()
            for is_first, key in (
                (True, key_of_first),
                *((False, other) for other in others.get(mst_key, ())),
            )
        ]
        sql = (
            f"INSERT INTO {table.sql} (segment_key, mst_key, version, chunk, partition_key, state) "
            "SELECT t.segment_key, p.mst_key, %s, p.chunk, t.partition_key, p.state "
            f"FROM {previous.sql} p JOIN unnest(%s::int[], %s::int[], %s::int[]) "
            "AS t(mst_key, segment_key, partition_key) ON t.mst_key = p.mst_key"
        )
        segments = [segment_key_of(partition_of(packed, key)) for _, key, _ in places]
        keys, marks = [key for key, _, _ in places], [mark for _, _, mark in places]
        return sql, [version, keys, segments, marks]

    def call(
        self,
        packed: PackedTable,
        partition_keys: Sequence[int],
        function: str,
        parameters: Sequence[Any] = (),
    ) -> Statement:
        """Call a function in the processes that train on partitions; a row from each of them.

        Each reads one row of its partition, so that it is called there, and through a cursor, so
        that the reading process does it.
        """
        where = " OR ".join(
            ["p.segment_key = %s AND p.partition_key = %s AND p.buffer_id = %s"]
            * len(partition_keys)
        )
        found: list[Any] = list(parameters)
        for key in partition_keys:
            partition = partition_of(packed, key)
            found += [segment_key_of(partition), key, partition.buffers[0][0]]
        return _CALL.format(function=function, packed=packed.relation.name.sql, where=where), found

    def neighbours(self, packed: PackedTable) -> Statement:
        """Number of partitions that share the processors of one host, at most."""
        return _NEIGHBOURS.format(packed=packed.relation.name.sql), []

    def hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train one configuration on one partition, or lead a round; the state goes where it is needed next.

        It may be needed on several segments: all but one of the states are copies then.
        """
        if not order.others:
            return super().hop(packed, order)
        rows, parameters = self._rows_of_hop(packed, order)
        goals, marks = map(list, zip(*self.goals(packed, order), strict=True))
        sql = _HOP_COPIED.format(states=order.into, trained=self._trained(order, rows), left=LEFT)
        return sql, [order.mst_key, order.makes, goals, marks, *parameters]

    def share(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train a replica together with others, one of which leaves the state; returns its own report."""
        sql, parameters = super().share(packed, order)
        return _SHARE.format(share=sql), parameters

    def hops(self, packed: PackedTable, orders: Sequence[HopOrder]) -> Statement:
        """Train configurations one after another on one partition, by ascending mst_key."""
        if len(orders) == 1:
            return self.hop(packed, orders[0])
        keys = [order.mst_key for order in orders]
        following = [order.next_partition_key for order in orders]
        return filled(
            _HOPS,
            {
                "states": orders[0].into,
                "goal": by_key("c.mst_key", keys, [segment_after(packed, one) for one in orders]),
                "version": by_key("c.mst_key", keys, [order.makes for order in orders]),
                "following": by_key("c.mst_key", keys, following),
                "rows": self._rows_of_hops(packed, orders),
                "left": LEFT,
            },
        )

    def average(self, packed: PackedTable, order: AverageOrder) -> Statement:
        """Average the states of a round on a segment; returns a row for each chunk that comes of it."""
        here = segment_key_of(partition_of(packed, order.partition_key))
        following = [segment_key_of(partition_of(packed, key)) for key in order.following]
        marks = [*order.following[:1], *[COPY] * len(order.following[1:])]
        sql = _AVERAGE.format(
            scanned=SCANNED, states=self._states(order.states), target=order.target.sql
        )
        return sql, [
            here, list(range(len(order.versions))), order.versions, order.mst_key,
            order.mst_key, order.makes, following or [here], marks or [None], order.weights,
        ]  # fmt: skip

    def scan(self, packed: PackedTable, order: ScanOrder) -> Statement:
        """Score many configurations on one partition; returns JSON."""
        partition = partition_of(packed, order.partition_key)
        version = "" if order.versions is None else " AND s.version = t.version"
        columns = columns_of(packed)
        table = packed.relation.name.sql
        key = _key_of(order)
        begin = "".join(
            _SCAN_FIRST.format(packed=table, key=key, kind=kind, task=task) + "UNION ALL"
            for kind, task in ((-1, _preparation_of(order)), (0, TASK))
        )
        same, oid = same_table(packed)
        buffers = ""
        if order.reads:
            buffers = _SCAN_BUFFERS.format(packed=table, key=key, same=same, **columns)
        sql = _SCAN.format(
            scanned=SCANNED,
            states=self._states(order.states, has_versions=order.versions is not None),
            version=version,
            begin=begin,
            buffers=buffers,
            task=_task_of(order),
            at_home=_at_home(order),
        )
        versions = order.versions or [0] * len(order.mst_keys)
        where = [segment_key_of(partition), order.partition_key]
        first = [*where, partition.buffers[0][0]]
        here = where[0] if order.home is None else segment_key_of(order.home)
        parameters: list[Any] = [here, order.mst_keys, versions, order.tasks]
        parameters += [order.preparation or "", *first, order.task, *first]
        return sql, parameters + ([*where, *oid] if order.reads else [])

    def goals(self, packed: PackedTable, order: HopOrder) -> list[Goal]:
        """Where the state of a hop is left; all but the first are copies."""
        copies: list[Goal] = [(self.segment_of(packed, key), COPY) for key in order.others]
        return [*super().goals(packed, order), *copies]

    def segment_of(self, packed: PackedTable, partition_key: int) -> int:
        return segment_key_of(partition_of(packed, partition_key))

    def _segment_after(self, packed: PackedTable, order: HopOrder) -> int:
        return segment_after(packed, order)

    def _first_rows(self, packed: PackedTable, order: HopOrder) -> Statement:
        """A row that prepares the process, and the one that begins the hop; both are read where the partition is."""
        partition = partition_of(packed, order.partition_key)
        segment, weights = self._key(order, "p"), weights_of(order)
        prepare, here = (
            _preparation_of(order),
            _FIRST_BUFFER.format(packed=packed.relation.name.sql),
        )
        first = [segment_key_of(partition), order.partition_key, partition.buffers[0][0]]
        sql = FIRST_ROW.format(segment=segment, kind=-1, task=prepare, weights="NULL::bytea") + here
        sql += "UNION ALL"
        sql += FIRST_ROW.format(segment=segment, kind=0, task=TASK, weights=weights[0]) + here
        return sql, [order.preparation or "", *first, order.task, *weights[1], *first]

    def _key(self, order: HopOrder, alias: str) -> str:
        return f"{_key_of(order, alias)} AS segment_key, "

    def _state_is_here(self, packed: PackedTable, order: HopOrder) -> str:
        if order.home is not None:
            return f"{self._original} AND "
        return f"s.segment_key = {segment_key_of(partition_of(packed, order.partition_key)):d} AND "

    def _partition_rows(self, packed: PackedTable, partition_key: int) -> Statement:
        segment = segment_key_of(partition_of(packed, partition_key))
        return "p.segment_key = %s AND p.partition_key = %s", [segment, partition_key]

    def _trained(self, order: HopOrder, rows: str) -> str:
        group = f"{_at_home(order)} GROUP BY i.segment_key"
        return TRAINED.format(task=_task_of(order), rows=rows, group=group)

    def _rows_of_hops(self, packed: PackedTable, orders: Sequence[HopOrder]) -> Statement:
        """Rows for the aggregates: preparation, tasks and states."""
        partition = partition_of(packed, orders[0].partition_key)
        where = segment_key_of(partition)
        first = [where, partition.partition_key, partition.buffers[0][0]]
        keys = [order.mst_key for order in orders]
        tasks = [order.task for order in orders]
        sql = _FIRST_ROWS.format(packed=packed.relation.name.sql, preparation=PREPARATION)
        parameters: list[Any] = [orders[0].preparation or "", keys, *first, keys, tasks, *first]
        sources: dict[QualifiedName, list[HopOrder]] = {}
        for order in orders:
            if order.source is not None:
                sources.setdefault(order.source, []).append(order)
        for source, found in sources.items():
            there = [order.mst_key for order in found]
            version, versions = by_key("s.mst_key", there, [order.version for order in found])
            sql += _STATES_ROWS.format(states=source.sql, version=version)
            parameters += [where, there, *versions]
        return sql, parameters


# In place of the partition where a state goes: what is one more copy of it, on another segment.
COPY = -1


def cases(column: str, keys: Sequence[int], values: Sequence[Statement], kind: str) -> Statement:
    """An expression that depends on the key in a column."""
    parts = " ".join(f"WHEN %s THEN {text}" for text, _ in values)
    given = [value for key, (_, more) in zip(keys, values, strict=True) for value in (key, *more)]
    return f"(CASE {column} {parts} END)::{kind}", given


def by_key(
    column: str, keys: Sequence[int], values: Sequence[Any], kind: str = "integer"
) -> Statement:
    """A value that depends on the key in a column."""
    return cases(column, keys, [("%s", [value]) for value in values], kind)


def filled(template: str, parts: Mapping[str, Statement | str]) -> Statement:
    """A text with its fields filled in, and the parameters in the order of the fields."""
    text, parameters = "", list[Any]()
    for literal, name, _, _ in Formatter().parse(template):
        text += literal
        if name is not None:
            part = parts[name]
            sql, values = (part, []) if isinstance(part, str) else part
            text, parameters = text + sql, parameters + values
    return text, parameters


def _key_of(order: HopOrder | ScanOrder, alias: str = "p") -> str:
    """Expression by which the rows of a statement are grouped: of the segment where that is done.

    Where that is not their own they are moved there, as rows of a table with this segment key would be.
    """
    return (
        f"{alias}.segment_key" if order.home is None else f"{segment_key_of(order.home):d}::integer"
    )


def _preparation_of(order: HopOrder | ScanOrder) -> str:
    """SQL for the text that prepares a process, with one parameter."""
    return PREPARATION if order.home is None else TASK


def _task_of(order: HopOrder | ScanOrder) -> str:
    """SQL for the task argument of the aggregate; after a motion it prepares the process there."""
    return "i.task" if order.home is None else _PREPARED_TASK


def _at_home(order: HopOrder | ScanOrder) -> str:
    """Condition that all rows meet after a motion: so the planner knows that they are one group, and sorts none."""
    return "" if order.home is None else f" WHERE i.segment_key = {segment_key_of(order.home):d}"


def segment_after(packed: PackedTable, order: HopOrder) -> int:
    """Segment where the state of a hop is left."""
    if order.home is not None:
        return segment_key_of(order.home)
    following = order.next_partition_key
    following = order.partition_key if following is None else following
    return segment_key_of(partition_of(packed, following))


def partition_of(packed: PackedTable, key: int) -> PartitionInfo:
    """A partition by its key."""
    return next(p for p in packed.partitions if p.partition_key == key)


def segment_key_of(partition: PartitionInfo) -> int:
    """Segment key of a partition.

    Raises:
        WrongObjectType: the table was packed on a server without segments.
    """
    if partition.segment_key is None:
        raise WrongObjectType(
            "source_table: its partitions do not lie on one segment each",
            hint="pack the source again with cerebro.cerebro_pack",
        )
    return partition.segment_key


# No join: the coordinator would start a process of its own to read what only it has.
_NEIGHBOURS = """
SELECT pg_catalog.max(h.segments)
  FROM (SELECT pg_catalog.count(*) AS segments
          FROM pg_catalog.gp_segment_configuration c
         WHERE c.role = 'p' AND c.content = ANY (ARRAY(SELECT DISTINCT gp_segment_id FROM {packed}))
         GROUP BY c.hostname) h
"""

_CALL = """
DECLARE cerebro_call NO SCROLL CURSOR FOR SELECT {function} FROM {packed} p WHERE {where};
FETCH ALL FROM cerebro_call
"""

# A process must know of registered functions before it is prepared to use them.
PREPARATION = "cerebro._with_functions(%s)"
_PREPARED_TASK = "CASE WHEN i.kind = -1 THEN cerebro._with_functions(i.task) ELSE i.task END"

# A row of the partition that is there, once.
_FIRST_BUFFER = """  FROM {packed} p WHERE p.segment_key = %s AND p.partition_key = %s AND p.buffer_id = %s
"""

# Which segments the state goes to is no join, for the same reason.
_HOP_COPIED = """
INSERT INTO {states} (segment_key, mst_key, version, chunk, partition_key, state, report)
SELECT d.goal, %s, %s, d.chunk, d.mark, d.state, CASE WHEN coalesce(d.mark, 0) >= 0 THEN d.report END
  FROM (SELECT unnest(%s::int[]) AS goal, unnest(%s::int[]) AS mark, (c.saved).chunk AS chunk,
               (c.saved).state AS state, (c.saved).report AS report
          FROM (SELECT cerebro._saved_state(v.token) AS saved
                  FROM ({trained}) AS v) AS c) AS d
RETURNING {left}
"""

# A cursor is read by the process that trains on the segment.
_SHARE = """
DECLARE cerebro_share NO SCROLL CURSOR FOR {share};
FETCH ALL FROM cerebro_share
"""

# Keys and tasks are no join, for the same reason.
_FIRST_ROWS = """
SELECT g.segment_key, g.mst_key, -1 AS kind, 0 AS chunk, {preparation} AS task,
       NULL::bytea AS state
  FROM (SELECT p.segment_key, unnest(%s::int[]) AS mst_key
          FROM {packed} p
         WHERE p.segment_key = %s AND p.partition_key = %s AND p.buffer_id = %s) AS g
UNION ALL
SELECT g.segment_key, g.mst_key, 0, 0, g.task, NULL
  FROM (SELECT p.segment_key, unnest(%s::int[]) AS mst_key, unnest(%s::text[]) AS task
          FROM {packed} p
         WHERE p.segment_key = %s AND p.partition_key = %s AND p.buffer_id = %s) AS g
"""

_STATES_ROWS = """UNION ALL
SELECT s.segment_key, s.mst_key, 1, s.chunk, NULL, s.state
  FROM {states} s
 WHERE s.segment_key = %s AND s.mst_key = ANY (%s) AND s.version = {version}
"""

# Groups are sorted by what groups them, and each is trained, and its state taken, before the next.
_HOPS = """
INSERT INTO {states} (segment_key, mst_key, version, chunk, partition_key, state, report)
SELECT {goal}, c.mst_key, {version}, (c.saved).chunk, {following}, (c.saved).state, (c.saved).report
  FROM (SELECT v.mst_key, cerebro._saved_state(v.token) AS saved
          FROM (SELECT i.mst_key,
                       cerebro.cerebro_train(i.kind, i.task, i.state, NULL::bytea, i.chunk,
                                             NULL::int, NULL::bytea, NULL::int[], NULL::bytea,
                                             NULL::int[] ORDER BY i.kind, i.chunk) AS token
                  FROM ({rows}) AS i GROUP BY i.segment_key, i.mst_key) AS v) AS c
RETURNING {left}
"""

# Where states are put for a scan: as they are, since compressing them takes long and gains little.
SCANNED = """
CREATE TEMPORARY TABLE cerebro_scan (segment_key integer, mst_key integer, chunk integer,
                                     state bytea, task text)
ON COMMIT DROP DISTRIBUTED BY (segment_key);
ALTER TABLE pg_temp.cerebro_scan ALTER state SET STORAGE EXTERNAL;
INSERT INTO pg_temp.cerebro_scan"""

# The places of states are what the temporary table has as mst_key.
_AVERAGE = """{scanned}
SELECT %s::integer AS segment_key, p.place, s.chunk, s.state, NULL::text
  FROM unnest(%s::int[], %s::int[]) AS p(place, version)
  JOIN ({states}) s ON s.mst_key = %s AND s.version = p.version;
INSERT INTO {target} (segment_key, mst_key, version, chunk, partition_key, state)
SELECT d.goal, %s, %s, d.chunk, d.mark, d.state
  FROM (SELECT unnest(%s::int[]) AS goal, unnest(%s::int[]) AS mark,
               (c.saved).chunk AS chunk, (c.saved).state AS state
          FROM (SELECT cerebro._saved_state(a.token) AS saved
                  FROM (SELECT cerebro.cerebro_average(%s::float8[], i.mst_key, i.state
                                                       ORDER BY i.mst_key, i.chunk) AS token
                          FROM pg_temp.cerebro_scan i GROUP BY i.segment_key) AS a) AS c) AS d
RETURNING octet_length(state)
"""

# The states go to the segment first. A cursor is read by the process that trains there, unlike a
# plain query, which the writing process answers.
_SCAN = """{scanned}
SELECT %s::integer AS segment_key, t.mst_key, s.chunk, s.state, t.task
  FROM unnest(%s::int[], %s::int[], %s::text[]) AS t(mst_key, version, task)
  JOIN ({states}) s ON s.mst_key = t.mst_key{version};
DECLARE cerebro_scan NO SCROLL CURSOR FOR
SELECT cerebro.cerebro_measure(i.kind, {task}, i.state, i.buffer_id, i.x, i.x_shape, i.y,
                               i.y_shape ORDER BY i.kind, i.place, i.chunk)
  FROM ({begin}
SELECT s.segment_key, 1 AS kind, s.mst_key AS place, s.chunk AS chunk, s.task AS task,
       s.state AS state, NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
  FROM pg_temp.cerebro_scan s
{buffers}) AS i{at_home} GROUP BY i.segment_key;
FETCH ALL FROM cerebro_scan
"""

_SCAN_FIRST = """
SELECT {key} AS segment_key, {kind} AS kind, 0 AS place, 0 AS chunk, {task} AS task,
       NULL::bytea AS state, NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
  FROM {packed} p WHERE p.segment_key = %s AND p.partition_key = %s AND p.buffer_id = %s
"""

_SCAN_BUFFERS = """UNION ALL
SELECT {key}, 2, p.buffer_id, 0, NULL, NULL, p.buffer_id,
       p.{x}, p.{x_shape}, p.{y}, p.{y_shape}
  FROM {packed} p WHERE p.segment_key = %s AND p.partition_key = %s{same}
"""
