"""Asynchronous successive halving: Li et al., A System for Massively Parallel Hyperparameter Tuning,
MLSys 2020, algorithm 2. Nobody waits for a rung to be complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from cerebro_db.configs.arguments import Argument
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide.search.methods.bracketed import RUNGS, check_rungs
from cerebro_db.decide.search.ranking import Ranking, Values
from cerebro_db.decide.search.trials import (
    Affords,
    Continue,
    End,
    Method,
    Start,
    Trial,
    affords_all,
)


class Asha(Method):
    """Rungs without barriers: the best of those that have come to a rung so far are promoted."""

    name: ClassVar = "asha"
    parameters: ClassVar[tuple[Argument, ...]] = RUNGS
    is_staged: ClassVar = True
    adopts: ClassVar = True

    @classmethod
    def check_parameters(cls, found: Mapping[str, Any], what: str) -> None:
        """Refuse a first rung beyond the last one."""
        check_rungs(found, what)

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self._eta: int = spec.params["eta"]
        self._least: int = spec.params["r"]
        self.left = spec.params["num_configs"]
        self.full = spec.params["R"]
        self._epochs = self._rungs()
        self._known = [Ranking() for _ in self._epochs]
        self._promoted: list[set[int]] = [set() for _ in self._epochs]
        self._waiting: list[list[int]] = [[] for _ in self._epochs]
        # Of each rung, those that came beside others: they may be among the best, and are not counted.
        self._beside: list[set[int]] = [set() for _ in self._epochs]
        # Epochs and values of those that somebody has added, maybe with more epochs than their rung.
        self._ahead: dict[int, tuple[int, Values]] = {}

    def _rungs(self) -> list[int]:
        found = [self._least]
        while found[-1] < self.full:
            found.append(min(found[-1] * self._eta, self.full))
        return found

    def total(self, configurations: float) -> float:
        """Epochs of all trials together, about: as many are promoted as in a bracket."""
        trials, before, total = min(self.left, configurations), 0, 0.0
        for epochs in self._epochs:
            total += trials * (epochs - before)
            trials, before = trials // self._eta, epochs
        return total

    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        """The promotion from the highest rung that has one, else a new trial."""
        for rung in range(len(self._epochs) - 2, -1, -1):
            for key in self._waiting[rung]:
                if trials[key].status == WAITING and affords(self._onwards(key, rung, "")):
                    return self._promote(key, rung)
        start = Start(self._epochs[0], {"bracket": 0, "rung": 0}, "begins in rung 0")
        return start if self.left > 0 and affords(start) else None

    def _promote(self, key: int, rung: int) -> Continue:
        self._promoted[rung].add(key)
        self._waiting[rung].remove(key)
        known = len(self._known[rung])
        return self._onwards(
            key, rung, f"among the best {self._quota(rung)} of {known} in rung {rung}"
        )

    def _onwards(self, key: int, rung: int, reason: str) -> Continue:
        place = {"bracket": 0, "rung": rung + 1}
        return Continue(key, self._epochs[rung + 1], place, reason)

    def beside(
        self, trials: Mapping[int, Trial], fits: Callable[[Continue], bool]
    ) -> Continue | None:
        """The best trial, from the highest rung, that was not promoted and whose next rung fits."""
        for rung in range(len(self._epochs) - 2, -1, -1):
            for key in self._known[rung].best(len(self._known[rung])):
                wanted = self._onwards(key, rung, f"next best in rung {rung}, beside the last")
                is_left = trials[key].status == WAITING and key not in self._promoted[rung]
                if is_left and fits(wanted):
                    self._promoted[rung].add(key)
                    self._beside[rung + 1].add(key)
                    return wanted
        return None

    def last_place(self, trial: Trial) -> Mapping[str, Any]:
        """The last rung."""
        return {"bracket": 0, "rung": len(self._epochs) - 1}

    def goes_to_end(self, trial: Trial) -> None:
        """Take a trial out of its rung: it is in the last one beside those that were promoted there."""
        key, rung = trial.mst_key, trial.place.get("rung", 0)
        for number in range(rung, len(self._epochs) - 1):
            self._promoted[number].add(key)
            self._waiting[number] = [one for one in self._waiting[number] if one != key]
        self._beside[-1].add(key)

    def adopted(self, trial: Trial) -> None:
        """Have a trial begin like any other."""
        trial.budget = self._epochs[0]
        trial.place |= {"bracket": 0, "rung": 0}

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> list[End]:
        """Add the value of a trial to its rung."""
        rung = trial.place.get("rung", 0)
        if trial.latest is not None and trial.is_open:
            if trial.is_adopted:
                self._ahead[trial.mst_key] = trial.done, trial.latest
            self._known[rung].add(trial.mst_key, trial.latest)
            self._settle(rung)
        return []

    def _settle(self, lowest: int) -> None:
        """Find who is to be promoted from a rung and those above.

        Who went on beside others and is among the best now has come to the next rung like any other.
        """
        for rung in range(lowest, len(self._epochs)):
            best = self._known[rung].best(self._quota(rung))
            self._waiting[rung] = [key for key in best if key not in self._promoted[rung]]
            if rung + 1 < len(self._epochs):
                self._beside[rung + 1].difference_update(best)
                self._pass_on(rung)

    def _pass_on(self, rung: int) -> None:
        """Pass a trial that has the epochs of the next rung already on to that rung."""
        for key in list(self._waiting[rung]):
            done, values = self._ahead.get(key, (0, ()))
            if done >= self._epochs[rung + 1]:
                self._waiting[rung].remove(key)
                self._promoted[rung].add(key)
                self._known[rung + 1].add(key, values)

    def _quota(self, rung: int) -> int:
        """Number of trials that go on from a rung, of those that have come to it so far."""
        known = self._known[rung]
        return (len(known) - sum(key in known for key in self._beside[rung])) // self._eta

    def extend(self, params: Mapping[str, Any]) -> None:
        """More trials, or further rungs."""
        self.left += params.get("num_configs", 0)
        self.full = max(self.full, params.get("R", 0))
        before, self._epochs = self._epochs, self._rungs()
        if before[-1] not in self._epochs:  # it was cut short
            self._epochs = before + [one for one in self._epochs if one > before[-1]]
        more = len(self._epochs) - len(before)
        self._known += [Ranking() for _ in range(more)]
        self._promoted += [set() for _ in range(more)]
        self._beside += [set() for _ in range(more)]
        self._waiting += [[] for _ in range(more)]
        self._settle(0)
