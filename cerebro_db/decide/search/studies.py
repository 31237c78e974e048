"""A search as a study of Optuna: for what that computes of trials, and for its dashboard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.space import Explorer, Fixed, Parameters

if TYPE_CHECKING:
    import optuna

# Of the trees that importances come from, so that these are the same each time.
_SEED = 0


class Measured(NamedTuple):
    """A trial as a study knows it.

    Attributes:
        parameters: by the names of dimensions; none of a configuration outside of the space.
        values: of the objectives; none where it has no results.
        steps: the first objective by epoch.
        state: one of ``TrialState`` of Optuna, by its name.
        attributes: what else there is to show.
        times: when it began and ended, with a time zone; None where that is not known.
    """

    parameters: Parameters
    values: tuple[float, ...]
    steps: Mapping[int, float] = {}
    state: str = "COMPLETE"
    attributes: Mapping[str, Any] = {}
    times: tuple[datetime, datetime] | None = None


class Importance(NamedTuple):
    """Share of the variance of an objective that a parameter explains.

    Attributes:
        value: from 0 to 1.
        trials: that it was computed from: those that have the parameter.
    """

    parameter: str
    value: float
    trials: int


def add_to_study(study: optuna.Study, spec: SearchSpec, trials: Sequence[Measured]) -> None:
    """Add the trials of a search to a study.

    Args:
        study: with the directions of the objectives.
        spec: of the search.
        trials: in their order.
    """
    explorer = Explorer(spec.space)
    for one in trials:
        trial = trial_of(
            explorer, one.parameters, one.state, one.values, one.steps, dict(one.attributes)
        )
        if one.times is not None:
            began, ended = map(_local, one.times)
            trial.datetime_start = began
            trial.datetime_complete = ended if trial.state.is_finished() else None
        study.add_trial(trial)


def trial_of(
    explorer: Explorer,
    parameters: Parameters,
    state: str,
    values: Sequence[float],
    steps: Mapping[int, float],
    attributes: dict[str, Any] | None = None,
) -> optuna.trial.FrozenTrial:
    """A trial as Optuna has it, though it has not proposed it.

    Args:
        explorer: of the space.
        parameters: by the names of dimensions; none of a configuration outside of the space.
        state: one of ``TrialState`` of Optuna, by its name.
        values: of the objectives, which a complete trial has.
        steps: the first objective by epoch.
        attributes: what else there is to show.
    """
    import optuna

    fixed = Fixed(parameters)
    if parameters:
        explorer.suggest(fixed)
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState[state],
        params=fixed.chosen,
        distributions={name: _distribution(*found) for name, found in fixed.bounds.items()},
        values=list(values) if state == "COMPLETE" else None,
        intermediate_values={epoch: steps[epoch] for epoch in sorted(steps)},
        user_attrs=attributes,
    )


def _local(moment: datetime) -> datetime:
    """A moment as Optuna has it: by the clock of this machine, without a time zone."""
    return moment.astimezone().replace(tzinfo=None)


def _distribution(kind: str, bounds: dict[str, Any]) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    kinds: dict[str, Any] = {
        "categorical": distributions.CategoricalDistribution,
        "int": distributions.IntDistribution,
        "float": distributions.FloatDistribution,
    }
    found: optuna.distributions.BaseDistribution = kinds[kind](**bounds)
    return found


def directions(spec: SearchSpec) -> list[str]:
    """Directions of the objectives, as Optuna names them."""
    return ["maximize" if one.maximise else "minimize" for one in spec.objectives]


def importances(spec: SearchSpec, trials: Sequence[Measured]) -> list[Importance]:
    """Importance of each parameter for the only value of the trials, by fANOVA.

    Parameters that all trials have are compared with one another: theirs add up to 1. What only some
    have, as it belongs to an optimizer or an architecture, is compared among these trials.

    Hutter, Hoos, Leyton-Brown: An Efficient Approach for Assessing Hyperparameter Importance, ICML 2014.

    Args:
        spec: of the search.
        trials: with parameters and one finite value each.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    add_to_study(study, spec, trials)
    return importances_of(study)


def importances_of(study: optuna.Study) -> list[Importance]:
    """Importance of each parameter of a study for the only value of its trials, all finite."""
    having: dict[str, set[int]] = {}
    trials = study.get_trials(deepcopy=False)
    for one in trials:
        for name in one.params:
            having.setdefault(name, set()).add(one.number)
    common = {name for name, numbers in having.items() if len(numbers) == len(trials)}
    found = _evaluated(study, common, common, len(trials))
    for numbers in {frozenset(having[name]) for name in having.keys() - common}:
        alike = {name for name, others in having.items() if numbers == others}
        found += _evaluated(study, common | alike, alike, len(numbers))
    return sorted(found, key=lambda one: (-one.value, one.parameter))


def _evaluated(
    study: optuna.Study, names: set[str], wanted: set[str], trials: int
) -> list[Importance]:
    """The importance of some parameters among others, from the trials that have all of them."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if not names:
        return []
    evaluator = FanovaImportanceEvaluator(seed=_SEED)
    try:
        values = get_param_importances(study, evaluator=evaluator, params=sorted(names))
    except RuntimeError:  # all trials have the same value
        values = dict.fromkeys(names, 0.0)
    return [
        Importance(_plain(name), float(value) if math.isfinite(value) else 0.0, trials)
        for name, value in values.items()
        if name in wanted
    ]


def _plain(name: str) -> str:
    """The name of a parameter that is searched by its distance from one."""
    return name.removeprefix("1 - ")
