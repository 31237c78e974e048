"""SQL text of training on PostgreSQL: a hop and a scoring pass are one statement each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from cerebro_db.core.tasks import HopFigures, RoundRecord
from cerebro_db.postgres.catalog import STATES_SCHEMA
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.packed import PackedTable, PartitionInfo
from cerebro_db.postgres.records import COLUMNS as ROUND_COLUMNS
from cerebro_db.postgres.records import HOP_COLUMNS

Statement = tuple[str, list[Any]]


@dataclass(frozen=True)
class StateTables:
    """The names of the tables that hold the states of a run.

    States are only inserted. A table takes some of them and is dropped as a whole when nothing
    needs any of them: rows that are deleted would keep their space for as long as the statement
    goes on that drives the run, because its snapshot could still see them.

    Attributes:
        name: how all their names begin; nobody can guess it before they are there.
        hops_an_epoch: of a configuration.
        every_hop: whether all states outlive a crash, or those at the end of an epoch only.
    """

    name: str
    hops_an_epoch: int
    every_hop: bool

    def lasts(self, version: int) -> bool:
        """True if a version outlives a crash."""
        return self.every_hop or (version >= 0 and version % self.hops_an_epoch == 0)

    def table(self, number: int, lasting: bool) -> QualifiedName:
        """The table of a number."""
        return QualifiedName(STATES_SCHEMA, f"{self.name}_{number}{'' if lasting else _PASSING}")

    def read(self, name: str) -> tuple[int, bool]:
        """The number of a table, and whether its states outlive a crash."""
        rest = name[len(self.name) + 1 :]
        return int(rest.removesuffix(_PASSING)), not rest.endswith(_PASSING)


_PASSING = "_passing"


@dataclass(frozen=True)
class HopOrder:
    """Values for the statement of one hop.

    Attributes:
        source: the table of the state before, None where there is none.
        target: the table of the state afterwards; None where another worker leaves it.
        run_id, mst_key, epoch, position, partition_key: which hop of the plan.
        version: of the state before: hops that the configuration has done.
        makes: version of the state afterwards.
        next_partition_key: where it goes afterwards, None at the end of what is planned.
        others: further partitions that need the state afterwards: those of a round that is made together.
        worker: number of the worker.
        waited: seconds that the worker was idle before.
        task: JSON for the worker.
        salt: what places the buffers; None leaves them in the order of their ids.
        passes: how often the buffers are read: 1, or the passes of the hop where they are streamed.
        reads: whether the buffers are read at all, or the worker has the partition in memory.
        weights_of: model_id whose weights are the start.
        preparation: JSON of what makes a process a worker, where that is not the session's.
        home: the partition of the training table beside whose rows the worker computes, and the rows of
            others are moved there; None where it computes beside the rows that it trains on.
    """

    source: QualifiedName | None
    target: QualifiedName | None
    run_id: int
    mst_key: int
    epoch: int
    position: int
    partition_key: int
    version: int
    makes: int
    next_partition_key: int | None
    worker: int
    waited: float
    task: str
    salt: str | None
    passes: int
    reads: bool
    weights_of: int | None
    preparation: str | None = None
    others: Sequence[int] = ()
    home: PartitionInfo | None = None

    @property
    def into(self) -> str:
        """SQL of the table of the state afterwards."""
        assert self.target is not None
        return self.target.sql


@dataclass(frozen=True)
class Member:
    """A worker that makes a hop together with others.

    Attributes:
        waited: seconds that it was idle before.
    """

    position: int
    partition_key: int
    worker: int
    pid: int
    waited: float


@dataclass(frozen=True)
class AverageOrder:
    """Values for the statement that averages the states of a round.

    Attributes:
        states: the tables that have them.
        target: the table of the state afterwards.
        mst_key: of the configuration.
        versions: of the states, in the order of their hops.
        weights: of each: the rows that its hop trained on.
        makes: version of the state afterwards.
        partition_key: of the worker that does it.
        following: partitions of the hops that begin with that state; none where there are no more.
    """

    states: Sequence[QualifiedName]
    target: QualifiedName
    mst_key: int
    versions: list[int]
    weights: list[float]
    makes: int
    partition_key: int
    following: Sequence[int]


@dataclass(frozen=True)
class HopMade:
    """Result of the statement of a hop.

    Attributes:
        rows: that were trained on.
        kept: names of the partitions that the worker has in memory now.
        size: bytes of the new state.
        figures: what is still to be written to the catalog; None where the statement has done that.
        course: number of groups and momentum of a round that was recorded; else None.
        record: what is still to be written of such a round; None where the statement has done that.
    """

    rows: int
    kept: Sequence[str]
    size: int
    figures: HopFigures | None = None
    course: tuple[int, float | None] | None = None
    record: RoundRecord | None = None


class PostgreSQLTraining:
    """Statements of a run. The rows of a hop and its new state are one transaction."""

    # Whether a partition is for one worker only, whose processes have it in memory.
    binds_workers = False
    # How many hops of one partition a statement may make.
    most_hops = 1

    def create_states(self, table: QualifiedName, lasting: bool) -> list[str]:
        """A table of states: one row a chunk of a version of a configuration."""
        return [
            f"CREATE {'' if lasting else 'UNLOGGED'} TABLE {table.sql} (mst_key integer NOT NULL, "
            "version integer NOT NULL, chunk integer NOT NULL, partition_key integer, "
            "state bytea NOT NULL, PRIMARY KEY (mst_key, version, chunk))",
            f"ALTER TABLE {table.sql} ALTER COLUMN state SET STORAGE EXTERNAL",
        ]

    def together(self, column: str) -> str:
        """End of CREATE TABLE where all rows of a key shall lie in one place."""
        return ""

    def tables(self, name: str) -> Statement:
        """The names of the tables of states of a run, of those that belong to its owner.

        Once they are seen, others may make tables of names that begin like these.
        """
        sql = (
            "SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relkind = 'r' "
            "AND c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n "
            "WHERE n.nspname = %s) AND pg_catalog.left(c.relname, %s) = %s "
            "AND c.relowner = (SELECT r.owner FROM cerebro._runs r WHERE r.states = %s) ORDER BY 1"
        )
        return sql, [STATES_SCHEMA, len(name) + 1, f"{name}_", name]

    def contents(self, table: QualifiedName) -> str:
        """The states in a table: mst_key, version, bytes."""
        return (
            "SELECT s.mst_key, s.version, pg_catalog.sum(pg_catalog.octet_length(s.state))::bigint "
            f"FROM {table.sql} s GROUP BY 1, 2"
        )

    def move(
        self, source: QualifiedName, target: QualifiedName, pairs: Sequence[tuple[int, int]]
    ) -> Statement:
        """Copy states, given as mst_key and version, from one table to another."""
        sql = (
            f"INSERT INTO {target.sql} SELECT s.* FROM {source.sql} s "
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
            f"INSERT INTO {table.sql} (mst_key, version, chunk, partition_key, state) "
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
        sql = (
            f"INSERT INTO {target.sql} (mst_key, version, chunk, partition_key, state) "
            f"SELECT %s, 0, s.chunk, %s, s.state FROM {source.sql} s "
            "WHERE s.mst_key = %s AND s.version = %s"
        )
        return sql, [mst_key, partition_key, *state]

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
        return f"SET synchronous_commit = {'on' if states.every_hop else 'off'}"

    def hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train one configuration on one partition; ``made`` reads what it returns."""
        rows, parameters = self._rows_of_hop(packed, order)
        parameters += [
            order.mst_key, order.makes, order.next_partition_key,
            order.run_id, order.mst_key, order.epoch, order.position, order.partition_key,
            order.worker, order.waited,
        ]  # fmt: skip
        return _HOP.format(rows=rows, states=order.into, columns=HOP_COLUMNS), parameters

    def share(self, packed: PackedTable, order: HopOrder) -> Statement:
        """Train a replica together with others; returns the names of the partitions that are kept."""
        rows, parameters = self._rows_of_hop(packed, order)
        return _SHARE.format(rows=rows), parameters

    def lead(
        self,
        packed: PackedTable,
        order: HopOrder,
        members: Sequence[Member],
        recorded: int | None = None,
    ) -> Statement:
        """The same, and leave the state and the rows of all hops; ``led`` reads what it returns.

        Args:
            packed: what is trained on.
            order: of this worker's hop.
            members: the workers by their places, this one among them.
            recorded: number of the round in its epoch, where its course is to be recorded.
        """
        rows, parameters = self._rows_of_hop(packed, order)
        parameters += [order.mst_key, order.makes, order.next_partition_key]
        parameters += [order.run_id, order.mst_key, order.epoch]
        # Of each member there is a row: its position, its rows, and what a hop returns of this worker; where
        # the round is recorded also its groups and its momentum.
        parameters += [
            list(range(len(members))),
            *([getattr(one, name) for one in members] for name in _MEMBER),
        ]
        record, shown = "", ""
        if recorded is not None:
            record, shown = _RECORD, _RECORDED
            parameters += [order.run_id, order.mst_key, order.epoch, recorded]
        sql = _LEAD.format(
            rows=rows, states=order.into, columns=HOP_COLUMNS, record=record, shown=shown
        )
        return sql, parameters

    def led(
        self,
        rows: Sequence[tuple[Any, ...]],
        order: HopOrder,
        members: Sequence[Member],
        recorded: int | None = None,
    ) -> tuple[HopMade, list[HopMade]]:
        """Result of the statement of whoever has led a round, and of all of its hops.

        Args:
            rows: that the statement returned.
            order, members, recorded: as ``lead`` had them.
        """
        _, _, kept, size, *chosen = rows[0]
        counts = {row[0]: row[1] for row in rows}
        of_hops = [HopMade(counts[one.position], kept, 0) for one in members]
        course = (chosen[0], chosen[1]) if chosen else None
        return HopMade(sum(counts.values()), kept, size, course=course), of_hops

    def hops(self, packed: PackedTable, orders: Sequence[HopOrder]) -> Statement:
        """Train configurations one after another on one partition; ``all_made`` reads it.

        Args:
            packed: what is trained on.
            orders: of different configurations, all with the same target. If there are several,
                no more than ``most_hops``, none of them reads, or starts from the weights of a model.
        """
        (order,) = orders
        return self.hop(packed, order)

    def made(self, rows: Sequence[tuple[Any, ...]]) -> HopMade:
        """Result of the statement of a hop."""
        return HopMade(*rows[0])

    def all_made(
        self, mst_keys: Sequence[int], rows: Sequence[tuple[Any, ...]]
    ) -> dict[int, HopMade]:
        """Results of the statement of some hops, by mst_key in the order of training."""
        (mst_key,) = mst_keys
        return {mst_key: self.made(rows)} if rows else {}

    def average(self, packed: PackedTable, order: AverageOrder) -> Statement:
        """Average the states of a round; returns the bytes of the state that comes of it."""
        states = " UNION ALL ".join(f"SELECT * FROM {table.sql}" for table in order.states)
        places = list(range(len(order.versions)))
        sql = _AVERAGE.format(states=states, target=order.target.sql)
        return sql, [
            order.weights, places, order.versions, order.mst_key, order.mst_key, order.makes,
        ]  # fmt: skip

    def missing_hops(
        self,
        run_id: int,
        table: QualifiedName,
        hops_an_epoch: int,
        num_workers: int,
        homes: Sequence[PartitionInfo] = (),
    ) -> Statement | None:
        """Write the rows of hops that are missing though their states are in a table.

        None where that cannot be, as the state and the row of a hop are one statement.

        Args:
            run_id: of the catalog.
            table: of states.
            hops_an_epoch: of a configuration.
            num_workers: of the run.
            homes: of the workers, in the order of their numbers, where rows are moved to these.
        """
        return None

    def scan(self, packed: PackedTable, order: ScanOrder) -> Statement:
        """Score many configurations on one partition; returns JSON."""
        buffers = _SCAN_BUFFERS.format(packed=packed.relation.name.sql, **columns_of(packed))
        version = "" if order.versions is None else " AND s.version = t.version"
        states = " UNION ALL ".join(f"SELECT * FROM {table.sql}" for table in order.states)
        sql = _SCAN.format(states=states, version=version, buffers=buffers if order.reads else "")
        versions = order.versions or [0] * len(order.mst_keys)
        parameters: list[Any] = [order.task, order.mst_keys, versions, order.tasks]
        return sql, parameters + ([order.partition_key] if order.reads else [])

    def _rows_of_hop(self, packed: PackedTable, order: HopOrder) -> Statement:
        weights = "NULL::bytea"
        parameters: list[Any] = [order.task]
        if order.weights_of is not None:
            weights = WEIGHTS
            parameters += [order.run_id, order.weights_of]
        sql = _FIRST_ROW.format(weights=weights)
        if order.source is not None:
            sql += _STATE_ROWS.format(states=order.source.sql)
            parameters += [order.mst_key, order.version]
        if order.reads:
            place = PLACE_IN_ORDER
            if order.salt is not None:
                place = PLACE_SHUFFLED
                parameters.append(order.salt)
            sql += _HOP_BUFFERS.format(
                place=place, packed=packed.relation.name.sql, **columns_of(packed)
            )
            parameters += [order.passes - 1, order.partition_key]
        return sql, parameters


@dataclass(frozen=True)
class ScanOrder:
    """Values for the statement of one scoring pass.

    Attributes:
        states: the tables that have them: (mst_key, version, chunk, state), the same columns in all.
        task: JSON that the configurations have in common.
        mst_keys, tasks: of the states to score.
        versions: of them; None where the table has only one of each.
        reads: whether the buffers are read, or the worker has the partition in memory.
        preparation, home: as of a hop.
    """

    states: Sequence[QualifiedName]
    partition_key: int
    task: str
    mst_keys: list[int]
    versions: list[int] | None
    tasks: list[str]
    reads: bool
    preparation: str | None = None
    home: PartitionInfo | None = None


class RotationStatements(Protocol):
    """Statements of a run whose hops are made in steps, on servers where that can be."""

    def step(self, packed: PackedTable, orders: Sequence[HopOrder]) -> Statement:
        """Train each configuration on its partition, in one transaction."""
        ...

    def sweep(self, packed: PackedTable, orders: Sequence[ScanOrder]) -> Statement:
        """Score the same configurations on several partitions."""
        ...


def checked(packed: PackedTable, statement: Statement) -> Statement:
    """The same, which fails where the name of the table has become that of another one.

    Both statements are one message and one transaction.
    """
    sql, parameters = statement
    relation = packed.relation
    return _CHECK + sql, [relation.name.text, relation.oid, *parameters]


_CHECK = "SELECT cerebro._check_table(%s, %s::oid); "


def columns_of(packed: PackedTable) -> dict[str, str]:
    """The quoted names of the columns of a packed table, to be written behind an alias ``p``."""
    return columns_of_names(
        [one.name for one in packed.inputs], [one.name for one in packed.targets]
    )


def columns_of_names(inputs: Sequence[str], targets: Sequence[str]) -> dict[str, str]:
    """The same from the names of inputs and targets."""
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

_FIRST_ROW = """
SELECT 0 AS kind, 0 AS subepoch, ''::text AS place, %s::text AS task, NULL::bytea AS state,
       {weights} AS weights,
       NULL::int AS buffer_id, NULL::bytea AS x, NULL::int[] AS x_shape,
       NULL::bytea AS y, NULL::int[] AS y_shape
"""

_STATE_ROWS = """
UNION ALL
SELECT 1, s.chunk, '', NULL, s.state, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {states} s WHERE s.mst_key = %s AND s.version = %s
"""

PLACE_SHUFFLED = "md5(%s || '/' || g.subepoch || '/' || p.buffer_id)"
PLACE_IN_ORDER = "lpad(p.buffer_id::text, 10, '0')"

_HOP_BUFFERS = """
UNION ALL
SELECT 2, g.subepoch, {place}, NULL, NULL, NULL, p.buffer_id, p.{x}, p.{x_shape}, p.{y}, p.{y_shape}
  FROM {packed} p CROSS JOIN generate_series(0, %s) AS g(subepoch)
 WHERE p.partition_key = %s
"""

# The insertion of the hop reads what was saved, so that the state is written before it is timed.
_HOP = """
WITH trained AS (
    SELECT cerebro.cerebro_train(kind, task, state, weights, subepoch, buffer_id,
                                 x, x_shape, y, y_shape
                                 ORDER BY kind, subepoch, place COLLATE "C") AS result
      FROM ({rows}) AS input
),
saved AS (
    INSERT INTO {states} (mst_key, version, chunk, partition_key, state)
    SELECT %s, %s, (c.saved).chunk, %s, (c.saved).state
      FROM (SELECT cerebro._saved_state((t.result).token) AS saved FROM trained t) AS c
    RETURNING octet_length(state) AS bytes
),
hop AS (
INSERT INTO cerebro._hops
       (run_id, {columns})
SELECT %s, %s, %s, %s, %s, %s, pg_backend_pid(), statement_timestamp(), clock_timestamp(),
       %s, (t.result).read_seconds, (t.result).train_seconds,
       extract(epoch FROM clock_timestamp()) - (t.result).trained_at,
       (t.result).rows, (t.result).loss, (t.result).compiled, (t.result).cached,
       (t.result).memory_mb
  FROM (SELECT pg_catalog.count(*) FROM saved) AS s CROSS JOIN trained t
RETURNING rows
)
SELECT h.rows, (t.result).kept, (SELECT pg_catalog.sum(s.bytes)::bigint FROM saved s)
  FROM hop h CROSS JOIN trained t
"""

# Sums of numbers depend on their order, which is that of the hops.
_AVERAGE = """
WITH averaged AS (
    SELECT cerebro.cerebro_average(%s::float8[], p.place, s.state ORDER BY p.place, s.chunk) AS token
      FROM unnest(%s::int[], %s::int[]) AS p(place, version)
      JOIN ({states}) s ON s.mst_key = %s AND s.version = p.version
),
saved AS (
    INSERT INTO {target} (mst_key, version, chunk, partition_key, state)
    SELECT %s, %s, (c.saved).chunk, NULL, (c.saved).state
      FROM (SELECT cerebro._saved_state(a.token) AS saved FROM averaged a) AS c
    RETURNING octet_length(state) AS bytes
)
SELECT pg_catalog.sum(s.bytes)::bigint FROM saved s
"""

_TRAINED = """
    SELECT cerebro.cerebro_train(kind, task, state, weights, subepoch, buffer_id,
                                 x, x_shape, y, y_shape
                                 ORDER BY kind, subepoch, place COLLATE "C") AS result
      FROM ({rows}) AS input
"""

_SHARE = f"SELECT (t.result).kept FROM ({_TRAINED}) t"

_MEMBER = ("position", "partition_key", "worker", "pid", "waited")

_LEAD = f"""
WITH trained AS ({_TRAINED}),
saved AS (
    INSERT INTO {{states}} (mst_key, version, chunk, partition_key, state)
    SELECT %s, %s, (c.saved).chunk, %s, (c.saved).state
      FROM (SELECT cerebro._saved_state((t.result).token) AS saved FROM trained t) AS c
    RETURNING octet_length(state) AS bytes
),
hops AS (
INSERT INTO cerebro._hops
       (run_id, {{columns}})
SELECT %s, %s, %s, m.position, m.partition_key, m.worker, m.pid, statement_timestamp(),
       clock_timestamp(), m.waited, g.read_seconds, g.train_seconds,
       extract(epoch FROM clock_timestamp()) - (t.result).trained_at,
       g.rows, g.loss, g.compiled, g.cached, g.memory_mb
  FROM (SELECT pg_catalog.count(*) FROM saved) AS s CROSS JOIN trained t
 CROSS JOIN LATERAL cerebro._group_hops((t.result).token) AS g
  JOIN unnest(%s::int[], %s::int[], %s::int[], %s::int[], %s::int[], %s::float8[])
       AS m(place, position, partition_key, worker, pid, waited) ON m.place = g.place
RETURNING position, rows
){{record}}
SELECT h.position, h.rows, (t.result).kept, (SELECT pg_catalog.sum(s.bytes)::bigint FROM saved s){{shown}}
  FROM hops h CROSS JOIN trained t
"""

_RECORD = f""",
recorded AS (
INSERT INTO cerebro._updates (run_id, {ROUND_COLUMNS})
SELECT %s, %s, %s, %s, u.groups, u.momentum, u.learning_rate, u.probes, u.counts, u.staleness, u.stalest, u.updates
  FROM trained t CROSS JOIN LATERAL cerebro._served_round((t.result).token) AS u
RETURNING groups, momentum
)"""
_RECORDED = ", (SELECT r.groups FROM recorded r), (SELECT r.momentum FROM recorded r)"

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
  FROM {packed} p WHERE p.partition_key = %s
"""
