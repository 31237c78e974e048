"""Trials of a search as its method sees them, and what a method may want."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.configs.grids.model_selection import ConfigurationText
from cerebro_db.core.search import SearchSpec, Space
from cerebro_db.decide.search.ranking import Values
from cerebro_db.decide.search.space import Parameters

RUNNING, WAITING, STOPPED, FAILED = "running", "waiting", "stopped", "failed"


@dataclass(eq=False)
class Trial:
    """A configuration of a search.

    Attributes:
        mst_key: which also is its number.
        budget: epochs that it is trained for.
        place: bracket and rung, and what else a method notes.
        done: epochs whose results were taken note of.
        values: of the objectives after epochs; less of each is better.
        status: running; waiting at its budget; stopped; failed.
        offset: epochs that the state which it began with had been trained for.
        is_adopted: whether somebody else has proposed it.
    """

    mst_key: int
    row: ConfigurationText
    parameters: Parameters
    budget: int
    place: dict[str, Any] = field(default_factory=dict)
    done: int = 0
    values: dict[int, Values] = field(default_factory=dict)
    status: str = RUNNING
    offset: int = 0
    is_adopted: bool = False

    @property
    def latest(self) -> Values | None:
        """Its last values."""
        return self.values[max(self.values)] if self.values else None

    @property
    def is_open(self) -> bool:
        """True if it runs, or may yet be promoted."""
        return self.status in (RUNNING, WAITING)


@dataclass(frozen=True)
class Start:
    """Try a configuration: a proposal of the sampler's, unless a row is given.

    Attributes:
        source: whose state it begins with, after which epoch; None for none.
    """

    budget: int
    place: Mapping[str, Any]
    reason: str
    source: tuple[int, int] | None = None
    row: ConfigurationText | None = None


@dataclass(frozen=True)
class Continue:
    """Train a trial further, which waits at its budget."""

    mst_key: int
    budget: int
    place: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class End:
    """Give up a trial."""

    mst_key: int
    reason: str


class Method(ABC):
    """Decides what is tried, and which trials go on.

    Attributes:
        full: epochs that no trial is trained beyond.
        looks_back: whether it goes back to states of trials that have gone on since.
    """

    full: int = 1
    looks_back: bool = False

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec

    @abstractmethod
    def total(self, configurations: float) -> float:
        """Epochs of all trials together, about.

        Args:
            configurations: that the space has.
        """

    @abstractmethod
    def trials(self) -> float:
        """Number of trials that it wants to start."""

    @abstractmethod
    def next(self, trials: Mapping[int, Trial]) -> Start | Continue | None:
        """Work for a free place of the schedule; None where nothing can be done until more is known."""

    def beside(
        self, trials: Mapping[int, Trial], fits: Callable[[Continue], bool]
    ) -> Continue | None:
        """Work for a worker that would idle beside the last trials, which ``next`` does not want.

        Args:
            trials: all of them.
            fits: tells what ends before those that run.
        """
        return None

    def pace(self, trial: Trial) -> float:
        """Virtual seconds for each estimated second of a trial; what has more gives way to what has fewer."""
        return 1.0

    @abstractmethod
    def started(self, trial: Trial) -> None:
        """Takes note that a trial of ``next`` has been started."""

    @abstractmethod
    def exhausted(self, trials: Mapping[int, Trial]) -> Iterable[End]:
        """The space has no more configurations: what ``next`` wanted to start has not been started."""

    def adopted(self, trial: Trial) -> None:
        """Somebody else has proposed a trial; its budget is set here: by default, all epochs."""
        trial.budget = self.full

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> Iterable[End]:
        """A trial has come to its budget, or has failed or was stopped before."""
        return ()

    @abstractmethod
    def extend(self, params: Mapping[str, Any]) -> None:
        """The search goes on with more of its parameters."""

    def narrow(self, space: Space) -> None:  # noqa: B027 - a method need not care
        """Takes another space for what is proposed from now on."""
