"""Hyperparameters of configurations: what differs, and how much of the results it explains."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cerebro_db.configs.functions.optimizers import ARGUMENT_ALIASES
from cerebro_db.configs.grammar import Call, call_of, parse_keywords
from cerebro_db.decide.search.studies import Importance, importances_of
from cerebro_db.errors import CerebroError
from cerebro_db.watching.reading import Standing

if TYPE_CHECKING:
    import optuna

Value = str | int | float | bool
# What is measured is no hyperparameter.
_IGNORED = ("metrics", "verbose")
_LOG_RATIO = 50.0
# fANOVA grows trees over all trials, which takes seconds for many.
MOST_FOR_FANOVA = 300
_GROUPS = 10
_LEAST = 4


def hyperparameters(one: Standing) -> dict[str, Value]:
    """The hyperparameters of a configuration by name, such as ``{"optimizer": "Adam", "lr": 0.1}``.

    Arguments of the optimizer have their own names. Texts that cannot be read are left out: whoever owns
    a run may have written anything.
    """
    found: dict[str, Value] = {"model_id": one.model_id}
    for text in (one.compile_params, one.fit_params):
        for name, value in _read(text):
            found.setdefault(name, value)
    return found


@functools.lru_cache(maxsize=8192)
def _read(text: str) -> tuple[tuple[str, Value], ...]:
    try:
        given = parse_keywords(text, "parameters")
    except CerebroError:
        return ()
    found: dict[str, Value] = {}
    for name, value in given.items():
        if name == "optimizer":
            found |= _of_optimizer(value)
        elif name not in _IGNORED and value is not None:
            found[name] = _plain(value)
    return tuple(found.items())


def _of_optimizer(value: object) -> dict[str, Value]:
    try:
        call = call_of(value, "optimizer", "parameters")
    except CerebroError:
        return {"optimizer": str(value)}
    arguments = {ARGUMENT_ALIASES.get(name, name): _plain(one) for name, one in call.arguments}
    if call.values:
        arguments.setdefault("learning_rate", _plain(call.values[0]))
    return {"optimizer": call.name, **arguments}


def _plain(value: object) -> Value:
    if isinstance(value, Call) and not value.arguments and not value.values:
        return value.name
    return value if isinstance(value, str | int | float | bool) else repr(value)


def varying(all_of_them: Sequence[Mapping[str, Value]]) -> list[str]:
    """The names of hyperparameters that are not the same in all configurations, in their order."""
    names = dict.fromkeys(name for one in all_of_them for name in one)
    return [n for n in names if len({repr(one.get(n)) for one in all_of_them}) > 1]


class Axis(NamedTuple):
    """A hyperparameter as an axis: numbers, or places of categories.

    Attributes:
        values: of each configuration; None where it has none.
        categories: what the numbers stand for; none of numbers.
        is_log: whether distances are ratios.
    """

    name: str
    values: tuple[float | None, ...]
    categories: tuple[str, ...] = ()
    is_log: bool = False


def axes(all_of_them: Sequence[Mapping[str, Value]]) -> list[Axis]:
    """The hyperparameters that differ, each as numbers on an axis."""
    return [_axis(name, [one.get(name) for one in all_of_them]) for name in varying(all_of_them)]


def _axis(name: str, values: Sequence[Value | None]) -> Axis:
    numbers = [one for one in values if _is_number(one)]
    if len(numbers) == sum(one is not None for one in values) and name != "model_id":
        known = [None if one is None else float(one) for one in values]
        positive = [one for one in known if one is not None and one > 0]
        spread = len(positive) == len(numbers) and max(positive) / min(positive) >= _LOG_RATIO
        return Axis(name, tuple(known), (), bool(positive) and spread)
    texts = [None if one is None else str(one) for one in values]
    categories = tuple(sorted({one for one in texts if one is not None}, key=_natural))
    places = {one: float(place) for place, one in enumerate(categories)}
    return Axis(name, tuple(None if one is None else places[one] for one in texts), categories)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _natural(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() and len(text) < 19 else (-1, text)


def importance(
    standings: Sequence[Standing], scores: Mapping[int, float]
) -> tuple[str, list[Importance]]:
    """Share of the variance of a score that each hyperparameter that differs explains.

    Args:
        standings: of the configurations.
        scores: what is explained, by mst_key; those that have none are left out.

    Returns:
        The method's name, and the hyperparameters, the most important one first; none where fewer than
        four configurations have a finite score.
    """
    known = [one for one in standings if math.isfinite(scores.get(one.mst_key, math.nan))]
    if len(known) < _LEAST:
        return "", []
    found = axes([hyperparameters(one) for one in known])
    values = [scores[one.mst_key] for one in known]
    if len(known) > MOST_FOR_FANOVA:
        alone = [_alone(axis, np.asarray(values)) for axis in found]
        return "one-way ANOVA", sorted(alone, key=lambda one: (-one.value, one.parameter))
    return "fANOVA", importances_of(_study(found, values))


def _alone(axis: Axis, scores: np.ndarray) -> Importance:
    """The share of the variance that groups of one hyperparameter explain; a tenth of its numbers is a group."""
    has = np.array([one is not None for one in axis.values])
    values, scores = np.array([one for one in axis.values if one is not None]), scores[has]
    if not axis.categories and len(np.unique(values)) > _GROUPS:
        edges = np.unique(np.quantile(values, np.arange(1, _GROUPS) / _GROUPS))
        values = np.searchsorted(edges, values, "right")
    _, groups = np.unique(values, return_inverse=True)
    means = np.bincount(groups, scores) / np.bincount(groups)
    whole = float(np.var(scores))
    share = float(np.var(means[groups])) / whole if whole > 0 else 0.0
    return Importance(axis.name, share, len(scores))


def _study(of_axes: Sequence[Axis], scores: Sequence[float]) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    bounds = {axis.name: _distribution(axis) for axis in of_axes}
    for place, score in enumerate(scores):
        there = [axis for axis in of_axes if axis.values[place] is not None]
        study.add_trial(
            optuna.trial.create_trial(
                params={axis.name: _value_at(axis, place) for axis in there},
                distributions={axis.name: bounds[axis.name] for axis in there},
                value=score,
            )
        )
    return study


def _value_at(axis: Axis, place: int) -> Any:
    value = axis.values[place]
    assert value is not None
    return axis.categories[int(value)] if axis.categories else value


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.categories:
        return CategoricalDistribution(axis.categories)
    known = [one for one in axis.values if one is not None]
    return FloatDistribution(min(known), max(known), log=axis.is_log)
