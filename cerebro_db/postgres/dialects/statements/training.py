"""SQL text of training: a hop and a scoring pass are one statement each.

A hop is ``INSERT INTO states SELECT ... FROM (SELECT cerebro_train(...) FROM rows)``: the rows of the aggregate are the
task, the state and the buffers of a partition; what it leaves are the chunks of the next state, of which the first has
the report of the hop. The statement returns the reports, and the driver writes the rows of the catalog, many at once.
Where partitions lie on segments each row also says its segment (``segments.training``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cerebro_db.postgres.dialects.statements.orders import (
    AverageOrder,
    Goal,
    HopOrder,
    ScanOrder,
    Statement,
    StateTables,
)
from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName, quote
from cerebro_db.postgres.tables.packed import PackedTable


class TrainingStatements:
    """Statements of a run."""

    # Whether a partition is for one worker only, whose processes have it in memory.
    binds_workers = False
    # How many hops of one partition a statement may make.
    most_hops = 1
    # Further statements that a session begins with which writes states.
    settings: tuple[str, ...] = ()
    # Columns that tell where a row lies, and what follows the columns of a table.
    _segment, _distributed = "", ""
    # Condition of the rows of states that are no copies of others, behind an alias ``s``.
    _original = "true"

    def create_states(self, table: QualifiedName, lasting: bool) -> list[str]:
        """A table of states: one row a chunk of a version of a configuration."""
        segment = f"{self._segment} integer NOT NULL, " if self._segment else ""
        key = f"{self._segment}, " if self._segment else ""
        return [
            f"CREATE {'' if lasting else 'UNLOGGED'} TABLE {table.sql} ({segment}mst_key integer NOT NULL, "
            "version integer NOT NULL, chunk integer NOT NULL, partition_key integer, "
            "state bytea NOT NULL, report text, "
            f"PRIMARY KEY ({key}mst_key, version, chunk)){self._distributed}",
            f"ALTER TABLE {table.sql} ALTER COLUMN state SET STORAGE EXTERNAL",
        ]

    @property
    def state_columns(self) -> str:
        """Columns of a table of states, in all versions of Cerebro-DB."""
        return f"{self._segment}{', ' if self._segment else ''}{STATE_COLUMNS}"

    def together(self, column: str) -> str:
        """End of CREATE TABLE where all rows of a key shall lie in one place."""
        return ""

    def tables(self, name: str) -> Statement:
        """The tables of states of a run, of those that belong to its owner: names, and whether they have reports.

        Once they are seen, others may make tables of names that begin like these.
        """
        sql = (
            "SELECT c.relname, EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a "
            "WHERE a.attrelid = c.oid AND a.attname = 'report' AND NOT a.attisdropped) "
            "FROM pg_catalog.pg_class c WHERE c.relkind = 'r' "
            "AND c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n "
            "WHERE n.nspname = %s) AND pg_catalog.left(c.relname, %s) = %s "
            "AND c.relowner = (SELECT r.owner FROM cerebro._runs r WHERE r.states = %s) ORDER BY 1"
        )
        return sql, [STATES_SCHEMA, len(name) + 1, f"{name}_", name]

    def unrecorded(self, run_id: int, table: QualifiedName, hops_an_epoch: int) -> Statement:
        """Reports of states in a table whose last hop has no row: mst_key, version and JSON.

        A state of a round that is averaged later has the version -1 - number of its hop.
        """
        sql = (
            f"SELECT s.mst_key, s.version, s.report FROM {table.sql} s LEFT JOIN cerebro._hops h "
            "ON h.run_id = %s AND h.mst_key = s.mst_key "
            "AND (h.epoch - 1) * %s + h.position + 1 = abs(s.version) "
            f"WHERE s.chunk = 0 AND s.report IS NOT NULL AND h.run_id IS NULL AND {self._original}"
        )
        return sql, [run_id, hops_an_epoch]

    def contents(self, table: QualifiedName) -> str:
        """The states in a table: mst_key, version, bytes; what failed in a rotation is none."""
        # OFFSET 0 has the lengths taken where the states lie, whatever a planner thinks of that.
        return (
            "SELECT q.mst_key, q.version, pg_catalog.sum(q.bytes)::bigint FROM (SELECT s.mst_key, "
            f"s.version, pg_catalog.octet_length(s.state) AS bytes FROM {table.sql} s "
            f"WHERE s.chunk >= 0 AND {self._original} OFFSET 0) AS q GROUP BY 1, 2"
        )

    def move(
        self, source: QualifiedName, target: QualifiedName, pairs: Sequence[tuple[int, int]]
    ) -> Statement:
        """Copy states, given as mst_key and version, from one table to another."""
        sql = (
            f"INSERT INTO {target.sql} ({self.state_columns}) "
            f"SELECT s.{', s.'.join(self.state_columns.split(', '))} FROM {source.sql} s "
            "JOIN unnest(%s::int[], %s::int[]) AS t(mst_key, version) "
            "ON s.mst_key = t.mst_key AND s.version = t.version"
        )
        return sql, [[key for key, _ in pairs], [version for _, version in pairs]]

    def delete_from(self, table: QualifiedName, mst_key: int, version: int) -> Statement:
        """Delete the states of a configuration from a version on."""
        sql = f"DELETE FROM {table.sql} WHERE mst_key = %s AND version >= %s"
        return sql, [mst_key, version]

    def begin_states(
        self,
        table: QualifiedName,
        previous: QualifiedName,
        packed: PackedTable,
        first: Mapping[int, int],
        version: int = 0,
        others: Mapping[int, Sequence[int]] = MappingProxyType({}),
    ) -> Statement:
        """Copy the states that configurations begin with, or go on from.

        Args:
            table: of the run.
            previous: the states of an earlier run, by mst_key and chunk.
            packed: what is trained on.
            first: the partition of each configuration's next hop, by mst_key.
            version: hops that they have done.
            others: further partitions of that hop's round, by mst_key.
        """
        sql = (
            f"INSERT INTO {table.sql} ({STATE_COLUMNS}) "
            f"SELECT p.mst_key, %s, p.chunk, NULL, p.state FROM {previous.sql} p "
            "WHERE p.mst_key = ANY (%s::int[])"
        )
        return sql, [version, list(first)]

    def clone_state(
        self,
        source: QualifiedName,
        target: QualifiedName,
        state: tuple[int, int],
        mst_key: int,
        packed: PackedTable,
        partition_key: int,
    ) -> Statement:
        """Copy a state, which becomes version 0 of another configuration.

        Args:
            source, target: tables of states.
            state: mst_key and version.
            mst_key: of the copy.
            packed: what is trained on.
            partition_key: where the copy is trained first.
        """
        goal, segment = self._goal(self.segment_of(packed, partition_key))
        sql = (
            f"INSERT INTO {target.sql} ({self.state_columns}) "
            f"SELECT {goal}%s, 0, s.chunk, %s, s.state FROM {source.sql} s "
            f"WHERE s.mst_key = %s AND s.version = %s AND {self._original}"
        )
        return sql, [*segment, mst_key, partition_key, *state]

    def call(
        self,
        packed: PackedTable,
        partition_keys: Sequence[int],
        function: str,
        parameters: Sequence[Any] = (),
    ) -> Statement:
        """Call a function in the processes that train on partitions; a row from each of them."""
        return f"SELECT {function}", list(parameters)

    def neighbours(self, packed: PackedTable) -> Statement:
        """Number of partitions that share the processors of one machine."""
        return "SELECT %s", [len(packed.partitions)]

    def worker_settings(self, states: StateTables) -> str:
        """Settings of a worker's session: where hops may be lost, commits need not be waited for."""
        durable = f"SET synchronous_commit = {'on' if states.every_hop else 'off'}"
        return "; ".join((durable, *self.settings))

    def hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train one configuration on one partition, or lead a round; ``made`` reads what it returns."""
        rows, parameters = self._rows_of_hop(packed, order)
        goal, segment = self._goal(self._segment_after(packed, order))
        sql = _HOP.format(
            states=order.into,
            columns=self.state_columns,
            goal=goal,
            trained=self._trained(order, rows),
            left=LEFT,
        )
        return sql, [*segment, order.mst_key, order.makes, order.next_partition_key, *parameters]

    def share(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train a replica together with others, one of which leaves the state; returns its own report."""
        rows, parameters = self._rows_of_hop(packed, order)
        return _SHARE.format(trained=self._trained(order, rows)), parameters

    def hops(self, packed: PackedTable, orders: Sequence[HopOrder]) -> Statement:
        """Train configurations one after another on one partition; ``made`` reads what it returns.

        Args:
            packed: what is trained on.
            orders: of different configurations, all with the same target. If there are several,
                no more than ``most_hops``, none of them reads, or starts from the weights of a model.
        """
        (order,) = orders
        return self.hop(packed, order)

    def average(self, packed: PackedTable, order: AverageOrder) -> Statement:
        """Average the states of a round; returns the bytes of each chunk of the state that comes of it."""
        sql = _AVERAGE.format(
            states=self._states(order.states), target=order.target.sql, columns=STATE_COLUMNS
        )
        ranks = list(range(len(order.versions)))
        return sql, [
            order.mst_key, order.makes, order.weights, ranks, order.versions, order.mst_key,
        ]  # fmt: skip

    def scan(self, packed: PackedTable, order: ScanOrder) -> Statement:
        """Score many configurations on one partition; returns JSON."""
        same, oid = same_table(packed)
        buffers = _SCAN_BUFFERS.format(
            packed=packed.relation.name.sql, same=same, **columns_of(packed)
        )
        version = "" if order.versions is None else " AND s.version = t.version"
        states = self._states(order.states, has_versions=order.versions is not None)
        sql = _SCAN.format(states=states, version=version, buffers=buffers if order.reads else "")
        versions = order.versions or [0] * len(order.mst_keys)
        parameters: list[Any] = [order.task, order.mst_keys, versions, order.tasks]
        return sql, parameters + ([order.partition_key, *oid] if order.reads else [])

    def goals(self, packed: PackedTable, order: HopOrder) -> list[Goal]:
        """Where the state of a hop is left."""
        return [(self._segment_after(packed, order), order.next_partition_key)]

    # -- where states lie, where that differs ------------------------------------------------------
    def _goal(self, segment_key: int | None) -> Statement:
        """The first column of a state that is left, where states lie on segments."""
        return ("", []) if segment_key is None else ("%s, ", [segment_key])

    def segment_of(self, packed: PackedTable, partition_key: int) -> int | None:
        """Segment key of a partition; None without segments."""
        return None

    def _segment_after(self, packed: PackedTable, order: HopOrder) -> int | None:
        """Segment key where the state of a hop is left; None without segments."""
        return None

    def _states(self, tables: Sequence[QualifiedName], *, has_versions: bool = True) -> str:
        """Query of the states in some tables; of one that has no versions all rows are originals."""
        version, where = ("s.version", f" WHERE {self._original}") if has_versions else ("0", "")
        return " UNION ALL ".join(
            f"SELECT s.mst_key, {version} AS version, s.chunk, s.state FROM {table.sql} s{where}"
            for table in tables
        )

    # -- rows for the aggregate, where these differ ------------------------------------------------
    def _rows_of_hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Rows for the aggregate: what begins the hop, the state, and the buffers if they are read."""
        sql, parameters = self._first_rows(packed, order)
        if order.source is not None:
            sql += _STATE_ROWS.format(
                segment=self._key(order, "s"), states=order.source.sql, here=self._state_is_here(packed, order)
            )  # fmt: skip
            parameters += [order.mst_key, order.version]
        if order.reads:
            here, where = self._partition_rows(packed, order.partition_key)
            same, oid = same_table(packed)
            place = PLACE_IN_ORDER
            if order.salt is not None:
                place = PLACE_SHUFFLED
                parameters.append(order.salt)
            sql += _BUFFER_ROWS.format(
                segment=self._key(order, "p"),
                outer="g.segment_key, " if self._segment else "",
                place=place,
                packed=packed.relation.name.sql,
                here=here + same,
                **columns_of(packed),
            )
            parameters += [order.passes - 1, *where, *oid]
        return sql, parameters

    def _first_rows(self, packed: PackedTable, order: HopOrder) -> Statement:
        """The row that begins the hop."""
        weights, parameters = weights_of(order)
        row = FIRST_ROW.format(segment="", kind=0, task=TASK, weights=weights)
        return row, [order.task, *parameters]

    def _key(self, order: HopOrder, alias: str) -> str:
        """Columns of a row by which its segment is found."""
        return ""

    def _state_is_here(self, packed: PackedTable, order: HopOrder) -> str:
        """Condition of the rows of a state that are read."""
        return ""

    def _partition_rows(self, packed: PackedTable, partition_key: int) -> Statement:
        """Condition of the rows of a partition, behind an alias ``p``."""
        return "p.partition_key = %s", [partition_key]

    def _trained(self, order: HopOrder, rows: str) -> str:
        """The query of the aggregate, whose token is that of the state that is left."""
        return TRAINED.format(task="i.task", rows=rows, group="")


def weights_of(order: HopOrder) -> Statement:
    """Expression of the weights that a hop begins with, where these are a model's."""
    if order.weights_of is None:
        return "NULL::bytea", []
    return WEIGHTS, [order.run_id, order.weights_of]


def same_table(packed: PackedTable) -> Statement:
    """Condition of the rows of a packed table, and of no other table that has taken its name.

    Rows behind a table with partitions, or on another server, have other numbers.
    """
    if packed.relation.kind != "r":
        return "", []
    return " AND p.tableoid = %s::oid", [packed.relation.oid]


def columns_of(packed: PackedTable) -> dict[str, str]:
    """The quoted names of the columns of a packed table, to be written behind an alias ``p``."""
    return columns_of_names(
        [one.name for one in packed.inputs], [one.name for one in packed.targets]
    )


def columns_of_names(inputs: Sequence[str], targets: Sequence[str]) -> dict[str, str]:
    """Quoted columns of inputs and targets with these names, to be written behind an alias ``p``."""
    return {
        "x": _joined(inputs),
        "x_shape": _joined([f"{name}_shape" for name in inputs]),
        "y": _joined(targets),
        "y_shape": _joined([f"{name}_shape" for name in targets]),
    }


def _joined(names: Sequence[str]) -> str:
    """A column behind the alias ``p.``; of several the values one after another."""
    return " || p.".join(map(quote, names))


WEIGHTS = """(SELECT a.model_weights FROM cerebro._architectures a
                 WHERE a.run_id = %s AND a.model_id = %s)"""

STATE_COLUMNS = "mst_key, version, chunk, partition_key, state"
TASK = "%s::text"

FIRST_ROW = """
SELECT {segment}{kind} AS kind, 0 AS subepoch, ''::bytea AS place, {task} AS task, NULL::bytea AS state,
       {weights} AS weights, NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
"""

_STATE_ROWS = """UNION ALL
SELECT {segment}1, s.chunk, '', NULL, s.state, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {states} s WHERE {here}s.mst_key = %s AND s.version = %s
"""

# Places are bytes, which all planners compare alike; not all of them take a collation.
PLACE_SHUFFLED = "md5(%s || '/' || g.subepoch || '/' || g.buffer_id)::bytea"
PLACE_IN_ORDER = "lpad(g.buffer_id::text, 10, '0')::bytea"

# Passes are no join: GPORCA would bring the buffers to them.
_BUFFER_ROWS = """UNION ALL
SELECT {outer}2, g.subepoch, {place}, NULL, NULL, NULL, g.buffer_id, g.x, g.x_shape, g.y, g.y_shape
  FROM (SELECT {segment}p.buffer_id, p.{x} AS x, p.{x_shape} AS x_shape, p.{y} AS y,
               p.{y_shape} AS y_shape, generate_series(0, %s) AS subepoch
          FROM {packed} p WHERE {here}) AS g
"""

TRAINED = """SELECT cerebro.cerebro_train(i.kind, {task}, i.state, i.weights, i.subepoch, i.buffer_id,
                               i.x, i.x_shape, i.y, i.y_shape
                               ORDER BY i.kind, i.subepoch, i.place) AS token
          FROM ({rows}) AS i{group}"""

# Of each chunk of a state; the last one is there when all are.
LEFT = "mst_key, octet_length(state), report, extract(epoch FROM clock_timestamp())::float8"

_HOP = """
INSERT INTO {states} ({columns}, report)
SELECT {goal}%s, %s, (c.saved).chunk, %s, (c.saved).state, (c.saved).report
  FROM (SELECT cerebro._saved_state(v.token) AS saved
          FROM ({trained}) AS v) AS c
RETURNING {left}
"""

_SHARE = """
SELECT (c.saved).report
  FROM (SELECT cerebro._saved_state(v.token) AS saved
          FROM ({trained}) AS v) AS c
"""

# Sums of numbers depend on their order, which is that of the hops.
_AVERAGE = """
INSERT INTO {target} ({columns})
SELECT %s, %s, (c.saved).chunk, NULL, (c.saved).state
  FROM (SELECT cerebro._saved_state(a.token) AS saved
          FROM (SELECT cerebro.cerebro_average(%s::float8[], p.rank, s.state ORDER BY p.rank, s.chunk) AS token
                  FROM unnest(%s::int[], %s::int[]) AS p(rank, version)
                  JOIN ({states}) s ON s.mst_key = %s AND s.version = p.version) AS a) AS c
RETURNING octet_length(state)
"""

_SCAN = """
SELECT cerebro.cerebro_measure(kind, task, state, buffer_id, x, x_shape, y, y_shape
                               ORDER BY kind, place, chunk)
  FROM (
SELECT 0 AS kind, 0 AS place, 0 AS chunk, %s::text AS task, NULL::bytea AS state,
       NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
UNION ALL
SELECT 1, t.mst_key, s.chunk, t.task, s.state, NULL, NULL, NULL, NULL, NULL
  FROM unnest(%s::int[], %s::int[], %s::text[]) AS t(mst_key, version, task)
  JOIN ({states}) s ON s.mst_key = t.mst_key{version}
{buffers}) AS input
"""

_SCAN_BUFFERS = """UNION ALL
SELECT 2, p.buffer_id, 0, NULL, NULL, p.buffer_id, p.{x}, p.{x_shape}, p.{y}, p.{y_shape}
  FROM {packed} p WHERE p.partition_key = %s{same}
"""
