"""Methods of a search, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cerebro_db.configs.grids.search_methods import (
    ASHA,
    BOHB,
    CMA_ES,
    GP,
    GRID,
    HALVING,
    HYPERBAND,
    PBT,
    RANDOM,
    TPE,
    find_method,
)
from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.methods.asha import Asha
from cerebro_db.decide.search.methods.bracketed import Bracketed
from cerebro_db.decide.search.methods.full import Full
from cerebro_db.decide.search.methods.population import Population
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.trials import Method

_PLACES = 2
# Trials of a method that does not learn which are begun together; others begin as places become free.
_MOST_PLACES = 1_000

_METHODS: Mapping[str, Callable[[SearchSpec], Method]] = MappingProxyType(
    {
        **dict.fromkeys((GRID, RANDOM, TPE, GP, CMA_ES), Full),
        **dict.fromkeys((HALVING, HYPERBAND, BOHB), Bracketed),
        ASHA: Asha,
        PBT: Population,
    }
)


def method_of(spec: SearchSpec) -> Method:
    """The method of a search, at its beginning."""
    return _METHODS[spec.method](spec)


def most_trials(spec: SearchSpec) -> int:
    """Trials of a search, at most."""
    size = Explorer(spec.space).size
    wanted = _METHODS[spec.method](spec).trials()
    return int(max(1, min(size, wanted, spec.budget.max_configurations)))


def total_epochs(spec: SearchSpec) -> float:
    """Epochs of all trials of a search together, about."""
    method = _METHODS[spec.method](spec)
    return min(method.total(most_trials(spec)), spec.budget.max_epochs)


def first_epochs(spec: SearchSpec) -> int:
    """Epochs with which the first trial of a search begins."""
    wanted = method_of(spec).next({})
    assert wanted is not None
    return wanted.budget


def default_places(spec: SearchSpec, partitions: int) -> int:
    """Number of trials that are trained at the same time.

    Where results decide what is tried next, enough that no worker waits for one of them: a worker has
    a partition, and a trial that waits for its next one is another's. With more of them the best would
    come to their last epochs only when all others do. Else all, up to some number: those that there are
    then fill whatever is free, and the search begins as soon with many trials as with few.
    """
    if find_method(spec.method).learns:
        return min(_PLACES * partitions, most_trials(spec))
    return min(_MOST_PLACES, most_trials(spec))
