"""Successive halving, Hyperband and BOHB: brackets of rungs, of which each keeps the best.

All brackets are open from the beginning: while a rung waits for its last trials, others of other
brackets are trained. Where a space has no more configurations, a bracket goes on with the best of
those that others have stopped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.configs.brackets import Bracket, brackets, halving
from cerebro_db.configs.search_methods import HALVING
from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.ranking import Values, ranked
from cerebro_db.decide.search.trials import Continue, End, Method, Start, Trial


@dataclass(eq=False)
class _Open:
    """A bracket that goes on.

    Attributes:
        rung: the one that its trials are in.
        missing: trials that are to be started.
        members: trials in the rung, and the values of those that have come to its end.
        waited: of these, those that have not come to its end.
        promoted: rank and key of those that wait to be trained further.
    """

    bracket: Bracket
    missing: int
    rung: int = 0
    members: dict[int, Values | None] = field(default_factory=dict)
    waited: set[int] = field(default_factory=set)
    promoted: deque[tuple[int, int]] = field(default_factory=deque)


class Bracketed(Method):
    """Brackets side by side."""

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self._name = spec.method
        self.full = 0
        self._params: dict[str, Any] = dict(spec.params)
        self._open: list[_Open] = []
        self._last: _Open | None = None
        self._is_exhausted = False
        # Trials that were stopped at the end of a rung: after which epoch, and their values.
        self._stopped: dict[int, tuple[int, Values]] = {}
        self._begin(self._params)

    def _begin(self, params: Mapping[str, Any]) -> None:
        if self._name == HALVING:
            found = [halving(params["num_configs"], params["r"], params["R"], params["eta"])]
        else:
            found = brackets(params["R"], params["eta"], params["skip_last"])
        self._open += [_Open(one, one.rungs[0].configurations) for one in found]
        self.full = max(self.full, *(one.rungs[-1].epochs for one in found))

    def total(self, configurations: float) -> float:
        """Epochs of all trials together."""
        return sum(one.bracket.epochs for one in self._open)

    def trials(self) -> float:
        """Number of trials that it starts."""
        return sum(one.missing for one in self._open)

    def next(self, trials: Mapping[int, Trial]) -> Start | Continue | None:
        """A promotion, else a trial of the first bracket that is not complete."""
        for one in self._open:
            while one.promoted:
                rank, key = one.promoted.popleft()
                if trials[key].is_open:
                    place = {"bracket": one.bracket.s, "rung": one.rung}
                    reason = f"number {rank} of rung {one.rung - 1}"
                    return Continue(key, one.bracket.rungs[one.rung].epochs, place, reason)
        short = next((one for one in self._open if one.missing), None)
        if short is None:
            return None
        if self._is_exhausted:
            if (best := self._best_stopped(short)) is not None:
                return self._goes_on(short, best)
            if short is not self._open[0]:  # those before it may stop more
                return None
        self._last = short
        reason = f"begins in bracket {short.bracket.s}"
        return Start(short.bracket.rungs[0].epochs, _first_rung(short), reason)

    def _best_stopped(self, one: _Open) -> int | None:
        """Of the trials that were stopped before a bracket's first rung, the best one.

        There is none while a bracket before it has its first rung to do: the best of those come then.
        """
        if any(not before.rung for before in self._open[: self._open.index(one)]):
            return None
        epochs = one.bracket.rungs[0].epochs
        found = {key: values for key, (done, values) in self._stopped.items() if done < epochs}
        return next(iter(ranked(found)), None)

    def _goes_on(self, one: _Open, key: int) -> Continue:
        """A trial that was stopped goes on in another bracket."""
        del self._stopped[key]
        self._join(one, key)
        reason = f"goes on in bracket {one.bracket.s}, as the space has no more configurations"
        return Continue(key, one.bracket.rungs[0].epochs, _first_rung(one), reason)

    def started(self, trial: Trial) -> None:
        """It is in the first rung."""
        assert self._last is not None
        self._join(self._last, trial.mst_key)

    def _join(self, one: _Open, key: int) -> None:
        one.missing -= 1
        one.members[key] = None
        one.waited.add(key)

    def exhausted(self, trials: Mapping[int, Trial]) -> list[End]:
        """Brackets that nobody is left for are as large as they are."""
        self._is_exhausted = True
        one = self._open[0]
        if not one.missing or self._best_stopped(one) is not None:
            return []
        one.missing = 0
        return [] if one.waited else self._close(one, trials)

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> list[End]:
        """Promotes the best of a rung, and ends the others, after the last of its trials."""
        one = next((one for one in self._open if trial.mst_key in one.waited), None)
        if one is None:
            return []
        one.waited.remove(trial.mst_key)
        one.members[trial.mst_key] = trial.latest if trial.is_open else None
        if one.waited or one.missing:
            return []
        return self._close(one, trials)

    def _close(self, one: _Open, trials: Mapping[int, Trial]) -> list[End]:
        """A rung is complete."""
        values = {
            key: value
            for key, value in one.members.items()
            if value is not None and trials[key].is_open
        }
        order = ranked(values)
        is_last = one.rung + 1 >= len(one.bracket.rungs)
        if is_last:
            self._open.remove(one)
            return []
        # As many as the bracket has, or the same part of those that there are.
        rungs = one.bracket.rungs
        count = (
            len(one.members) * rungs[one.rung + 1].configurations // rungs[one.rung].configurations
        )
        best = order[: max(count, 1)]
        ends = [
            End(key, f"number {rank} of {len(one.members)} in rung {one.rung}")
            for rank, key in enumerate(order, 1)
            if rank > len(best)
        ]
        epochs = rungs[one.rung].epochs
        self._stopped |= {end.mst_key: (epochs, values[end.mst_key]) for end in ends}
        one.rung += 1
        one.members = dict.fromkeys(best)
        one.waited, one.promoted = set(best), deque(enumerate(best, 1))
        if not best:
            self._open.remove(one)
        return ends

    def extend(self, params: Mapping[str, Any]) -> None:
        """The brackets of the new parameters, beside those that there were."""
        if not params:
            return
        self._params |= params
        self._is_exhausted = False
        self._begin(self._params)


def _first_rung(one: _Open) -> dict[str, int]:
    return {"bracket": one.bracket.s, "rung": 0}
