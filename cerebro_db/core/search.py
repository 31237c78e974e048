"""A search as values: what it explores, by which method, what it looks for, when it stops."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from cerebro_db.core.spec import TRAINING, VALIDATION
from cerebro_db.errors import InvalidData

if TYPE_CHECKING:
    from cerebro_db.configs.grids.grid import Grid

UNLIMITED = 2**63 - 1
AUTO, MAXIMISE, MINIMISE = "auto", "max", "min"


@dataclass(frozen=True)
class Space:
    """The configurations that a search chooses from, as texts in the grammar of grids.

    Attributes:
        model_ids: of the architecture table.
        compile_params_grid, fit_params_grid: as for ``cerebro_generate_configs``.
        left_out: compile parameters that an architecture has no layers for, by its model_id.
    """

    model_ids: tuple[int, ...]
    compile_params_grid: str
    fit_params_grid: str
    left_out: Mapping[int, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @functools.cached_property
    def compile_grid(self) -> Grid:
        """The compile parameters, parsed."""
        from cerebro_db.configs.grids.grid import parse_compile_grid  # which needs NumPy

        return replace(parse_compile_grid(self.compile_params_grid), without=self.left_out)

    @functools.cached_property
    def fit_grid(self) -> Grid:
        """The fit parameters, parsed."""
        from cerebro_db.configs.grids.grid import parse_fit_grid

        return parse_fit_grid(self.fit_params_grid)

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON."""
        found: dict[str, Any] = {
            "model_ids": list(self.model_ids),
            "compile_params_grid": self.compile_params_grid,
            "fit_params_grid": self.fit_params_grid,
        }
        if self.left_out:
            found["left_out"] = {str(key): list(names) for key, names in self.left_out.items()}
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Space:
        """Reads the result of ``to_json``."""
        left_out = {int(key): tuple(names) for key, names in value.get("left_out", {}).items()}
        return cls(
            tuple(value["model_ids"]),
            value["compile_params_grid"],
            value["fit_params_grid"],
            left_out,
        )


@dataclass(frozen=True)
class Aim:
    """A part of an objective as a caller names it.

    Attributes:
        monitor: as callbacks name it: ``val_accuracy``, ``loss``.
        mode: ``max``, ``min`` or ``auto``: as is known of the metric.
    """

    monitor: str
    mode: str = AUTO


@dataclass(frozen=True)
class Objective:
    """Goal of a search.

    Attributes:
        metric: ``loss``, or the label of a metric.
        dataset: ``training`` or ``validation``.
        maximise: whether more is better.
    """

    metric: str
    dataset: str
    maximise: bool

    @property
    def monitor(self) -> str:
        """Its name in the logs of Keras."""
        return ("val_" if self.dataset == VALIDATION else "") + self.metric

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON."""
        return {"metric": self.metric, "dataset": self.dataset, "maximise": self.maximise}


@dataclass(frozen=True)
class EarlyStopping:
    """Conditions that stop a trial before its epochs are over; a loss that is no number always does it.

    Attributes:
        patience: epochs without improvement after which a trial stops; 0 for never.
        least_improvement: by which a value must be better to count.
        median_after: a trial stops whose best value is worse than the median, after the same epoch,
            of at least so many others that have come to their end; 0 for never.
        first_epoch: from which on trials are stopped.
        target: the search ends with the first trial whose objective is as good; NaN for none.
    """

    patience: int = 0
    least_improvement: float = 0.0
    median_after: int = 0
    first_epoch: int = 1
    target: float = math.nan

    @property
    def watches(self) -> bool:
        """True if each epoch is looked at."""
        return bool(self.patience or self.median_after) or self.has_target

    @property
    def has_target(self) -> bool:
        """True if the search ends when a value is reached."""
        return not math.isnan(self.target)

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON: all that is not left at its default."""
        found = {key: value for key, value in vars(self).items() if value != _STOPPING[key]}
        return {key: value for key, value in found.items() if value == value}


_STOPPING: Mapping[str, Any] = MappingProxyType(vars(EarlyStopping()))


@dataclass(frozen=True)
class Budget:
    """After which a search begins nothing any more.

    Attributes:
        max_seconds: on the clock of the driver; what goes on then is stopped where it is.
        max_epochs: of all trials together.
        max_configurations: that are tried.
    """

    max_seconds: float = math.inf
    max_epochs: int = UNLIMITED
    max_configurations: int = UNLIMITED

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON: the limits that there are."""
        return {key: value for key, value in vars(self).items() if value not in _NO_LIMITS}


_NO_LIMITS = (math.inf, UNLIMITED)


@dataclass(frozen=True)
class Earlier:
    """A trial of an earlier run, which a method learns from.

    Attributes:
        parameters: by the names of the dimensions.
        epochs: after which it was measured.
        values: of the objectives.
    """

    parameters: Mapping[str, Any]
    epochs: int
    values: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON."""
        return {
            "parameters": dict(self.parameters),
            "epochs": self.epochs,
            "values": list(self.values),
        }


@dataclass(frozen=True)
class SearchSpec:
    """All that the course of a search depends on; stored with its run.

    Attributes:
        method: one of ``configs.grids.search_methods.METHODS``.
        params: all of its parameters.
        objectives: one, or several for the Pareto set.
        seed: of what is drawn.
        concurrency: trials that are trained at the same time, in the virtual schedule; at least 1.
        deterministic: whether results are taken in the order of the virtual schedule; else as they come.
        goal: by which the run's configurations are ranked elsewhere.
        earlier: trials to learn from.
        measured: data sets on which trials are scored; those that decide, if nobody wants more.
        shared_epochs: of all trials that share a compiled program, about; whether it is worth while
            to compile for them depends on it.
        given: what the caller has given, as texts, for the output tables.
        replays: decisions that are repeated, in place of those of the method.
    """

    method: str
    params: Mapping[str, Any]
    space: Space
    objectives: tuple[Objective, ...]
    early_stopping: EarlyStopping = field(default_factory=EarlyStopping)
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    concurrency: int = UNLIMITED
    deterministic: bool = True
    goal: str = "loss"
    earlier: tuple[Earlier, ...] = ()
    measured: tuple[str, ...] = ()
    shared_epochs: int = 1
    given: Mapping[str, str] = field(default_factory=dict)
    replays: tuple[Mapping[str, Any], ...] = ()

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets whose scores decide, in their usual order."""
        wanted = {one.dataset for one in self.objectives}
        return tuple(name for name in (TRAINING, VALIDATION) if name in wanted)

    def to_text(self) -> str:
        """JSON."""
        return json.dumps(
            {
                "method": self.method,
                "params": dict(self.params),
                "space": self.space.to_json(),
                "objectives": [one.to_json() for one in self.objectives],
                "early_stopping": self.early_stopping.to_json(),
                "budget": self.budget.to_json(),
                "seed": self.seed,
                "concurrency": self.concurrency,
                "deterministic": self.deterministic,
                "goal": self.goal,
                "earlier": [one.to_json() for one in self.earlier],
                "measured": list(self.measured),
                "shared_epochs": self.shared_epochs,
                "given": dict(self.given),
                "replays": list(self.replays),
            },
            sort_keys=True,
            default=repr,  # a call within a grid is shown as its text
        )

    @classmethod
    def from_text(cls, text: str) -> SearchSpec:
        """Reads the result of ``to_text``.

        Raises:
            InvalidData: it is something else, with the path of what is wrong.
        """
        value = _Stored(text)
        return cls(
            method=value.of("method", str),
            params=value.of("params", dict),
            space=value.made("space", Space.from_json),
            objectives=value.made(
                "objectives", lambda all_: tuple(Objective(**one) for one in all_)
            ),
            early_stopping=value.made("early_stopping", lambda one: EarlyStopping(**one)),
            budget=value.made("budget", lambda one: Budget(**one)),
            seed=value.of("seed", int),
            concurrency=value.of("concurrency", int),
            deterministic=value.of("deterministic", bool),
            goal=value.of("goal", str),
            earlier=value.made("earlier", _earlier),
            measured=tuple(value.of("measured", list, [])),
            shared_epochs=value.of("shared_epochs", int, 1),
            given=value.of("given", dict, {}),
            replays=tuple(value.of("replays", list, [])),
        )


_V = TypeVar("_V")


class _Stored:
    """The JSON of a search as a table has it, which may hold anything.

    Args:
        text: the JSON.
    """

    def __init__(self, text: str) -> None:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _not_ours("search", found)
        self._value = found

    def of(self, name: str, kind: type[_V], default: _V | None = None) -> _V:
        """A part of a kind."""
        found = self._value.get(name, default)
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise _not_ours(f"search.{name}", found)
        return found

    def made(self, name: str, make: Callable[[Any], _V]) -> _V:
        """Object that ``make`` builds from a part, which is None where it is missing."""
        found = self._value.get(name)
        try:
            return make(found)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise _not_ours(f"search.{name}", found) from None


def _earlier(value: Any) -> tuple[Earlier, ...]:
    return tuple(Earlier(one["parameters"], one["epochs"], tuple(one["values"])) for one in value)


def _not_ours(path: str, found: Any) -> InvalidData:
    shown = json.dumps(found)[:60]
    return InvalidData(
        f"{path}: the catalog has {shown} there; allowed: what Cerebro-DB has written",
        hint="the row of the run was changed by hand; begin a new search",
    )
