"""Successive halving, Hyperband and BOHB: brackets of rungs, of which each keeps the best.

All brackets are open from the beginning: while a rung waits for its last trials, others of other
brackets are trained, which take longer in virtual time: so the first bracket, which tries the most,
comes to its end early. Where a space has no more configurations, a bracket goes on with the best of
those that others have no more use for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cerebro_db.configs.arguments import Argument, whole
from cerebro_db.configs.grids.brackets import (
    Bracket,
    brackets,
    check_brackets,
    halving,
    largest_bracket,
)
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide.search.methods.full import MOST_EPOCHS, NUM_CONFIGS, NUM_STARTUP, tpe_sampler
from cerebro_db.decide.search.ranking import Values, ranked
from cerebro_db.decide.search.sampling import Learning, Sampler
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.trials import (
    Affords,
    Continue,
    End,
    Method,
    Start,
    Trial,
    affords_all,
)
from cerebro_db.errors import InvalidArgument


@dataclass(eq=False)
class _Open:
    """A bracket that goes on.

    Attributes:
        pace: virtual seconds that its trials take for one: what comes later in the paper gives way.
        rung: the one that its trials are in.
        missing: trials that are to be started.
        members: trials in the rung, and the values of those that have come to its end.
        waited: of these, those that have not come to its end.
        promoted: rank and key of those that wait to be trained further.
    """

    bracket: Bracket
    missing: int
    pace: float = 1.0
    rung: int = 0
    members: dict[int, Values | None] = field(default_factory=dict)
    waited: set[int] = field(default_factory=set)
    promoted: deque[tuple[int, int]] = field(default_factory=deque)


R = whole("R", 6, 1, high=MOST_EPOCHS)
ETA = whole("eta", 3, 2, high=1000)
RUNGS = (NUM_CONFIGS, R, whole("r", 1, 1, high=MOST_EPOCHS), ETA)
_BRACKETS = (R, ETA, whole("skip_last", 0))


def check_rungs(found: Mapping[str, Any], what: str) -> None:
    """Refuse a first rung beyond the last one."""
    if found["r"] > found["R"]:
        raise InvalidArgument(f"{what}: got r={found['r']}; allowed: 1 to R, which is {found['R']}")


class Bracketed(Method):
    """Brackets side by side."""

    begins_anew: ClassVar = True

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self.full = 0
        self._params: dict[str, Any] = dict(spec.params)
        self._open: list[_Open] = []
        self._last: _Open | None = None
        self._narrow(spec.space)
        # Trials that their bracket has no more use for, and why; they wait while others may have.
        self._spare: dict[int, str] = {}
        # Brackets, and how many of their trials there was no configuration for.
        self._missed: list[_Open] = []
        self._begin(self._params)

    def _begin(self, params: Mapping[str, Any]) -> None:
        found, eta = self.brackets(params), params["eta"]
        self._open += [
            _Open(one, one.rungs[0].configurations, float(eta**number))
            for number, one in enumerate(found)
        ]
        self._wanted = sum(one.bracket.rungs[0].configurations for one in self._open)
        self.full = max(self.full, *(one.rungs[-1].epochs for one in found))

    @classmethod
    @abstractmethod
    def brackets(cls, params: Mapping[str, Any]) -> list[Bracket]:
        """The brackets of its parameters."""

    def pace(self, trial: Trial) -> float:
        """Pace of the bracket: the first one has its model early, and others fill what it leaves free."""
        one = self._bracket_of(trial)
        return 1.0 if one is None else one.pace

    def _bracket_of(self, trial: Trial) -> _Open | None:
        """The bracket that waits for a trial."""
        return next((one for one in self._open if trial.mst_key in one.waited), None)

    def total(self, configurations: float) -> float:
        """Epochs of all trials together."""
        return sum(one.bracket.epochs for one in self._open)

    def trials(self) -> float:
        """Number of trials that it starts."""
        return sum(one.missing for one in self._open)

    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        """A promotion, else a trial of the first bracket that is not complete."""
        for one in self._open:
            if (found := self._promotion(one, trials, affords)) is not None:
                return found
        short = next((one for one in self._open if one.missing), None)
        if short is None:
            return None
        epochs = short.bracket.rungs[0].epochs
        if self._is_exhausted:
            if (best := self._best_spare(short, trials)) is not None:
                wanted = Continue(best, epochs, {}, "")
                return self._goes_on(short, best) if affords(wanted) else None
            if short is not self._open[0]:  # those before it may have no more use for others
                return None
        self._last = short
        start = Start(epochs, _first_rung(short), f"begins in bracket {short.bracket.s}")
        return start if affords(start) else None

    def _promotion(
        self, one: _Open, trials: Mapping[int, Trial], affords: Affords
    ) -> Continue | None:
        """The first promotion of a bracket that the budget is enough for; it waits no more."""
        epochs = one.bracket.rungs[one.rung].epochs
        for rank, key in list(one.promoted):
            if not trials[key].is_open or trials[key].budget >= epochs:
                one.promoted.remove((rank, key))
                continue
            place = {"bracket": one.bracket.s, "rung": one.rung}
            found = Continue(key, epochs, place, f"number {rank} of rung {one.rung - 1}")
            if affords(found):
                one.promoted.remove((rank, key))
                return found
        return None

    def _best_spare(self, one: _Open, trials: Mapping[int, Trial]) -> int | None:
        """The waiting trial with the best last value, of those that no bracket has a use for.

        It has fewer epochs than the bracket begins with: with as many it was compared with others
        already. There is none while a bracket before has its first rung to do: the best of those come
        then.
        """
        if any(not before.rung for before in self._open[: self._open.index(one)]):
            return None
        epochs = one.bracket.rungs[0].epochs
        used = {key for each in self._open for key in each.members}
        found = {
            key: trial.latest
            for key, trial in trials.items()
            if trial.status == WAITING and trial.done < epochs and trial.latest is not None
            and key not in used and not trial.is_adopted and self._is_within(trial)
        }  # fmt: skip
        return next(iter(ranked(found)), None)

    def _is_within(self, trial: Trial) -> bool:
        """True if a trial is in the space as it was narrowed."""
        return not self._is_narrowed or self._explorer.place(trial.row) is not None

    def _goes_on(self, one: _Open, key: int) -> Continue:
        """A trial goes on in another bracket."""
        self._spare.pop(key, None)
        self._join(one, key)
        reason = f"goes on in bracket {one.bracket.s}, as the space has no more configurations"
        return Continue(key, one.bracket.rungs[0].epochs, _first_rung(one), reason)

    def started(self, trial: Trial) -> None:
        """Put a trial into the first rung."""
        assert self._last is not None
        self._join(self._last, trial.mst_key)

    def _join(self, one: _Open, key: int) -> None:
        one.missing -= 1
        one.members[key] = None
        one.waited.add(key)

    def exhausted(self, trials: Mapping[int, Trial]) -> list[End]:
        """Close brackets without trials, or with fewer than they want."""
        self._is_exhausted = True
        one = self._open[0]
        if not one.missing or self._best_spare(one, trials) is not None:
            return []
        self._missed.append(_Open(one.bracket, one.missing, one.pace))
        one.missing = 0
        ends = [] if one.waited else self._close(one, trials)
        return ends + self._useless(trials)

    def reopen(self) -> None:
        """Open brackets for the trials that there was no configuration for."""
        self._open += self._missed
        self._missed, self._is_exhausted = [], False

    def may_be_last(self, trial: Trial) -> bool:
        """True for trials of the method itself: others have epochs of their own."""
        return super().may_be_last(trial) and not trial.is_adopted

    def last_place(self, trial: Trial) -> Mapping[str, Any]:
        """Bracket of a trial, and the rung after the last one of it."""
        rung = trial.place.get("rung", 0) + 1
        return {"bracket": trial.place.get("bracket", 0), "rung": rung}

    def goes_to_end(self, trial: Trial) -> None:
        """Take note that a trial goes on to the last epochs, and to no other bracket."""
        self._spare.pop(trial.mst_key, None)

    def _useless(self, trials: Mapping[int, Trial]) -> list[End]:
        """Ends of trials that no bracket may have a use for any more."""
        if self._is_short:
            return []
        spare, self._spare = self._spare, {}
        return [End(key, why) for key, why in spare.items() if trials[key].status == WAITING]

    @property
    def _is_short(self) -> bool:
        """True if a bracket lacks trials, and there may be no more configurations for it."""
        is_small = self._is_exhausted or self._explorer.size < self._wanted
        return is_small and any(one.missing for one in self._open)

    def narrow(self, space: Space) -> None:
        """Take another space, whose configurations may be others; trials outside go on in no other bracket."""
        self._narrow(space)
        self._is_narrowed = True

    def _narrow(self, space: Space) -> None:
        self._explorer = Explorer(space)
        self._is_exhausted = self._is_narrowed = False

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> list[End]:
        """Promotes the best of a rung, and ends the others, after the last of its trials."""
        ends: list[End] = []
        one = self._bracket_of(trial)
        if one is not None:
            one.waited.remove(trial.mst_key)
            one.members[trial.mst_key] = trial.latest if trial.is_open else None
            if not one.waited and not one.missing:
                ends = self._close(one, trials)
        return ends + self._useless(trials)

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
        if self._is_short:
            self._spare |= {end.mst_key: end.reason for end in ends}
            ends = []
        one.rung += 1
        ahead = {key for key in best if trials[key].done >= rungs[one.rung].epochs}
        one.members = {key: trials[key].latest if key in ahead else None for key in best}
        one.waited, one.promoted = set(best) - ahead, deque(enumerate(best, 1))
        if not best:
            self._open.remove(one)
        elif not one.waited:
            ends += self._close(one, trials)
        return ends

    def extend(self, params: Mapping[str, Any]) -> None:
        """The brackets of the new parameters, beside those that there were."""
        if not params:
            return
        self._params |= params
        self._begin(self._params)


def _first_rung(one: _Open) -> dict[str, int]:
    return {"bracket": one.bracket.s, "rung": 0}


class Halving(Bracketed):
    """Successive halving: one bracket."""

    name: ClassVar = "successive_halving"
    parameters: ClassVar[tuple[Argument, ...]] = RUNGS

    @classmethod
    def check_parameters(cls, found: Mapping[str, Any], what: str) -> None:
        """Refuse a first rung beyond the last one."""
        check_rungs(found, what)

    @classmethod
    def brackets(cls, params: Mapping[str, Any]) -> list[Bracket]:
        """The bracket of so many configurations."""
        return [halving(params["num_configs"], params["r"], params["R"], params["eta"])]

    @property
    def end(self) -> int:
        """Epochs that the best trial is to come to: R also where the rungs of so few trials end before."""
        return max(self.full, int(self._params["R"]))


class Hyperband(Bracketed):
    """Brackets from many configurations with few epochs to few with many."""

    name: ClassVar = "hyperband"
    parameters: ClassVar[tuple[Argument, ...]] = _BRACKETS
    is_staged: ClassVar = True

    @classmethod
    def check_parameters(cls, found: Mapping[str, Any], what: str) -> None:
        """Refuse brackets without rungs, or with too many configurations."""
        rungs = largest_bracket(found["R"], found["eta"]) + 1
        if found["skip_last"] >= rungs:
            raise InvalidArgument(
                f"{what}: got skip_last={found['skip_last']}; allowed: 0 to {rungs - 1}, as with "
                f"R={found['R']} and eta={found['eta']} no bracket has more than {rungs} rungs"
            )
        check_brackets(found["R"], found["eta"], found["skip_last"], what)

    @classmethod
    def check_more(cls, params: Mapping[str, Any], more: Mapping[str, Any], what: str) -> None:
        """Refuse brackets with too many configurations."""
        found = {**params, **more}
        check_brackets(found["R"], found["eta"], found["skip_last"], what)

    @classmethod
    def brackets(cls, params: Mapping[str, Any]) -> list[Bracket]:
        """The brackets of the paper."""
        return brackets(params["R"], params["eta"], params["skip_last"])

    @classmethod
    def last_epochs(cls, params: Mapping[str, Any]) -> int:
        """Epochs of the last rungs."""
        return max(one.rungs[-1].epochs for one in cls.brackets(params))


class Bohb(Hyperband):
    """Hyperband whose configurations are proposed by TPE, from those that were trained longest."""

    name: ClassVar = "bohb"
    parameters: ClassVar[tuple[Argument, ...]] = (*_BRACKETS, NUM_STARTUP)
    learns: ClassVar = True

    @classmethod
    def sampler(cls, spec: SearchSpec, explorer: Explorer) -> Sampler:
        """A sampler of Optuna."""
        return Learning(spec, explorer, tpe_sampler)
