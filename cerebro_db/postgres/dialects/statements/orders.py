"""Values of the statements that train, average and score; what such a statement returns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cerebro_db.postgres.names import STATES_SCHEMA, QualifiedName
from cerebro_db.postgres.tables.buffers import PartitionInfo
from cerebro_db.protocol import HopFailed, StateMade, StateReport, report_of

Statement = tuple[str, list[Any]]
# Where a state is left: a segment key, None without segments; and the partition where it goes.
Goal = tuple[int | None, int | None]


class StateTables(NamedTuple):
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


def made(rows: Sequence[tuple[Any, ...]]) -> dict[int, StateMade | HopFailed]:
    """Results of a statement that trains, by mst_key in the order of training.

    Args:
        rows: that it returned, one for each chunk of a state: its mst_key, its bytes, the report with one of
            them, and the server's time.
    """
    found: dict[int, StateMade | HopFailed] = {}
    for mst_key, chunks in itertools.groupby(sorted(rows, key=_key_of_row), _key_of_row):
        _, sizes, reports, times = zip(*chunks, strict=True)
        report = report_of(next(text for text in reports if text is not None))
        if isinstance(report, StateReport):
            written = max(0.0, max(times) - report.trained_at)
            found[mst_key] = StateMade(report=report, size=sum(sizes), written=written)
        else:
            found[mst_key] = report
    return found


def _key_of_row(row: tuple[Any, ...]) -> int:
    return int(row[0])


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
