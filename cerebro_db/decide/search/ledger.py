"""Trials of a search, and how much of its budget they have."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.core.decisions import Ending, Extension
from cerebro_db.core.ports import Outlook
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.statuses import FAILED, WAITING
from cerebro_db.decide.search.methods import total_epochs
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.trials import RUNNING, Continue, Method, Start, Trial


class Ledger:
    """Trials by their state, epochs that they have, and the limits of both.

    Attributes:
        running: those that run, beside all of them, so that a decision costs the same with any number of trials.
        failed: keys of those that have failed.
        epochs: budgets of all trials together.
        most_epochs, most_trials: limits of the search.
        most_configurations: that the space has.
        total: epochs of all trials together, about.
        is_limited: whether trials were wanted that the limit does not allow.
        ending: how the search has ended; None while it goes on.
    """

    def __init__(self, spec: SearchSpec, method: Method) -> None:
        self._method = method
        self.trials: dict[int, Trial] = {}
        self.running: dict[int, Trial] = {}
        self.failed: set[int] = set()
        self.epochs = 0
        self.most_epochs = spec.budget.max_epochs
        self.most_trials = method.most_trials = spec.budget.max_configurations
        self.most_configurations = Explorer(spec.space).size
        self.total = total_epochs(spec)
        self.is_limited = False
        self.ending: Ending | None = None

    def set(self, trial: Trial, status: str) -> None:
        """A trial has another status."""
        trial.status = status
        if status == RUNNING:
            self.running[trial.mst_key] = trial
        else:
            self.running.pop(trial.mst_key, None)
        if status == FAILED:
            self.failed.add(trial.mst_key)

    def join(self, trial: Trial) -> None:
        """A trial is there, and runs."""
        self.trials[trial.mst_key] = trial
        self.set(trial, RUNNING)

    def may_continue(self, wanted: Continue) -> bool:
        """True if a trial waits, with fewer epochs than it is to have."""
        trial = self.trials[wanted.mst_key]
        return trial.status == WAITING and trial.budget < wanted.budget

    def affords(self, wanted: Start | Continue) -> bool:
        """True if the epochs of the search are enough; and its trials, for one that takes a state over."""
        if isinstance(wanted, Start):
            epochs = wanted.budget
            if wanted.source is not None and len(self.trials) >= self.most_trials:
                return False
        else:
            epochs = wanted.budget - self.trials[wanted.mst_key].budget
        return self.epochs + epochs <= self.most_epochs

    def give_back(self, trial: Trial, epoch: int) -> None:
        """Epochs that a trial has no use for are free for others."""
        self.epochs -= trial.budget - epoch
        trial.budget = epoch

    def extend(self, wanted: Extension) -> None:
        """The search goes on with more."""
        self.ending = None
        self._method.extend(wanted.params)
        self.total = self.epochs + self._method.total(self.most_configurations)
        self.most_epochs += wanted.max_epochs or 0
        self.most_trials += wanted.max_configurations or 0
        self._method.most_trials = self.most_trials
        if self.is_limited and len(self.trials) < self.most_trials:
            self.is_limited = False
            self._method.reopen()

    @property
    def waits(self) -> bool:
        """True while others may propose trials, and the method leaves that to them."""
        return self._method.waits and self.ending is None and len(self.trials) < self.most_trials

    @property
    def has_come_to_end(self) -> bool:
        """True if a trial was to be trained to the last epochs, and has not failed."""
        end = self._method.end
        return any(
            one.offset + one.goal >= end for one in self.trials.values() if one.status != FAILED
        )

    def shortfall(self) -> str | None:
        """Reason that no trial has come to the last epochs; None where one has."""
        end = self._method.end
        there = [one for one in self.trials.values() if one.status != FAILED]
        if any(one.offset + one.done >= end for one in there):
            return None
        return f"no trial was trained for {end} epoch{'s' if end != 1 else ''}: {self._why_short(there)}"

    def _why_short(self, there: Sequence[Trial]) -> str:
        """Reason that none of the trials that have not failed has come to the last epochs."""
        if self.ending is not None and self.ending.reason:
            return self.ending.reason
        if not there:
            return "all trials have failed"
        if any(map(self._method.may_be_last, there)) and not self.has_come_to_end:
            left = self.most_epochs - self.epochs
            is_used = f"leave {left}, and the best needs more" if left else "are used up"
            return f"max_epochs := {self.most_epochs} {is_used}"
        return "trials were stopped before"

    def outlook(self) -> Outlook:
        """Size that the search will have: trials that are wanted, as far as there are any."""
        there = len(self.trials)
        room = min(self.most_configurations, self.most_trials) - there
        wanted = 0 if self.ending is not None else max(0, min(self._method.trials(), room))
        return Outlook(there + int(wanted), min(self.total, self.most_epochs))
