"""A decider that repeats the stored decisions of a search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from cerebro_db.core.decisions import FAILED, Decision, Request
from cerebro_db.core.events import Allowance
from cerebro_db.core.ports import NoDecider, Outlook
from cerebro_db.core.state import RunState
from cerebro_db.errors import InvalidArgument


class Replay(NoDecider):
    """Makes stored decisions, each as soon as the results are there that it was based on.

    Args:
        stored: decisions in their order, from the first.
    """

    is_open = True

    def __init__(self, stored: Sequence[Decision]) -> None:
        self._stored = stored
        # Of each configuration, the indexes of the decisions that go back to its states, and after which epochs.
        self._origins: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, one in enumerate(stored):
            for key, epoch in one.origins:
                self._origins[key].append((index, epoch))
        self._seen = -1

    def decide(self, state: RunState) -> Iterator[Decision | Allowance]:
        """The next decisions whose results are there."""
        if self._seen != state.decisions:
            yield from self._limit(state, list(state.tracks))
        while state.decisions < len(self._stored):
            one = self._stored[state.decisions]
            if not self._is_due(state, one):
                return
            yield one
            changed = {change.mst_key for change in one.changes}
            yield from self._limit(state, sorted(changed | {key for key, _ in one.origins}))

    def outlook(self) -> Outlook:
        """Size of the search that is repeated."""
        budgets = {change.mst_key: change.epochs for one in self._stored for change in one.changes}
        return Outlook(len(budgets), sum(budgets.values()))

    def check(self, state: RunState, request: Request) -> None:
        """Refuses everything."""
        raise InvalidArgument(
            f"run_id: got a run that repeats the decisions of another one, asked for {request.action!r}; "
            "allowed: a search"
        )

    def _is_due(self, state: RunState, one: Decision) -> bool:
        """True if its results are there, and the states that it goes back to."""
        for key, epoch in one.results:
            track = state.tracks[key]
            if track.ended:
                continue
            if epoch == FAILED:  # by somebody, then: it is as far as it comes
                if track.done < track.budget * state.spec.hops_an_epoch:
                    return False
            elif epoch not in track.scored:
                return False
        hops = state.spec.hops_an_epoch
        return all(
            state.tracks[key].ended or not epoch or epoch * hops in state.tracks[key].states
            for key, epoch in one.origins
        )

    def _limit(self, state: RunState, keys: Iterable[int]) -> Iterator[Allowance]:
        """Limit configurations to the epochs that later decisions go back to."""
        self._seen = state.decisions
        for key in keys:
            later = (epoch for index, epoch in self._origins[key] if index >= self._seen)
            last = min(later, default=None)
            yield Allowance(key, last, frozenset() if last is None else frozenset({last}))
