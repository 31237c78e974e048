"""Trials that somebody outside of the search proposes: Optuna, Ax, a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cerebro_db.configs.arguments import Argument
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.decide.search.methods.full import NUM_ITERATIONS
from cerebro_db.decide.search.trials import Affords, Method, Trial, affords_all


class External(Method):
    """Proposes nothing: the search waits for configurations, and trains those that it is given."""

    name: ClassVar = "external"
    parameters: ClassVar[tuple[Argument, ...]] = (NUM_ITERATIONS,)
    waits: ClassVar = True

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self.full = spec.params["num_iterations"]
        self.most_trials = spec.budget.max_configurations

    @property
    def end(self) -> int:
        """One epoch: whoever proposes a trial says how far it is trained."""
        return 1

    def total(self, configurations: float) -> float:
        """Epochs of all trials together, where it is known how many there may be."""
        return min(self.trials(), configurations) * self.full

    def trials(self) -> float:
        """Number of trials that there may be; none where there is no limit."""
        return 0 if self.most_trials == UNLIMITED else self.most_trials

    def next(self, trials: Mapping[int, Trial], affords: Affords = affords_all) -> None:
        """Nothing: others propose."""

    def may_be_last(self, trial: Trial) -> bool:
        """False: a trial has the epochs that it was given."""
        return False

    def extend(self, params: Mapping[str, Any]) -> None:
        """More epochs for what is added from now on."""
        self.full = max(self.full, params.get("num_iterations", 0))
