"""A search as values: what it explores, by which method, what it looks for, when it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import field

from cerebro_db.core.decisions import Decision
from cerebro_db.core.spec import VALIDATION, Space
from cerebro_db.wire import Wire, decode_stored, encode

UNLIMITED = 2**63 - 1
AUTO, MAXIMISE, MINIMISE = "auto", "max", "min"


class Aim(Wire, frozen=True):
    """A part of an objective as a caller names it.

    Attributes:
        monitor: as callbacks name it: ``val_accuracy``, ``loss``.
        mode: ``max``, ``min`` or ``auto``: as is known of the metric.
    """

    monitor: str
    mode: str = AUTO


class Objective(Wire, frozen=True):
    """Goal of a search.

    Attributes:
        metric: ``loss``, or the label of a metric.
        dataset: ``training`` or ``validation``.
        maximise: whether more is better.
    """

    metric: str
    dataset: str
    maximise: bool

    @property
    def monitor(self) -> str:
        """The name of the objective in the logs of Keras."""
        return ("val_" if self.dataset == VALIDATION else "") + self.metric


class EarlyStopping(Wire, frozen=True):
    """Conditions that stop a trial before its epochs are over; a loss that is no number always does it.

    Attributes:
        patience: epochs without improvement after which a trial stops; 0 for never.
        least_improvement: by which a value must be better to count.
        median_after: a trial stops whose best value is worse than the median, after the same epoch,
            of at least so many others that have come to their end; 0 for never.
        first_epoch: from which on trials are stopped.
        target: the search ends with the first trial whose objective is as good; None for none.
    """

    patience: int = 0
    least_improvement: float = 0.0
    median_after: int = 0
    first_epoch: int = 1
    target: float | None = None

    @property
    def watches(self) -> bool:
        """True if each epoch is looked at."""
        return bool(self.patience or self.median_after) or self.has_target

    @property
    def has_target(self) -> bool:
        """True if the search ends when a value is reached."""
        return self.target is not None


class Budget(Wire, frozen=True):
    """After which a search begins nothing any more.

    Attributes:
        max_seconds: on the clock of the driver; what goes on then is stopped where it is;
            None for any time.
        max_epochs: of all trials together.
        max_configurations: that are tried.
    """

    max_seconds: float | None = None
    max_epochs: int = UNLIMITED
    max_configurations: int = UNLIMITED


class Earlier(Wire, frozen=True):
    """A trial of an earlier run, which a method learns from.

    Attributes:
        parameters: by the names of the dimensions.
        epochs: after which it was measured.
        values: of the objectives.
    """

    parameters: Mapping[str, Any]
    epochs: int
    values: tuple[float, ...]


class SearchSpec(Wire, frozen=True, omit_defaults=False):
    """Spec of a search, which is stored with its run.

    Attributes:
        method: one of ``decide.search.methods.METHODS``.
        params: all of its parameters.
        objectives: one, or several for the Pareto set.
        seed: of what is drawn.
        concurrency: trials that are trained at the same time, in the virtual schedule; at least 1.
        deterministic: whether results are taken in the order of the virtual schedule; else as they come.
        goal: by which the run's configurations are ranked elsewhere.
        earlier: trials to learn from.
        measured: data sets on which trials are scored; those that decide, if nobody wants more.
        shared_epochs: of all trials that share a compiled program, about; whether it is worth while
            to compile for them depends on it.
        given: what the caller has given, as texts, for the output tables.
        replays: decisions that are repeated, in place of those of the method.
    """

    method: str
    params: Mapping[str, Any]
    space: Space
    objectives: tuple[Objective, ...]
    early_stopping: EarlyStopping = EarlyStopping()
    budget: Budget = Budget()
    seed: int = 0
    concurrency: int = UNLIMITED
    deterministic: bool = True
    goal: str = "loss"
    earlier: tuple[Earlier, ...] = ()
    measured: tuple[str, ...] = ()
    shared_epochs: int = 1
    given: Mapping[str, str] = field(default_factory=dict)
    replays: tuple[Decision, ...] = ()

    def to_text(self) -> str:
        """JSON."""
        return encode(self)

    @classmethod
    def from_text(cls, text: str | None) -> SearchSpec:
        """Reads the result of ``to_text``.

        Raises:
            InvalidData: it is something else, with the path of what is wrong.
        """
        hint = "the row of the run was changed by hand; begin a new search"
        return decode_stored(cls, text, "search", hint)
