"""A grid of compile and fit parameters: what MADlib's texts say, checked, as values to choose from.

A grid holds alternatives. The dictionaries of `optimizer_params_list` are alternatives of one
another, each with its own parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from cerebro_db.configs.arguments import Argument, nearest, unknown
from cerebro_db.configs.frameworks import optimizer_named
from cerebro_db.configs.functions.optimizers import (
    REFUSED_ARGUMENTS,
)
from cerebro_db.configs.grammar import Call, parse_call, parse_dict
from cerebro_db.configs.grids.parameters import (
    COMPILE_KEYS,
    FIT_KEYS,
    NUMERIC_ARGUMENTS,
    REFUSED_FIT,
    optimizer_text,
)
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, hinted

if TYPE_CHECKING:
    import numpy as np

OPTIMIZER_LIST = "optimizer_params_list"
MODEL_LIST, MODEL_ID = "model_params_list", "model_id"
DISTRIBUTIONS = ("linear", "log", "log_near_one")
_WITH_STEP = 4  # values of a range: low, high, distribution, step
_DEFAULT_OPTIMIZER = "RMSprop"  # MADlib's, where a dictionary names none


@dataclass(frozen=True)
class Choices:
    """Discrete values."""

    values: tuple[Any, ...]

    def sample(self, generator: np.random.Generator) -> Any:
        """Draws one value, each with the same probability."""
        return self.values[int(generator.integers(len(self.values)))]


@dataclass(frozen=True)
class Range:
    """A distribution between two bounds; values of a whole-number parameter are rounded.

    Attributes:
        step: values are the lower bound and so many steps more; 0 for any value.
    """

    low: float
    high: float
    distribution: str
    whole: bool
    step: float = 0.0

    def sample(self, generator: np.random.Generator) -> float | int:
        """Draws one value."""
        if self.step:
            steps = int(generator.integers(self.steps + 1))
            value = self.at(steps)
        else:
            value = min(max(self._draw(generator), self.low), self.high)
        return round(value) if self.whole else value

    @property
    def steps(self) -> int:
        """Number of steps between the bounds."""
        return math.floor((self.high - self.low) / self.step + 1e-9)

    def at(self, step: int) -> float:
        """The value after so many steps, without what sums of fractions add to it."""
        return float(f"{self.low + step * self.step:.12g}")

    def _draw(self, generator: np.random.Generator) -> float:
        if self.distribution == "linear":
            return float(generator.uniform(self.low, self.high))
        if self.distribution == "log":
            return math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        # Distances from one are spread evenly over orders of magnitude.
        return 1.0 - math.exp(generator.uniform(math.log1p(-self.high), math.log1p(-self.low)))


Dimension = Choices | Range
Space = Mapping[str, Dimension]


@dataclass(frozen=True)
class Grid:
    """Named dimensions; that of the optimizers is a list of spaces, each for some optimizers.

    Attributes:
        models: what is said of some architectures only, by their model_id; the same in all of a group.
        without: names of dimensions that some architectures have not.
    """

    dimensions: Space
    optimizers: tuple[Space, ...] = ()
    models: Mapping[int, Grid] = field(default_factory=dict)
    without: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def of(self, model_id: int) -> Grid:
        """Grid of an architecture."""
        own = self.models.get(model_id, Grid({}))
        missing = self.without.get(model_id, ())
        dimensions = {
            name: one
            for name, one in {**self.dimensions, **own.dimensions}.items()
            if name not in missing
        }
        return Grid(dimensions, own.optimizers or self.optimizers)

    def suited(self, suits: Callable[[str, Any], bool]) -> Grid:
        """Without the values of parameters that do not suit, and parameters that have no other."""
        dimensions = {name: _suited(name, one, suits) for name, one in self.dimensions.items()}
        return replace(
            self, dimensions={name: one for name, one in dimensions.items() if one is not None}
        )

    def size(self) -> float:
        """Number of combinations; infinite where there is a range."""
        alternatives = sum(_size(space) for space in self.optimizers) if self.optimizers else 1
        return alternatives * _size(self.dimensions)

    def has_range(self) -> bool:
        """True if it can only be searched at random."""
        spaces = (self.dimensions, *self.optimizers)
        return any(isinstance(one, Range) for space in spaces for one in space.values())

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yields every combination; in the order written, the last parameter changes fastest."""
        for name, rest in product(self._optimizer_texts(), _combinations(self.dimensions)):
            yield {"optimizer": name, **rest} if name is not None else rest

    def sample(self, generator: np.random.Generator) -> dict[str, Any]:
        """Draws one combination."""
        drawn: dict[str, Any] = {}
        if self.optimizers:
            space = self.optimizers[int(generator.integers(len(self.optimizers)))]
            drawn["optimizer"] = _optimizer_text(_drawn(space, generator))
        return drawn | _drawn(self.dimensions, generator)

    def _optimizer_texts(self) -> list[str | None]:
        if not self.optimizers:
            return [None]
        return [_optimizer_text(values) for one in self.optimizers for values in _combinations(one)]


@hinted(
    "compile_params_grid is such as {'loss': ['mse'], 'optimizer_params_list': "
    "[{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}]}; docs/sql/configurations.md tells more"
)
def parse_compile_grid(text: str) -> Grid:
    """Parses and checks a compile_params_grid."""
    what = "compile_params_grid"
    given = parse_dict(text, what)
    own = _model_grids(given.pop(MODEL_LIST, None), what, _compile_grid)
    grid = _compile_grid(given, what)
    for one in (own.values() or (grid,)) if not _has_optimizer(grid) else ():
        if not _has_optimizer(one):
            raise InvalidArgument(f"{what}: {OPTIMIZER_LIST!r} is missing; it must be given")
    return replace(grid, models=own)


def metrics_notice(grid: Grid) -> str | None:
    """Notice that each metric of a list makes configurations of its own, as the list may have been meant as one choice."""
    for one in (grid, *grid.models.values()):
        metrics = one.dimensions.get("metrics")
        values = metrics.values if isinstance(metrics, Choices) else ()
        if len(values) > 1 and any(isinstance(value, str | Call) for value in values):
            shown_ = ", ".join(map(repr, values))
            return (
                f"compile_params_grid: 'metrics': [{shown_}] are {len(values)} choices, each in configurations "
                f"of its own; 'metrics': [[{shown_}]] is one list for all, as MADlib reads it"
            )
    return None


def _has_optimizer(grid: Grid) -> bool:
    return bool(grid.optimizers) or "optimizer" in grid.dimensions


def _compile_grid(given: dict[str, Any], what: str) -> Grid:
    optimizers = given.pop(OPTIMIZER_LIST, None)
    if optimizers is not None and "optimizer" in given:
        raise InvalidArgument(
            f"{what}: got both 'optimizer' and {OPTIMIZER_LIST!r}; allowed is one"
        )
    for key in given:
        if key not in COMPILE_KEYS:
            raise unknown(what, "parameter", key, (*COMPILE_KEYS, OPTIMIZER_LIST, MODEL_LIST))
    spaces = () if optimizers is None else _optimizer_spaces(optimizers, what)
    return Grid(_space(given, NUMERIC_ARGUMENTS, what), spaces)


def _model_grids(
    value: object, what: str, parse: Callable[[dict[str, Any], str], Grid]
) -> dict[int, Grid]:
    """Grids of some architectures only."""
    if value is None:
        return {}
    what = f"{what}: {MODEL_LIST}"
    if not isinstance(value, list | tuple) or not value:
        raise InvalidArgument(f"{what}: got {shown(value)}; it must be a list of dictionaries")
    found: dict[int, Grid] = {}
    for entry in value:
        if not isinstance(entry, dict) or MODEL_ID not in entry:
            raise InvalidArgument(
                f"{what}: got {shown(entry)}; it must be a dictionary such as "
                "{'model_id': [1], 'dropout': [0.1, 0.2]}"
            )
        own = parse({key: one for key, one in entry.items() if key != MODEL_ID}, what)
        for model_id in _values(entry[MODEL_ID], MODEL_ID, what):
            if not isinstance(model_id, int) or isinstance(model_id, bool) or model_id in found:
                raise InvalidArgument(
                    f"{what}: got the model_id {shown(model_id)}; allowed: numbers of model_id_list, "
                    "each once"
                )
            found[model_id] = own
    return found


@hinted(
    "fit_params_grid is such as {'batch_size': [16, 32], 'epochs': [1]}; docs/sql/configurations.md "
    "lists the parameters under Fit parameters"
)
def parse_fit_grid(text: str) -> Grid:
    """Parses and checks a fit_params_grid."""
    what = "fit_params_grid"
    given = parse_dict(text, what)
    own = _model_grids(given.pop(MODEL_LIST, None), what, _fit_grid)
    return replace(_fit_grid(given, what), models=own)


def _fit_grid(given: dict[str, Any], what: str) -> Grid:
    # Names that are known, but refused, get a better message when the parameters are parsed.
    for key in given:
        if key not in FIT_KEYS and key not in REFUSED_FIT:
            raise unknown(what, "parameter", key, (*FIT_KEYS, MODEL_LIST))
    return Grid(_space(given, NUMERIC_ARGUMENTS, what))


def _optimizer_spaces(value: object, what: str) -> tuple[Space, ...]:
    what = f"{what}: {OPTIMIZER_LIST}"
    if not isinstance(value, list | tuple) or not value:
        raise InvalidArgument(f"{what}: got {shown(value)}; it must be a list of dictionaries")
    return tuple(_optimizer_space(element, what) for element in value)


def _optimizer_space(value: object, what: str) -> Space:
    if not isinstance(value, dict) or not value:
        raise InvalidArgument(
            f"{what}: got {shown(value)}; it must be a dictionary such as "
            "{'optimizer': ['Adam'], 'lr': [0.01, 0.1]}"
        )
    named = {key: entry for key, entry in value.items() if key != "optimizer"}
    names = _values(value.get("optimizer", [_DEFAULT_OPTIMIZER]), "optimizer", what)
    classes = [_optimizer_class(name, what) for name in names]
    arguments: dict[str, Argument] = {}
    for name in reversed(classes):
        arguments |= optimizer_named(name, what)[1]
    for key in named:
        if key not in arguments and key not in REFUSED_ARGUMENTS:
            raise unknown(what, "argument", str(key), arguments)
    dimensions = _space(named, arguments, what)
    return {"optimizer": Choices(tuple(dict.fromkeys(classes))), **dimensions}


def _optimizer_class(value: object, what: str) -> str:
    call = value if isinstance(value, Call) else parse_call(value, what)  # type: ignore[arg-type]
    if call.arguments or call.values:
        raise InvalidArgument(
            f"{what}: got arguments inside 'optimizer'; give them as keys beside it, such as "
            "{'optimizer': ['Adam'], 'lr': [0.01]}"
        )
    return optimizer_named(call.name, what)[0]


def _space(given: Mapping[str, Any], numeric: Mapping[str, Argument], what: str) -> Space:
    return {key: _dimension(value, key, numeric.get(key), what) for key, value in given.items()}


def _dimension(value: object, key: str, argument: Argument | None, what: str) -> Dimension:
    values = _values(value, key, what)
    if _looks_like_range(values):
        return _range(values, key, argument, what)
    return Choices(tuple(values))


def _values(value: object, key: str, what: str) -> list[Any]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidArgument(
            f"{what}: got {shown(key)}={shown(value)}; it must be a list of at least one value, such as "
            f"'{key}': [value, ...]"
        )
    return list(value)


def _looks_like_range(values: list[Any]) -> bool:
    """As in MADlib: numbers followed by one text; after which there may be a step."""
    if _has_step(values):
        return True
    numbers = [isinstance(value, int | float) for value in values[:-1]]
    return bool(numbers) and all(numbers) and isinstance(values[-1], str)


def _has_step(values: list[Any]) -> bool:
    return len(values) == _WITH_STEP and values[2] in DISTRIBUTIONS


def _range(values: list[Any], key: str, argument: Argument | None, what: str) -> Range:
    got = f"{what}: got the range {key}={shown(values)}"
    has_step = _has_step(values)
    values, steps = (values[:3], values[3:]) if has_step else (values, [])
    if values[-1] not in DISTRIBUTIONS:
        raise InvalidArgument(f"{got}; {nearest(values[-1], DISTRIBUTIONS)}")
    if key in REFUSED_ARGUMENTS:
        raise InvalidArgument(f"{what}: got {key!r}; {REFUSED_ARGUMENTS[key]}")
    if argument is None or not argument.kind.is_numeric:
        raise InvalidArgument(f"{got}; only parameters that are numbers can have a range")
    if len(values) != 3 or not _ascends(*values[:2]):
        raise InvalidArgument(f"{got}; it must be [low, high, distribution] with low below high")
    low, high, distribution = values
    if distribution == "log" and low <= 0:
        raise InvalidArgument(f"{got}; 'log' needs bounds above 0")
    if distribution == "log_near_one" and high >= 1:
        raise InvalidArgument(f"{got}; 'log_near_one' needs bounds below 1")
    for bound in (low, high):
        argument.validated(bound, what)
    whole = argument.kind.is_whole
    step = _step(steps[0], (low, high), distribution, whole, got) if steps else 0.0
    return Range(float(low), float(high), distribution, whole, step)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ascends(low: Any, high: Any) -> bool:
    return _is_number(low) and _is_number(high) and low < high


def _step(
    step: Any, bounds: tuple[float, float], distribution: str, whole: bool, got: str
) -> float:
    """The step of a range; refuses those that do not lead from one bound towards the other."""
    low, high = bounds
    if not _is_number(step) or not 0 < step <= high - low or distribution != "linear":
        raise InvalidArgument(
            f"{got}; allowed after 'linear': a step above 0, up to the distance of the bounds"
        )
    if whole and step != int(step):
        raise InvalidArgument(f"{got}; the step of a whole number must be one")
    return float(step)


def _suited(name: str, dimension: Dimension, suits: Callable[[str, Any], bool]) -> Dimension | None:
    if isinstance(dimension, Range):
        return dimension if suits(name, dimension.low) else None
    kept = tuple(value for value in dimension.values if suits(name, value))
    return dimension if kept == dimension.values else Choices(kept) if kept else None


def _optimizer_text(values: Mapping[str, Any]) -> str:
    arguments = {key: value for key, value in values.items() if key != "optimizer"}
    return optimizer_text(values["optimizer"], arguments)


def _combinations(space: Space) -> list[dict[str, Any]]:
    lists = [
        dimension.values if isinstance(dimension, Choices) else () for dimension in space.values()
    ]
    return [dict(zip(space, values, strict=True)) for values in product(*lists)]


def _drawn(space: Space, generator: np.random.Generator) -> dict[str, Any]:
    return {key: dimension.sample(generator) for key, dimension in space.items()}


def _size(space: Space) -> float:
    sizes = [len(d.values) if isinstance(d, Choices) else math.inf for d in space.values()]
    return math.prod(map(float, sizes))  # which overflows to infinity, as whole numbers do not
