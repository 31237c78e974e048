"""Decisions: who runs a search adds, clones, stops and promotes configurations while the run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cerebro_db.core.state import RunState


@dataclass(frozen=True)
class Candidate:
    """A row of a table of configurations, and the epochs that it shall be trained for."""

    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    budget: int


@dataclass(frozen=True)
class Add:
    """Configurations join the run, and are planned together."""

    candidates: tuple[Candidate, ...]
    reason: str = ""


@dataclass(frozen=True)
class Clone:
    """A configuration joins the run with the state that another one had after an epoch.

    Its own epochs begin at 1. What of the state does not fit its parameters begins anew, as with
    ``warm_start``.
    """

    source: int
    epoch: int
    candidate: Candidate
    reason: str = ""


@dataclass(frozen=True)
class Stop:
    """A configuration is trained no further: its model is that after an epoch that it has done."""

    mst_key: int
    epoch: int
    reason: str = ""


@dataclass(frozen=True)
class Promote:
    """A configuration is trained until so many epochs are done."""

    mst_key: int
    budget: int
    reason: str = ""


Decision = Add | Clone | Stop | Promote


class Decider(Protocol):
    """Decides which configurations a run has.

    What it decides may depend on the state only, and in that on what is not a matter of speed: scores
    of epochs, budgets, how many decisions were made. Then a run that was resumed, or has other workers,
    decides the same. Configurations go no further than their budget until they are promoted, and the
    state after the last epoch that a configuration has done stays as long as it goes on.
    """

    # Whether it may decide anything at all.
    is_open: bool

    def decide(self, state: RunState) -> Sequence[Decision]:
        """The next decisions; none where the run goes on as it is."""
        ...


class Fixed:
    """The run has the configurations that it began with."""

    is_open = False

    def decide(self, state: RunState) -> Sequence[Decision]:
        """Nothing."""
        return ()
