"""Trials of a search as its method sees them, and what a method may want."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from msgspec import structs

from cerebro_db.configs.arguments import Argument, validated_arguments, with_defaults
from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.core.statuses import STOPPED, WAITING
from cerebro_db.decide.search.ranking import Values
from cerebro_db.decide.search.sampling import Chance, Sampler
from cerebro_db.decide.search.space import Explorer, Parameters

_MORE = ("num_configs", "num_iterations", "R", "population")
RUNNING = "running"


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
        goal: the largest budget that it has had; the budget itself is less where it was stopped before.
        is_outranked: whether the method has stopped it, for others were better.
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
    goal: int = 0
    is_outranked: bool = False

    @property
    def latest(self) -> Values | None:
        """The values after the last measured epoch."""
        return self.values[max(self.values)] if self.values else None

    @property
    def is_open(self) -> bool:
        """True if it runs, or may yet be promoted."""
        return self.status in (RUNNING, WAITING)


class Start(NamedTuple):
    """Try a configuration: a proposal of the sampler's, unless a row is given.

    Attributes:
        source: whose state it begins with, after which epoch; None for none.
    """

    budget: int
    place: Mapping[str, Any]
    reason: str
    source: tuple[int, int] | None = None
    row: ConfigurationText | None = None


class Continue(NamedTuple):
    """Train a trial further, which waits at its budget."""

    mst_key: int
    budget: int
    place: Mapping[str, Any]
    reason: str


class End(NamedTuple):
    """Give up a trial."""

    mst_key: int
    reason: str


Affords = Callable[[Start | Continue], bool]
"""Tells whether the budget of a search is enough for a wish of its method."""


def affords_all(wanted: Start | Continue) -> bool:
    """The budget is enough."""
    return True


class Method(ABC):
    """Method of a search, which decides what is tried, and which trials go on.

    Attributes:
        name: in ``automl_method``, in lower case.
        parameters: in ``automl_params``.
        is_staged: whether what it begins with depends on results, so that not all trials begin at once.
        draws: whether it draws from ranges, and not from lists of values alone.
        learns: whether its proposals depend on results.
        begins_anew: whether more of its parameters are another search beside that which there was.
        adopts: whether trials that somebody else has proposed take part like any other.
        waits: whether all its trials are proposed by others, for which the search waits until it is ended.
        full: epochs that no trial is trained beyond.
        looks_back: whether it goes back to states of trials that have gone on since.
        most_trials: that the search may have.
        left: trials that it wants to start.
        missed: trials that it wanted to start, and for which there was no configuration.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[Argument, ...]]
    is_staged: ClassVar[bool] = False
    draws: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    begins_anew: ClassVar[bool] = False
    adopts: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    full: int = 1
    looks_back: bool = False
    most_trials: int = UNLIMITED
    left: int = 0
    missed: int = 0

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec

    # -- before a search begins -------------------------------------------------
    @classmethod
    def more(cls) -> tuple[Argument, ...]:
        """Parameters of which a search that has ended may have more: one more trial or member is enough."""
        return tuple(structs.replace(one, low=1) for one in cls.parameters if one.name in _MORE)

    @classmethod
    def validated(cls, given: Mapping[str, object]) -> dict[str, Any]:
        """All its parameters: those given, checked, and the defaults of the others.

        Raises:
            InvalidArgument: one is unknown or out of bounds, or they contradict each other.
        """
        what = f"automl_params of {cls.name}"
        found = with_defaults(cls.parameters, validated_arguments(cls.parameters, given, {}, what))
        cls.check_parameters(found, what)
        return found

    @classmethod
    def check_parameters(cls, found: Mapping[str, Any], what: str) -> None:
        """Refuse parameters that contradict each other.

        Args:
            found: all of them.
            what: whose they are, for messages.
        """
        return

    @classmethod
    def check_more(cls, params: Mapping[str, Any], more: Mapping[str, Any], what: str) -> None:
        """Refuse an extension that the method cannot have.

        Args:
            params: that the search began with.
            more: those of which it shall have more.
            what: whose they are, for messages.
        """
        return

    @classmethod
    def most_epochs(cls, params: Mapping[str, Any]) -> int:
        """Epochs that no trial is trained beyond."""
        return int(params["R"] if "R" in params else params["num_iterations"])

    @classmethod
    def last_epochs(cls, params: Mapping[str, Any]) -> int:
        """Epochs that the best trial comes to."""
        return cls.most_epochs(params)

    @classmethod
    def sampler(cls, spec: SearchSpec, explorer: Explorer) -> Sampler:
        """Proposals of configurations; by default each is drawn by numbers of its own."""
        return Chance(explorer, spec.seed)

    @classmethod
    def check_space(cls, spec: SearchSpec, explorer: Explorer) -> None:
        """Refuse a space that it cannot explore.

        Raises:
            InvalidArgument: what the method wants.
            MissingPackage: a package that it needs is not there.
        """
        return

    # -- decisions -------------------------------------------------------------------------------
    @property
    def end(self) -> int:
        """Epochs that the best trial is to come to."""
        return self.full

    @abstractmethod
    def total(self, configurations: float) -> float:
        """Epochs of all trials together, about.

        Args:
            configurations: that the space has.
        """

    def trials(self) -> float:
        """Number of trials that it wants to start."""
        return self.left

    @abstractmethod
    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        """Work for a free place of the schedule; None where nothing can be done until more is known.

        Args:
            trials: all of them.
            affords: tells what the budget is enough for; what it is not enough for waits.
        """

    def beside(
        self, trials: Mapping[int, Trial], fits: Callable[[Continue], bool]
    ) -> Continue | None:
        """Work for a worker that would idle beside the last trials, which ``next`` does not want.

        Args:
            trials: all of them.
            fits: tells what ends before those that run.
        """
        return None

    def last_wish(self, trial: Trial) -> Continue:
        """The way to the last epochs for the best trial, where nothing else is left to do.

        It is called for trials that may go on, until the budget is enough for one of them.
        """
        budget = self.end - trial.offset
        reason = f"the best so far goes on to epoch {budget}, which no trial has reached"
        return Continue(trial.mst_key, budget, dict(self.last_place(trial)), reason)

    def last_place(self, trial: Trial) -> Mapping[str, Any]:
        """Bracket and rung of a trial that goes on to the last epochs."""
        return {}

    def goes_to_end(self, trial: Trial) -> None:  # noqa: B027 - a method need not care
        """Takes note that a trial goes on to the last epochs."""

    def may_be_last(self, trial: Trial) -> bool:
        """True if a trial is one of those of which the best goes on to the last epochs."""
        is_open = trial.status == WAITING or (trial.status == STOPPED and trial.is_outranked)
        return is_open and trial.latest is not None and trial.offset + trial.done < self.end

    def pace(self, trial: Trial) -> float:
        """Virtual seconds for each estimated second of a trial; what has more gives way to what has fewer."""
        return 1.0

    def started(self, trial: Trial) -> None:
        """Take note that a trial of ``next`` was started."""
        self.left -= 1

    def exhausted(self, trials: Mapping[int, Trial]) -> Iterable[End]:
        """Take note that there are no more configurations: what ``next`` wanted to start was not started.

        The space has none, or the budget allows none.
        """
        self.missed, self.left = self.missed + self.left, 0
        return ()

    def reopen(self) -> None:
        """Want the trials that were missed, as the budget allows more configurations."""
        self.left, self.missed = self.left + self.missed, 0

    def adopted(self, trial: Trial) -> None:
        """Set the budget of a trial that somebody else has proposed: by default, all epochs."""
        trial.budget = self.full

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> Iterable[End]:
        """A trial has come to its budget, or has failed or was stopped before."""
        return ()

    @abstractmethod
    def extend(self, params: Mapping[str, Any]) -> None:
        """The search goes on with more of its parameters."""

    def narrow(self, space: Space) -> None:  # noqa: B027 - a method need not care
        """Takes another space for what is proposed from now on."""
