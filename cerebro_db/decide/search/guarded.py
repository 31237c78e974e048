"""A decider that cannot go on ends its search: nothing more is begun, and the tables are made of what there is.

A decider decides the same from the same results. One that raises would raise at each resume, and nobody would
ever get the models of its run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cerebro_db.core.decisions import FINISH, Decision, Ending, Request, note, stop
from cerebro_db.core.events import Allowance
from cerebro_db.core.ports import Decider, Outlook
from cerebro_db.core.state import RunState, Track
from cerebro_db.errors import (
    CerebroError,
    ConfigurationFailed,
    InvalidArchitecture,
    InvalidArgument,
    NotSupported,
)

# Errors of ours that the same results lead to each time; all others are of the server, or of who has cancelled.
_IMPOSSIBLE = (InvalidArgument, InvalidArchitecture, ConfigurationFailed, NotSupported)
# Errors of code. Those of the machine, as of its memory or its disk, may not come another time.
_DEFECTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class Guarded:
    """Decides as another decider does, until that raises; then it ends the search.

    Args:
        decider: that decides.
        fault: why that has failed before; empty where it has not.
        notify: takes the reason and the error with which it fails here.
    """

    is_open = True

    def __init__(
        self,
        decider: Decider,
        fault: str = "",
        notify: Callable[[str, Exception], None] = lambda reason, error: None,
    ) -> None:
        self._decider, self._fault, self._notify = decider, fault, notify
        self._is_recorded = bool(fault)

    def decide(self, state: RunState) -> Iterator[Decision | Allowance]:
        """The decisions of the other one; those that end the search where it has failed."""
        if not self._fault:
            try:
                yield from self._decider.decide(state)
            except Exception as error:
                if not self.gives_up(error):
                    raise
        if self._fault:
            yield from self._end(state)

    def check(self, state: RunState, request: Request) -> None:
        """Check that the other one can follow a request.

        Raises:
            InvalidArgument: why not.
        """
        self._refuse_after_fault()
        try:
            self._decider.check(state, request)
        except CerebroError:
            raise
        except Exception as error:
            if not _is_defect(error):
                raise
            raise InvalidArgument(
                f"{request.action}: got a request that the search cannot follow: {_shown(error)}"
            ) from error

    def follow(self, state: RunState, request: Request) -> Iterator[Decision | Allowance]:
        """Decisions that follow from a request.

        Raises:
            InvalidArgument: the other decider has failed at it; the search ends with what is decided next.
        """
        self._refuse_after_fault()
        has_decided = False
        try:
            for one in self._decider.follow(state, request):
                yield one
                has_decided = has_decided or not isinstance(one, Allowance)
        except Exception as error:
            if not self.gives_up(error):
                raise
            if not has_decided:
                self._refuse_after_fault()

    def gives_up(self, error: Exception) -> bool:
        """True if the search ends for an error of its decider, or of a decision that cannot be."""
        if self._fault or not _is_defect(error):
            return False
        self._fault = f"its method has failed: {_shown(error)}"
        self._notify(self._fault, error)
        return True

    @property
    def waits(self) -> bool:
        """True while the search waits for configurations of others; one that has failed does not."""
        return not self._fault and self._decider.waits

    def shortfall(self, state: RunState) -> str | None:
        """Reason that no trial has come to the last epochs; None where one has."""
        found = self._decider.shortfall(state)
        return found and f"{found.partition(': ')[0]}: {self._fault}" if self._fault else found

    def outlook(self) -> Outlook | None:
        """Size that the search will have."""
        return None if self._fault else self._decider.outlook()

    def _refuse_after_fault(self) -> None:
        if self._fault:
            raise InvalidArgument(
                f"run_id: got a search that has ended, as {self._fault}; allowed: one that goes on",
                hint="warm_start_run of cerebro.cerebro_search has a new search learn from its trials",
            )

    def _end(self, state: RunState) -> Iterator[Decision | Allowance]:
        """Begin nothing any more; whatever is not at its budget is stopped after the last epoch that is done."""
        reason, running = self._fault, [one for one in state.alive if _is_short(state, one)]
        if not self._is_recorded:
            self._is_recorded = True
            yield note(Ending(reason, fault=True), reason)
        for track in running:
            hops = state.spec.hops_an_epoch
            whole = [one // hops for one in track.states if one > 0 and one % hops == 0]
            yield stop(track.configuration.mst_key, max(whole, default=0), reason)


def fault_of(stored: Sequence[Decision]) -> str:
    """Reason that an earlier driver had for ending a search whose decider had failed; empty for none."""
    for one in stored:
        if one.action == FINISH and one.detail.get("fault") is True:
            return one.reason
    return ""


def _is_short(state: RunState, track: Track) -> bool:
    return track.done < track.budget * state.spec.hops_an_epoch


def _is_defect(error: Exception) -> bool:
    """True for an error that the same results lead to each time."""
    is_of_optuna = type(error).__module__.partition(".")[0] == "optuna"
    return is_of_optuna or isinstance(error, _IMPOSSIBLE + _DEFECTS)


def _shown(error: Exception) -> str:
    text = error.message if isinstance(error, CerebroError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:500]
