"""Samplers: what is tried next. All mathematics of those that learn is Optuna's."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cerebro_db.configs.frameworks import meaning
from cerebro_db.configs.grids.model_selection import Frameworks
from cerebro_db.configs.grids.parameters import (
    ConfigurationText,
    FitParams,
    parse_fit_params,
)
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.decide.search.ranking import Values
from cerebro_db.decide.search.space import Drawing, Explorer, Parameters
from cerebro_db.decide.search.studies import trial_of

if TYPE_CHECKING:
    import optuna

# After so many proposals in vain the space is taken for exhausted.
_IN_VAIN = 200
_MOST_PROPOSALS = 20

Fault = Callable[[ConfigurationText], str | None]
"""Reason that a configuration cannot be trained; None where it can."""


class Sampler(ABC):
    """Proposes parameters, and may learn from what comes of them; by default it learns nothing."""

    @abstractmethod
    def propose(self, number: int, attempt: int) -> Parameters | None:
        """Parameters of the trial of a number, from 1; None where there are no more."""

    def take(self, number: int, parameters: Parameters, *, is_own: bool) -> None:
        """Take note that the last proposal is tried, or parameters that somebody else has proposed."""
        return

    def observed(self, number: int, epochs: int, values: Values, *, is_full: bool) -> None:
        """Learn from a trial that was measured after so many epochs; ``is_full``: as far as any is trained."""
        return

    def failed(self, number: int) -> None:
        """Take note that a trial has failed, or was given up."""
        return


class Enumeration(Sampler):
    """Every configuration of a grid, one after another."""

    def __init__(self, explorer: Explorer) -> None:
        self._left: Iterator[Parameters] = explorer.combinations()

    def propose(self, number: int, attempt: int) -> Parameters | None:
        """Propose the next combination."""
        return next(self._left, None)


class Chance(Sampler):
    """Draws, each trial by numbers of its own."""

    def __init__(self, explorer: Explorer, seed: int) -> None:
        self._explorer, self._seed = explorer, seed

    def propose(self, number: int, attempt: int) -> Parameters | None:
        """Draw parameters."""
        return self._explorer.suggest(Drawing([self._seed, number, attempt]))


class Learning(Sampler):
    """A sampler of Optuna, which learns from results.

    What it proposes depends on the seed, the number of the trial, and the results that it has: each proposal
    has a sampler with random numbers of its own.

    A trial that was measured before its last epochs is known to it as pruned after these; measured
    again after more, as one more trial. So a model of the few that were trained longest comes before
    one of the many that were not, as in BOHB.

    Args:
        spec: of the search.
        explorer: of the space.
        make: a sampler of Optuna, from its module ``samplers``, a seed and the parameters of the method.
    """

    def __init__(
        self,
        spec: SearchSpec,
        explorer: Explorer,
        make: Callable[[Any, int, Mapping[str, Any]], Any],
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._spec, self._explorer, self._make = optuna, spec, explorer, make
        self._directions = ["minimize"] * len(spec.objectives)
        self._study = optuna.create_study(directions=self._directions)
        self._proposed: optuna.Trial | None = None
        self._running: dict[int, optuna.Trial] = {}
        self._parameters: dict[int, Parameters] = {}
        for one in spec.earlier:
            if explorer.has(one.parameters):
                self._add(one.parameters, one.epochs, one.values, is_full=True)

    def propose(self, number: int, attempt: int) -> Parameters | None:
        """Proposal of the sampler; a draw where it proposes only what was there already."""
        self._drop()
        if attempt > _MOST_PROPOSALS:
            return self._explorer.suggest(Drawing([self._spec.seed, number, attempt]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            salt = number * (_MOST_PROPOSALS + 1) + attempt
            seed = (self._spec.seed * 1_000_003 + salt) % 2**32
            self._study.sampler = self._make(self._optuna.samplers, seed, self._spec.params)
            self._proposed = self._study.ask()
            return self._explorer.suggest(self._proposed)

    def take(self, number: int, parameters: Parameters, *, is_own: bool) -> None:
        """The last proposal is tried; parameters of others are learnt of when they are measured."""
        self._parameters[number] = parameters
        if is_own and self._proposed is not None:
            self._running[number] = self._proposed
            self._proposed = None

    def observed(self, number: int, epochs: int, values: Values, *, is_full: bool) -> None:
        """Tell the sampler."""
        proposed = self._running.pop(number, None)
        if proposed is None and number in self._parameters:
            self._add(self._parameters[number], epochs, values, is_full=is_full)
        elif proposed is not None and (is_full or len(values) > 1):
            self._study.tell(proposed, list(values))
        elif proposed is not None:
            proposed.report(values[0], epochs)
            self._study.tell(proposed, state=self._optuna.trial.TrialState.PRUNED)

    def failed(self, number: int) -> None:
        """Forget a trial that has failed."""
        proposed = self._running.pop(number, None)
        if proposed is not None:
            self._study.tell(proposed, state=self._optuna.trial.TrialState.FAIL)

    def _drop(self) -> None:
        """A proposal that was not taken."""
        if self._proposed is not None:
            self._study.tell(self._proposed, state=self._optuna.trial.TrialState.FAIL)
            self._proposed = None

    def _add(self, parameters: Parameters, epochs: int, values: Values, *, is_full: bool) -> None:
        """Add a trial that was not proposed by the sampler to the study."""
        is_pruned = not is_full and len(values) == 1
        self._study.add_trial(
            trial_of(
                self._explorer,
                parameters,
                "PRUNED" if is_pruned else "COMPLETE",
                values,
                {epochs: values[0]} if is_pruned else {},
            )
        )


class Distinct:
    """Proposals of a sampler, each configuration once, and only those that can be trained.

    Args:
        sampler: that proposes, for a space.
        space: to begin with.
        fault: tells what cannot be trained.
        frameworks: of the models, as what parameters mean depends on it.
    """

    def __init__(
        self,
        sampler: Callable[[Explorer], Sampler],
        space: Space,
        fault: Fault,
        frameworks: Frameworks,
    ) -> None:
        self._make, self._fault, self._frameworks = sampler, fault, frameworks
        self._seen: set[tuple[int, Hashable, FitParams]] = set()
        self._observations: list[tuple[int, int, Values, bool]] = []
        self._texts: dict[int, ConfigurationText] = {}
        self.narrow(space)

    def narrow(self, space: Space) -> None:
        """Propose from another space from now on; what was learnt of it stays."""
        self.explorer = Explorer(space)
        self._is_exhausted = False
        self._sampler = self._make(self.explorer)
        placed = set()
        for number, epochs, values, is_full in self._observations:
            parameters = self.explorer.place(self._texts[number])
            if parameters is not None:
                if number not in placed:
                    self._sampler.take(number, parameters, is_own=False)
                    placed.add(number)
                self._sampler.observed(number, epochs, values, is_full=is_full)

    def propose(self, number: int) -> tuple[Parameters, ConfigurationText] | None:
        """Parameters of the next trial; None where the space has no more."""
        if self._is_exhausted:
            return None
        for attempt in range(_IN_VAIN):
            parameters = self._sampler.propose(number, attempt)
            if parameters is None:
                break
            row = self.explorer.text(parameters)
            if self._is_new(row) and self._fault(row) is None:
                self._texts[number] = row
                self._sampler.take(number, parameters, is_own=True)
                return parameters, row
        self._is_exhausted = True
        return None

    def adopt(self, number: int, row: ConfigurationText) -> Parameters:
        """A configuration that somebody else proposes; no parameters where it is not of the space."""
        self._is_new(row)
        self._texts[number] = row
        parameters = self.explorer.place(row)
        if parameters is None:
            return {}
        self._sampler.take(number, parameters, is_own=False)
        return parameters

    def observed(self, number: int, epochs: int, values: Values, *, is_full: bool) -> None:
        """A trial was measured."""
        self._observations.append((number, epochs, values, is_full))
        self._sampler.observed(number, epochs, values, is_full=is_full)

    def failed(self, number: int) -> None:
        """A trial has failed, or was given up before it was measured."""
        self._sampler.failed(number)

    def _is_new(self, row: ConfigurationText) -> bool:
        """True if a configuration was not there before; notes it."""
        key = (
            row.model_id,
            meaning(row.compile_params, self._frameworks.get(row.model_id)),
            parse_fit_params(row.fit_params),
        )
        if key in self._seen:
            return False
        self._seen.add(key)
        return True
