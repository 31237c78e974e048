"""Methods of a search, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cerebro_db.configs.search_methods import (
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
)
from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.methods.asha import Asha
from cerebro_db.decide.search.methods.bracketed import Bracketed
from cerebro_db.decide.search.methods.full import Full
from cerebro_db.decide.search.methods.population import Population
from cerebro_db.decide.search.trials import Method

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
