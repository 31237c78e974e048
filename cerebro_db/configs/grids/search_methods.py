"""The methods of a search: their names and parameters, with defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cerebro_db.configs.arguments import (
    Argument,
    number,
    unknown,
    validated_arguments,
    whole,
    with_defaults,
)
from cerebro_db.configs.grids.brackets import largest_bracket
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

GRID, RANDOM, TPE, GP, CMA_ES = "grid", "random", "tpe", "gp", "cma-es"
HALVING, HYPERBAND, ASHA, BOHB, PBT = "successive_halving", "hyperband", "asha", "bohb", "pbt"

_MORE = ("num_configs", "num_iterations", "R", "population")
_MOST_EPOCHS = 1_000_000
_MOST_TRIALS = 100_000


@dataclass(frozen=True)
class SearchMethod:
    """A method of a search.

    Attributes:
        name: in ``automl_method``, in lower case.
        parameters: in ``automl_params``.
        learns: whether what it begins with depends on results, so that not all begin at once.
        samples: whether it draws from ranges, so that it takes others than lists of values.
    """

    name: str
    parameters: tuple[Argument, ...]
    learns: bool = False
    samples: bool = True

    @property
    def more(self) -> tuple[Argument, ...]:
        """Those of which a search that has ended may have more: one more trial or member is enough."""
        return tuple(replace(one, low=1) for one in self.parameters if one.name in _MORE)

    def validated(self, given: Mapping[str, object]) -> dict[str, Any]:
        """All its parameters: those given, checked, and the defaults of the others.

        Raises:
            InvalidArgument: one is unknown or out of bounds, or they contradict each other.
        """
        what = f"automl_params of {self.name}"
        values = validated_arguments(self.parameters, given, {}, what)
        found = with_defaults(self.parameters, values)
        if "r" in found and found["r"] > found["R"]:
            raise InvalidArgument(
                f"{what}: got r={found['r']}; allowed: 1 to R, which is {found['R']}"
            )
        if "interval" in found:
            _check_population(found, what)
        rungs = largest_bracket(found["R"], found["eta"]) + 1 if "skip_last" in found else 0
        if "skip_last" in found and found["skip_last"] >= rungs:
            raise InvalidArgument(
                f"{what}: got skip_last={found['skip_last']}; allowed: 0 to {rungs - 1}, as with "
                f"R={found['R']} and eta={found['eta']} no bracket has more than {rungs} rungs"
            )
        return found


def _check_population(found: Mapping[str, Any], what: str) -> None:
    """Refuses a population that is never compared, or of which nobody is replaced."""
    if found["interval"] > found["num_iterations"]:
        raise InvalidArgument(
            f"{what}: got interval={found['interval']}; allowed: 1 to num_iterations, which is "
            f"{found['num_iterations']}"
        )
    if int(found["population"] * found["quantile"]) < 1:
        raise InvalidArgument(
            f"{what}: got population={found['population']} and quantile={found['quantile']}, by which "
            "no member is replaced; allowed: at least 1 for population * quantile"
        )


def _epochs(name: str, default: int) -> Argument:
    return whole(name, default, 1, high=_MOST_EPOCHS)


_NUM_CONFIGS = whole("num_configs", 20, 1, high=_MOST_TRIALS)
_ITERATIONS = _epochs("num_iterations", 5)
_ETA = whole("eta", 3, 2, high=1000)
_STARTUP = whole("num_startup", 10, 1, high=_MOST_TRIALS)
_R = _epochs("R", 6)
_RUNGS = (_NUM_CONFIGS, _R, _epochs("r", 1), _ETA)
_BRACKETS = (_R, _ETA, whole("skip_last", 0))

METHODS: Mapping[str, SearchMethod] = MappingProxyType(
    {
        one.name: one
        for one in (
            SearchMethod(GRID, (_ITERATIONS,), samples=False),
            SearchMethod(RANDOM, (_NUM_CONFIGS, _ITERATIONS)),
            SearchMethod(HALVING, _RUNGS),
            SearchMethod(HYPERBAND, _BRACKETS, learns=True),
            SearchMethod(ASHA, _RUNGS, learns=True),
            SearchMethod(TPE, (_NUM_CONFIGS, _ITERATIONS, _STARTUP), learns=True),
            SearchMethod(BOHB, (*_BRACKETS, _STARTUP), learns=True),
            SearchMethod(
                PBT,
                (
                    whole("population", 8, 2, high=1000),
                    _epochs("interval", 1),
                    _ITERATIONS,
                    number("quantile", 0.25, high=0.5, low_open=True),
                    number("resample", 0.25, high=1.0),
                ),
            ),
            SearchMethod(GP, (_NUM_CONFIGS, _ITERATIONS, _STARTUP), learns=True),
            SearchMethod(CMA_ES, (_NUM_CONFIGS, _ITERATIONS), learns=True),
        )
    }
)


def find_method(name: str, what: str = "automl_method") -> SearchMethod:
    """The method of a name.

    Raises:
        InvalidArgument: there is none, with the nearest right name.
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"{what}: got {shown(name)}; allowed: {', '.join(METHODS)}")
    found = METHODS.get(name.lower().replace("cmaes", CMA_ES))
    if found is None:
        raise unknown(what, "method", name, METHODS)
    return found
