"""Grid, random, TPE, GP, CMA-ES: every trial is trained for all epochs, unless it is stopped early.

All mathematics of those that learn is Optuna's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, ClassVar

from cerebro_db.configs.arguments import Argument, whole
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide.search.sampling import Enumeration, Learning, Sampler
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.trials import (
    Affords,
    Continue,
    Method,
    Start,
    Trial,
    affords_all,
)
from cerebro_db.errors import InvalidArgument, MissingPackage

MOST_EPOCHS, MOST_TRIALS = 1_000_000, 100_000
NUM_CONFIGS = whole("num_configs", 20, 1, high=MOST_TRIALS)
NUM_ITERATIONS = whole("num_iterations", 5, 1, high=MOST_EPOCHS)
NUM_STARTUP = whole("num_startup", 10, 1, high=MOST_TRIALS)


class Full(Method):
    """Trials of equal length; the sampler alone makes the difference."""

    reason = "proposed by {}"

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        self.left = spec.params.get("num_configs", UNLIMITED)
        self._reason = self.reason.format(self.name)
        self.full = spec.params["num_iterations"]
        # Keys of trials that may have fewer epochs than there are; None where that is not known yet.
        self._short: list[int] | None = []

    def total(self, configurations: float) -> float:
        """Epochs of all trials together."""
        return min(self.left, configurations) * self.full

    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        """A trial that has fewer epochs than there are by now, or a new one."""
        for key in self._shortened(trials):
            found = Continue(key, self.full, {}, f"goes on to epoch {self.full}")
            if trials[key].status == WAITING and affords(found):
                return found
        start = Start(self.full, {}, self._reason)
        return start if self.left > 0 and affords(start) else None

    def _shortened(self, trials: Mapping[int, Trial]) -> list[int]:
        """Keys of trials that go on, or may, and have fewer epochs than there are: after an extension only."""
        found = trials if self._short is None else self._short
        self._short = [key for key in found if self._is_short(trials[key])]
        return self._short

    def _is_short(self, trial: Trial) -> bool:
        return trial.is_open and trial.budget < self.full and not trial.is_adopted

    def may_be_last(self, trial: Trial) -> bool:
        """True for trials of the method itself: others have epochs of their own."""
        return super().may_be_last(trial) and not trial.is_adopted

    def extend(self, params: Mapping[str, Any]) -> None:
        """More trials, or more epochs of each."""
        self.left += params.get("num_configs", 0)
        self.full = max(self.full, params.get("num_iterations", 0))
        self._short = None


class Grid(Full):
    """Every configuration of a space that has no ranges."""

    name: ClassVar = "grid"
    parameters: ClassVar[tuple[Argument, ...]] = (NUM_ITERATIONS,)
    draws: ClassVar = False
    reason = "the next of the grid"

    @classmethod
    def sampler(cls, spec: SearchSpec, explorer: Explorer) -> Sampler:
        """Configurations one after another."""
        return Enumeration(explorer)

    @classmethod
    def check_space(cls, spec: SearchSpec, explorer: Explorer) -> None:
        """Refuse ranges."""
        if explorer.has_range:
            raise InvalidArgument(
                "compile_params_grid, fit_params_grid: got a range; a grid search allows lists of values "
                "only",
                hint="choose another method, such as 'random', or list some values",
            )


class Random(Full):
    """Configurations that are drawn, each by numbers of its own."""

    name: ClassVar = "random"
    parameters: ClassVar[tuple[Argument, ...]] = (NUM_CONFIGS, NUM_ITERATIONS)


class Tpe(Full):
    """Tree-structured Parzen estimators: what was good is proposed more often."""

    name: ClassVar = "tpe"
    parameters: ClassVar[tuple[Argument, ...]] = (NUM_CONFIGS, NUM_ITERATIONS, NUM_STARTUP)
    is_staged: ClassVar = True
    learns: ClassVar = True

    @classmethod
    def sampler(cls, spec: SearchSpec, explorer: Explorer) -> Sampler:
        """A sampler of Optuna."""
        return Learning(spec, explorer, cls.of_optuna)

    @classmethod
    def of_optuna(cls, samplers: Any, seed: int, params: Mapping[str, Any]) -> Any:
        """The sampler, from Optuna's module, for one proposal."""
        return tpe_sampler(samplers, seed, params)


class Gp(Tpe):
    """Gaussian processes, for spaces of numbers."""

    name: ClassVar = "gp"

    @classmethod
    def of_optuna(cls, samplers: Any, seed: int, params: Mapping[str, Any]) -> Any:
        """The sampler, from Optuna's module, for one proposal."""
        return samplers.GPSampler(
            seed=seed, n_startup_trials=params["num_startup"], deterministic_objective=False
        )

    @classmethod
    def check_space(cls, spec: SearchSpec, explorer: Explorer) -> None:
        """Refuse choices, and a machine without PyTorch."""
        _check_numeric(cls.name, explorer)
        if importlib.util.find_spec("torch") is None:
            raise MissingPackage(
                "automl_method: got 'gp', for which Optuna needs the package torch",
                hint="install it beside cerebro-db: pip install 'cerebro-db[gp]'; 'tpe' needs none",
            )


class CmaEs(Tpe):
    """Evolution of a covariance matrix, for spaces of numbers and one objective."""

    name: ClassVar = "cma-es"
    parameters: ClassVar[tuple[Argument, ...]] = (NUM_CONFIGS, NUM_ITERATIONS)

    @classmethod
    def of_optuna(cls, samplers: Any, seed: int, params: Mapping[str, Any]) -> Any:
        """The sampler, from Optuna's module, for one proposal."""
        return samplers.CmaEsSampler(seed=seed)

    @classmethod
    def check_space(cls, spec: SearchSpec, explorer: Explorer) -> None:
        """Refuse choices, and several objectives."""
        _check_numeric(cls.name, explorer)
        if len(spec.objectives) > 1:
            raise InvalidArgument(
                f"objective: got {len(spec.objectives)} for 'cma-es'; allowed: one",
                hint="'tpe' and 'gp' take several",
            )


def tpe_sampler(samplers: Any, seed: int, params: Mapping[str, Any]) -> Any:
    """Optuna's sampler of TPE for one proposal."""
    return samplers.TPESampler(
        seed=seed,
        n_startup_trials=params["num_startup"],
        multivariate=True,
        group=True,
        constant_liar=True,
    )


def _check_numeric(method: str, explorer: Explorer) -> None:
    if not explorer.is_numeric:
        raise InvalidArgument(
            f"automl_method: got {method!r} for a space with choices; allowed are ranges of "
            "numbers, beside parameters with one value",
            hint="'tpe' explores spaces with choices",
        )
