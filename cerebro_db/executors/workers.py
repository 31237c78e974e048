"""The workers of a run, and what all of them work with."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.core.tasks import Task
from cerebro_db.executors.served import ServedRounds
from cerebro_db.executors.tasks import TaskWriter
from cerebro_db.postgres.catalog.states import StateStore, StateTable
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.orders import AverageOrder, HopOrder, StateTables
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.buffers import PartitionInfo
from cerebro_db.postgres.tables.packed import PackedTable


@dataclass(frozen=True)
class RunResources:
    """Tables, states, sessions and settings of a run, as its workers need them.

    Attributes:
        run_id: of the catalog.
        states: the names of its tables of states.
        tables: the packed table of each data set.
        tasks: writes the tasks of trainers.
        pool: of sessions.
        store: where the states are.
        threads: of each trainer.
        use_gpus: whether trainers compute on GPUs.
        guard_key: of the advisory lock that workers share while they work for the run.
        cache_bytes: of decoded partitions that each worker may keep.
        frameworks: of the models of the run, as a text.
        preparation: JSON of what makes a process of a worker's session ready.
        hosts: of each partition, where trainers of several exchange gradients; else nothing.
        rounds: those that are recorded, where one trainer of a round holds the weights.
        moves_rows: whether a worker computes in one place, and the rows of other partitions are moved there.
    """

    run_id: int
    states: StateTables
    tables: Mapping[str, PackedTable]
    tasks: TaskWriter
    pool: SessionPool
    store: StateStore
    dialect: PostgreSQL
    threads: int
    use_gpus: bool
    guard_key: int
    cache_bytes: int
    frameworks: str
    preparation: str
    hosts: Mapping[int, str] = field(default_factory=dict)
    rounds: ServedRounds = field(default_factory=ServedRounds)
    moves_rows: bool = False


@dataclass
class Worker:
    """A worker, and what it does.

    Attributes:
        number: from 0.
        kept: data set and key of the partitions that it has decoded in memory.
        free_since: when it last had nothing to do.
        is_busy: whether it does its task, or gets ready where there is none.
        unprepared: whether its trainer has ended, or has been asked to.
        partition_keys: of partitions that are its own; empty where any worker may have any.
        home: the one beside whose rows its trainer is, where those of the others are moved there.
        tables: of states, that the statement under way uses.
        target: the one of them that it writes to.
        orders: of the hops that it makes, by mst_key.
        average: what it averages.
        address: where trainers of other hosts find its trainer.
        is_trying: whether it looks if they can be reached.
        sent: when they were sent.
    """

    number: int
    session: Session
    kept: set[tuple[str, int]] = field(default_factory=set)
    free_since: float = field(default_factory=time.monotonic)
    task: Task | None = None
    is_busy: bool = False
    unprepared: bool = False
    partition_keys: Sequence[int] = ()
    home: PartitionInfo | None = None
    tables: list[StateTable] = field(default_factory=list)
    target: StateTable | None = None
    orders: Mapping[int, HopOrder] = field(default_factory=dict)
    average: AverageOrder | None = None
    address: Mapping[str, Any] | None = None
    is_trying: bool = False
    sent: float = 0.0

    @property
    def pid(self) -> int:
        """Process of the server that works for it."""
        return self.session.pid

    def keep(self, names: Sequence[str]) -> None:
        """Take note of the partitions that its trainer has in memory."""
        self.kept = set(map(_partition, names))

    def keep_of(self, partition_key: int, names: Sequence[str]) -> None:
        """Take note of the partitions that the process of one partition has in memory."""
        others = {pair for pair in self.kept if pair[1] != partition_key}
        self.kept = others | set(map(_partition, names))


def _partition(name: str) -> tuple[str, int]:
    """Data set and key of a partition, as a worker names it."""
    dataset, _, key = name.rpartition("/")
    return dataset, int(key)
