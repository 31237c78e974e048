"""Work for a worker, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cerebro_db.core.spec import TRAINING, Hop
from cerebro_db.protocol import HopReport, RoundReport


@dataclass(frozen=True)
class WorkerView:
    """A worker as those see it who decide what it does next.

    Attributes:
        kept: data set and key of the partitions that it has in memory.
        only_hops: whether it does nothing but hops, and none that somebody has failed at.
    """

    number: int
    kept: Collection[tuple[str, int]] = ()
    only_hops: bool = False

    def keeps(self, dataset: str, partition_key: int) -> bool:
        """True if it has a partition in memory."""
        return (dataset, partition_key) in self.kept


@dataclass(eq=False)
class ScoringGroup:
    """Configurations that finished an epoch and are scored together.

    Attributes:
        waiting: data set and partition of the scans that nobody has taken.
        missing: scans that are not finished.
        partials: sums of those that are, by data set and partition, then by configuration.
        errors: of configurations that could not be scored.
        combined: data sets whose results are known.
    """

    epoch: int
    mst_keys: tuple[int, ...]
    waiting: list[tuple[str, int]]
    missing: int
    partials: dict[tuple[str, int], Mapping[int, Any]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    combined: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Scan:
    """A group over one partition of one data set."""

    group: ScoringGroup
    dataset: str
    partition_key: int


@dataclass(frozen=True)
class Train:
    """Hops of different configurations over one partition, one after another."""

    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Step:
    """Hops of different configurations over different partitions, side by side."""

    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Participate:
    """A hop of a round that several workers make together, as the participants of a process group.

    Attributes:
        hops: of the round, by the ranks of their workers.
        rank: of this worker, from 0.
        is_root: whether it is the last one that joins, and leaves the state.
    """

    hops: tuple[Hop, ...]
    rank: int
    is_root: bool

    @property
    def own(self) -> Hop:
        """The hop of this worker."""
        return self.hops[self.rank]


@dataclass(frozen=True)
class Average:
    """The states that the hops of a round have left become one.

    Attributes:
        version: hops that the configuration had done before the round.
    """

    mst_key: int
    version: int


@dataclass(frozen=True)
class Score:
    """A scan, or the scans of several partitions of a data set side by side."""

    scans: tuple[Scan, ...]
    together: bool = False


@dataclass(frozen=True)
class Combine:
    """The sums of a group over all partitions of a data set become results."""

    group: ScoringGroup
    dataset: str


@dataclass(frozen=True)
class TryScoring:
    """Find out which configurations cannot be scored."""

    mst_keys: tuple[int, ...]


@dataclass(frozen=True)
class WriteEvents:
    """TensorBoard's files are written."""

    task: str


Task = Train | Step | Participate | Average | Score | Combine | TryScoring | WriteEvents


class RoundRecord(RoundReport, frozen=True, kw_only=True):
    """Course of a round whose weights one trainer has held, as ``cerebro._updates`` has it.

    Attributes:
        round: of the epoch, from 0.
    """

    mst_key: int
    epoch: int
    round: int


def round_record(mst_key: int, epoch: int, number: int, report: RoundReport) -> RoundRecord:
    """Record of a round, by its number in the epoch."""
    given = msgspec.structs.asdict(report)
    return RoundRecord(mst_key=mst_key, epoch=epoch, round=number, **given)


@dataclass(frozen=True)
class HopResult:
    """A hop that was made.

    Attributes:
        report: of its trainer.
        waited: seconds that its worker had nothing to do before.
        sent: when it began, on the clock ``time.monotonic``.
        seconds: from its begin to its end.
        written: seconds that its state took to be written.
    """

    hop: Hop
    report: HopReport
    waited: float
    sent: float
    seconds: float
    written: float


@dataclass(frozen=True)
class Measures:
    """Results of one configuration on one data set after one epoch: a row of the catalog, and an event.

    Attributes:
        names: of metrics, as Keras has them.
        elapsed: seconds of the run until then.
    """

    mst_key: int
    epoch: int
    dataset: str
    loss: float
    names: Sequence[str] = ()
    metrics: Sequence[float] = ()
    elapsed: float = 0.0

    @property
    def values(self) -> dict[str, float]:
        """Loss and metrics as Keras names them in its logs."""
        prefix = "" if self.dataset == TRAINING else "val_"
        pairs = [("loss", self.loss), *zip(self.names, self.metrics, strict=True)]
        return {prefix + name: value for name, value in pairs}

    @property
    def fault(self) -> str | None:
        """Error of the configuration where its loss is no number; None where it is."""
        if math.isfinite(self.loss):
            return None
        return f"the {self.dataset} loss of epoch {self.epoch} is {self.loss}"


@dataclass(frozen=True)
class Failure:
    """Reason that a task, or a hop, was not done.

    Attributes:
        error: to be raised where it is not about one configuration.
    """

    message: str
    sqlstate: str
    hint: str | None
    error: Exception | None = None


@dataclass(frozen=True)
class Ready:
    """A worker is ready, with the manifest of each of its processes."""

    manifests: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """Result of Train and Step, hop by hop; of Participate that of whoever led.

    Attributes:
        record: of the round, where it has one and was not made again in its order.
    """

    made: tuple[HopResult, ...]
    failed: tuple[tuple[Hop, Failure], ...] = ()
    record: RoundRecord | None = None


@dataclass(frozen=True)
class Scanned:
    """A group was scanned over a partition: sums and errors by configuration."""

    scan: Scan
    partials: Mapping[int, Any]
    errors: Mapping[int, str]


@dataclass(frozen=True)
class Sums:
    """Result of scans."""

    scans: tuple[Scanned, ...]


@dataclass(frozen=True)
class Averaged:
    """Result of Average: the state is there."""


@dataclass(frozen=True)
class Answered:
    """Result of any other task: JSON."""

    result: Any


Result = Ready | Trained | Averaged | Sums | Answered | Failure


@dataclass(frozen=True)
class Outcome:
    """A worker is done with a task; None where it has got ready."""

    worker: int
    task: Task | None
    result: Result
