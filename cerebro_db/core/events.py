"""Everything that can happen to a run, and all that changes its state."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.core.decisions import Decision
from cerebro_db.core.spec import Configuration, Hop
from cerebro_db.core.tasks import Measures, Scanned, Task


@dataclass(frozen=True)
class Verdict:
    """Consequences of the epochs of a configuration so far.

    Attributes:
        stopped_epoch: after which the configuration is not trained any more.
        best_epoch: the one that EarlyStopping has found best.
        restored_epoch: whose state is the result; None for the last one.
        learning_rate: of the next epoch; None where nothing has changed it.
    """

    stopped_epoch: int | None = None
    best_epoch: int | None = None
    restored_epoch: int | None = None
    learning_rate: float | None = None


NOTHING = Verdict()


# -- which configurations there are ------------------------------------------------------------------
@dataclass(frozen=True)
class Decided:
    """A decision was stored.

    Attributes:
        configurations: that join the run by it.
    """

    decision: Decision
    configurations: tuple[Configuration, ...] = ()


@dataclass(frozen=True)
class Allowance:
    """Epochs that a configuration may go to until more is decided; not stored, as it follows from decisions.

    Attributes:
        last: the epoch that it does not go beyond; None for its budget.
        kept: epochs whose states stay.
        since: virtual seconds at which it began to be trained further, and after which epoch.
        pace: virtual seconds for each estimated one.
    """

    mst_key: int
    last: int | None
    kept: frozenset[int] = frozenset()
    since: tuple[float, int] = (0.0, 0)
    pace: float = 1.0


# -- the course of the run ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Restored:
    """Hops that a configuration has done, versions of its state, and the last epoch planned."""

    mst_key: int
    done: int
    planned: int
    versions: frozenset[int]


@dataclass(frozen=True)
class Planned:
    """Hops were planned, and stored."""

    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Submitted:
    """A worker has got a task."""

    worker: int
    task: Task


@dataclass(frozen=True)
class Returned:
    """A worker is done with its task, whatever came of it."""

    worker: int


@dataclass(frozen=True)
class HopDone:
    """A hop left its state; ``at`` on the clock."""

    hop: Hop
    seconds: float
    at: float


@dataclass(frozen=True)
class RoundDone:
    """The hops of a round have left one state; ``at`` on the clock.

    Attributes:
        version: hops that were done before it.
        hops: of the round.
    """

    mst_key: int
    version: int
    hops: int
    at: float


@dataclass(frozen=True)
class HopDropped:
    """A hop of a configuration that has ended is under way no more, and left nothing."""

    hop: Hop


@dataclass(frozen=True)
class Separated:
    """Hops of a task that failed are to be made one by one: so it is found out whose fault it was."""

    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Broken:
    """The hops of a round cannot be made together any more."""

    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Lost:
    """The trainer of a worker has ended: its task, None while it got ready, is done once more."""

    task: Task | None


@dataclass(frozen=True)
class Scored:
    """Configurations were measured after an epoch, on all data sets."""

    epoch: int
    mst_keys: tuple[int, ...]


@dataclass(frozen=True)
class Judged:
    """Callbacks have come to another verdict on a configuration."""

    mst_key: int
    verdict: Verdict


@dataclass(frozen=True)
class Failed:
    """A configuration has ended early: ``status`` is failed or cancelled.

    States that a decision may go back to stay: it may not have taken note of that yet.
    """

    mst_key: int
    status: str
    error: str


@dataclass(frozen=True)
class Discarded:
    """Versions of states are gone, as mst_key and version; of what has changed, all others are needed."""

    states: tuple[tuple[int, int], ...]


Event = (
    Decided
    | Allowance
    | Restored
    | Planned
    | Submitted
    | Returned
    | HopDone
    | RoundDone
    | HopDropped
    | Separated
    | Broken
    | Lost
    | Scanned
    | Measures
    | Scored
    | Judged
    | Failed
    | Discarded
)
