"""Ports: what the loop of a run needs of the world, whatever that is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cerebro_db.core.decisions import Decision, Request
from cerebro_db.core.events import Allowance
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import HopResult, Measures, Outcome, RoundRecord, Task, WorkerView
from cerebro_db.errors import InvalidArgument


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
        """Give up states that are not needed any more."""
        ...

    def forget_all(self, mst_key: int, but: Collection[int] = ()) -> None:
        """Give up the states of a configuration, except some versions."""
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
        """Record a round whose statement did not; may be written with the rows of its hops."""
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


@dataclass(frozen=True)
class Outlook:
    """Size that a search will have, as far as its decider knows.

    Attributes:
        trials: all of them.
        epochs: of all of them together, about.
    """

    trials: int
    epochs: float


class Decider(Protocol):
    """Decides which configurations a run has.

    What it decides may depend on the state only, and in that on what is not a matter of speed: scores
    of epochs, budgets, how many decisions were made. Then a run that was resumed, or has other workers,
    decides the same. Configurations go no further than their budget until they are promoted, and the
    state after the last epoch that a configuration has done stays as long as it goes on.
    """

    # Whether it may decide anything at all.
    is_open: bool

    @property
    def waits(self) -> bool:
        """True while the run waits for configurations of others, also where nothing is left to do."""
        ...

    def decide(self, state: RunState) -> Iterable[Decision | Allowance]:
        """Decide nothing.

        Each is stored and applied before the next one is asked for.
        """
        ...

    def check(self, state: RunState, request: Request) -> None:
        """Check that a request of another session can be followed.

        Raises:
            InvalidArgument: why not.
        """
        ...

    def follow(self, state: RunState, request: Request) -> Iterable[Decision | Allowance]:
        """Follow no request."""
        ...

    def gives_up(self, error: Exception) -> bool:
        """True if the search ends for the error of one of its decisions, which cannot be; its tables are made."""
        ...

    def shortfall(self, state: RunState) -> str | None:
        """Reason that no configuration has come to the last epochs of a search; None where one has."""
        ...

    def outlook(self) -> Outlook | None:
        """Size that a search will have; None of a run that is no search."""
        ...


class NoDecider:
    """The run has the configurations that it began with; base of deciders that do not do everything."""

    is_open = False
    waits = False

    def decide(self, state: RunState) -> Iterable[Decision | Allowance]:
        """Decide nothing."""
        return ()

    def follow(self, state: RunState, request: Request) -> Iterable[Decision | Allowance]:
        """Follow no request."""
        return ()

    def gives_up(self, error: Exception) -> bool:
        """False: whoever drives the run decides what an error ends."""
        return False

    def shortfall(self, state: RunState) -> str | None:
        """No shortfall: it is no search."""
        return None

    def outlook(self) -> Outlook | None:
        """No outlook: it is no search."""
        return None

    def check(self, state: RunState, request: Request) -> None:
        """Refuses everything: only a search changes while it goes on."""
        raise InvalidArgument(
            f"run_id: got a run whose configurations are fixed, asked for {request.action!r}; allowed: "
            "a search",
            hint="cerebro.cerebro_search begins one; cerebro.cerebro_cancel stops a configuration",
        )
