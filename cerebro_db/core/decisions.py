"""Decisions: who runs a search adds, clones, stops and promotes configurations while the run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cerebro_db.core.events import Held
from cerebro_db.core.state import RunState
from cerebro_db.errors import InvalidArgument

FAILED = -1
"""In place of the epoch of a result: the configuration has ended without one."""

NOBODY = 0
"""In place of a mst_key: a decision about the search as a whole."""

Heard = tuple[tuple[int, int], ...]
"""Results, as mst_key and epoch, that were taken note of since the decision before."""


@dataclass(frozen=True)
class Candidate:
    """A row of a table of configurations, and the epochs that it shall be trained for.

    Attributes:
        detail: what a search knows of it: parameters, bracket, rung.
        reason: why it is tried; that of the decision where there is none.
    """

    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    budget: int
    detail: Mapping[str, Any] = field(default_factory=dict, compare=False)
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class _Made:
    """Fields of all decisions.

    Attributes:
        who: the role that asked for it; empty where the run has decided by itself.
        heard: results on which it is based, beside those of earlier decisions.
        detail: what a search wants to be known of it.
    """

    who: str = ""
    heard: Heard = ()
    detail: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Add(_Made):
    """Configurations join the run, and are planned together."""

    candidates: tuple[Candidate, ...]
    reason: str = ""


@dataclass(frozen=True)
class Clone(_Made):
    """A configuration joins the run with the state that another one had after an epoch.

    Its own epochs begin at 1. What of the state does not fit its parameters begins anew, as with
    ``warm_start``.
    """

    source: int
    epoch: int
    candidate: Candidate
    reason: str = ""


@dataclass(frozen=True)
class Stop(_Made):
    """A configuration is trained no further: its model is that after an epoch that it has done.

    After epoch 0 there is none: it is cancelled.
    """

    mst_key: int
    epoch: int
    reason: str = ""


@dataclass(frozen=True)
class Promote(_Made):
    """A configuration is trained until so many epochs are done."""

    mst_key: int
    budget: int
    reason: str = ""


@dataclass(frozen=True)
class Note(_Made):
    """A decision about the search as a whole.

    Attributes:
        action: ``finish``, ``narrow`` or ``extend``; ``detail`` tells how.
    """

    action: str
    reason: str = ""


Decision = Add | Clone | Stop | Promote | Note


@dataclass(frozen=True)
class Outlook:
    """Size that a search will have, as far as its decider knows.

    Attributes:
        trials: all of them.
        epochs: of all of them together, about.
    """

    trials: int
    epochs: float


@dataclass(frozen=True)
class Asked:
    """Request of another session to a search.

    Attributes:
        request_id: of the row in the catalog; 0 for the clock.
        action: ``cancel``, ``stop``, ``add``, ``clone``, ``narrow``, ``extend`` or ``finish``.
        mst_key: of the configuration that it is about; 0 for none.
        who: a role.
        detail: the rest.
    """

    request_id: int
    action: str
    mst_key: int
    who: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_awaited(self) -> bool:
        """True if somebody waits for an answer; who extends a search drives it."""
        return self.action != "extend"


class Decider(Protocol):
    """Decides which configurations a run has.

    What it decides may depend on the state only, and in that on what is not a matter of speed: scores
    of epochs, budgets, how many decisions were made. Then a run that was resumed, or has other workers,
    decides the same. Configurations go no further than their budget until they are promoted, and the
    state after the last epoch that a configuration has done stays as long as it goes on.
    """

    # Whether it may decide anything at all.
    is_open: bool

    def decide(self, state: RunState) -> Iterable[Decision | Held]:
        """The next decisions; none where the run goes on as it is.

        Each is stored and applied before the next one is asked for.
        """
        ...

    def check(self, state: RunState, request: Asked) -> None:
        """Check that a request of another session can be followed.

        Raises:
            InvalidArgument: why not.
        """
        ...

    def asked(self, state: RunState, request: Asked) -> Iterable[Decision | Held]:
        """Decisions that follow from a request of another session, which was checked."""
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


class Fixed:
    """The run has the configurations that it began with."""

    is_open = False

    def decide(self, state: RunState) -> Sequence[Decision]:
        """Nothing."""
        return ()

    def asked(self, state: RunState, request: Asked) -> Sequence[Decision]:
        """Nothing."""
        return ()

    def gives_up(self, error: Exception) -> bool:
        """False."""
        return False

    def shortfall(self, state: RunState) -> str | None:
        """None: it is no search."""
        return None

    def outlook(self) -> Outlook | None:
        """None."""
        return None

    def check(self, state: RunState, request: Asked) -> None:
        """Refuses everything: only a search changes while it goes on."""
        raise InvalidArgument(
            f"run_id: got a run whose configurations are fixed, asked for {request.action!r}; allowed: "
            "a search",
            hint="cerebro.cerebro_search begins one; cerebro.cerebro_cancel stops a configuration",
        )
