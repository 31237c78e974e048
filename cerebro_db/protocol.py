"""Reports of trainers: JSON that travels with the state of a hop, in its first row; answers of direct workers.

A trainer writes what its hop did. The relay passes the text on; the statement of the hop stores it in the row
of the state and returns it to the driver, which writes the rows of ``cerebro.hops`` from it, many at once. A driver
that takes up a run finds in the states what its predecessor could not write down any more.
"""

from __future__ import annotations

from cerebro_db.wire import Wire, decode, decode_stored


class HopReport(Wire, frozen=True, kw_only=True):
    """Figures of one hop; seconds are wall-clock.

    Attributes:
        worker, pid: number of the worker that made it, and its process of the server.
        partition_key: that it trained on.
        rows: that it trained on, in all passes.
        compiled: whether its program had to be compiled first.
        cached: whether the trainer keeps the decoded partition.
        memory_mb: the most that the trainer had.
    """

    worker: int
    pid: int
    partition_key: int
    rows: int
    loss: float
    read_seconds: float
    train_seconds: float
    compiled: bool
    cached: bool
    memory_mb: int


class RoundReport(Wire, frozen=True, kw_only=True):
    """Course of a round whose weights one trainer has held, by which it can be made again.

    Attributes:
        groups: of its workers.
        momentum: of the optimizer; None for its own.
        learning_rate: that it began with, where probes have chosen it; else None.
        probes: JSON of all probes; empty where there were none.
        counts, staleness, stalest: of each rank, updates of its group, and updates of other groups that its
            gradients had not seen, in the mean and at most.
        updates: groups of the updates in their order, as ``training.peers.updates`` writes them.
    """

    groups: int
    momentum: float | None
    learning_rate: float | None
    probes: str
    counts: list[int]
    staleness: list[float]
    stalest: list[int]
    updates: bytes


class StateReport(Wire, frozen=True, kw_only=True, tag="made"):
    """Report of a state: the hops that it came of.

    Attributes:
        hops: one; of a round that was made together all of them, in the order of their ranks.
        kept: names of the partitions that the trainer has in memory, such as ``training/3``.
        trained_at: end of the training, in seconds since 1970.
        round: of a round whose weights the trainer has held.
    """

    hops: list[HopReport]
    kept: list[str]
    trained_at: float
    round: RoundReport | None = None


class StateMade(Wire, frozen=True, kw_only=True, tag="left"):
    """Result of a hop, or of a round that was made together.

    Attributes:
        size: bytes of the new state.
        written: seconds from the end of the training until the state was written.
    """

    report: StateReport
    size: int
    written: float


class HandedBack(Wire, frozen=True, kw_only=True, tag="handed back"):
    """Answer of a direct worker to an order of which nothing has come.

    Attributes:
        is_of_the_model: whether the hop would fail anywhere.
    """

    error: str
    hint: str | None
    is_of_the_model: bool


class HopFailed(Wire, frozen=True, kw_only=True, tag="failed"):
    """Error of a hop that failed by itself, while others of its statement went on."""

    message: str
    sqlstate: str
    hint: str | None


def report_of(text: str | None) -> StateReport | HopFailed:
    """The report in the row of a state.

    Raises:
        InvalidData: no trainer wrote it.
    """
    found: StateReport | HopFailed = decode_stored(
        StateReport | HopFailed,  # type: ignore[arg-type]
        text,
        "report of a hop",
        "someone has changed the tables of states; the run cannot go on",
    )
    return found


def answer_of(text: str) -> StateMade | HandedBack:
    """The answer of a direct worker.

    Raises:
        InvalidArgument: no direct worker of this version wrote it.
    """
    found: StateMade | HandedBack = decode(StateMade | HandedBack, text, "answer")  # type: ignore[arg-type]
    return found
