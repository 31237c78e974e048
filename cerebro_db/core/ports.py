"""Ports: what the loop of a run needs of the world, whatever that is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import HopResult, Measures, Outcome, RoundRecord, Task, WorkerView


class Clock(Protocol):
    """Seconds that only grow, such as ``time.monotonic``."""

    def __call__(self) -> float: ...


class Executor(Protocol):
    """The workers of a run."""

    def start(self) -> None:
        """Have all workers get ready."""
        ...

    def free(self) -> Sequence[WorkerView]:
        """The workers that can take a task now."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if a worker works, or gets ready."""
        ...

    def submit(self, state: RunState, worker: int, task: Task) -> None:
        """Give a worker a task."""
        ...

    def poll(self) -> Iterable[Outcome]:
        """Wait a moment; what has come of tasks meanwhile. Raises what ends the run."""
        ...

    def cancel(self, worker: int) -> None:
        """Ask a worker to give up its task."""
        ...


class StateStorage(Protocol):
    """Storage of the states of configurations."""

    def forget(self, states: Collection[tuple[int, int]]) -> None:
        """Nothing needs these states any more."""
        ...

    def forget_all(self, mst_key: int, but: Collection[int] = ()) -> None:
        """Nothing needs the states of a configuration any more, but for some versions."""
        ...

    def sweep(self) -> None:
        """Give back the space of states that nothing needs."""
        ...


class RunCatalog(Protocol):
    """Record of a run, for whoever goes on with it."""

    def planned(self, hops: Sequence[Hop], reasons: Mapping[tuple[int, int], str]) -> None:
        """Hops are planned; before any of them is begun.

        Args:
            hops: that are planned.
            reasons: why they are made as they are, by mst_key and epoch: where that is new.
        """
        ...

    def begun(self, manifests: Sequence[dict[str, Any]], *, is_first: bool) -> None:
        """A worker is ready."""
        ...

    def hop_done(self, result: HopResult) -> None:
        """A hop was made; may be written some time later."""
        ...

    def round_done(self, record: RoundRecord) -> None:
        """A round was made that is recorded, and its hops are told next; may be written with these."""
        ...

    def flush(self, *, now: float = ...) -> None:
        """Write what waits; if a time is given, what waits for long enough by then."""
        ...

    def measured(self, results: Sequence[Measures]) -> None:
        """Results of configurations are there, those of their hops first."""
        ...

    def judged(self, tracks: Sequence[Track]) -> None:
        """Callbacks have come to other verdicts on configurations."""
        ...

    def ended(self, mst_key: int, status: str, error: str) -> None:
        """A configuration failed or was cancelled."""
        ...
