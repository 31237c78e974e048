"""The space of a search as dimensions: what is drawn, what follows from it, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cerebro_db.configs.functions.optimizers import ARGUMENT_ALIASES
from cerebro_db.configs.grammar import parse_call, parse_keywords
from cerebro_db.configs.grids.grid import Choices, Dimension, Grid, Range
from cerebro_db.configs.grids.parameters import (
    ConfigurationText,
    compile_text,
    fit_text,
    optimizer_text,
)
from cerebro_db.core.spec import Space
from cerebro_db.errors import InvalidArgument

MODEL, OPTIMIZER, METRICS = "model_id", "optimizer", "metrics"
Parameters = Mapping[str, Any]
"""Values by the names of dimensions: all that were chosen, those without a choice among them."""

Category = None | bool | int | float | str


class Suggesting(Protocol):
    """Chooses values: a trial of Optuna, or a generator of random numbers."""

    def suggest_categorical(self, name: str, choices: Sequence[Category]) -> Any:
        """One of some choices."""
        ...

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number between bounds."""
        ...

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """A whole number between bounds."""
        ...


class Drawing:
    """Chooses evenly, at random.

    Args:
        entropy: numbers that all choices depend on.
    """

    def __init__(self, entropy: Sequence[int]) -> None:
        import numpy as np  # late: requests are checked without it

        self._generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def suggest_categorical(self, name: str, choices: Sequence[Category]) -> Any:
        """One of some choices."""
        return choices[int(self._generator.integers(len(choices)))]

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number between bounds."""
        found = Range(low, high, "log" if log else "linear", False, step or 0.0)
        return float(found.sample(self._generator))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """A whole number between bounds, each as probable as the others unless ``log``."""
        if log:
            # As Optuna has it: the bounds are as wide as the others.
            value = Range(low - 0.5, high + 0.5, "log", False).sample(self._generator)
            return min(max(round(value), low), high)
        return low + step * int(self._generator.integers((high - low) // step + 1))


@dataclass(frozen=True)
class _Rule:
    """A dimension under its name in the space, and the parameter that it is of.

    Attributes:
        part: ``compile``, ``fit`` or ``optimizer``.
    """

    name: str
    part: str
    key: str
    dimension: Dimension

    @property
    def argument(self) -> str:
        """The key as the class of an optimizer has it."""
        return ARGUMENT_ALIASES.get(self.key, self.key) if self.part == OPTIMIZER else self.key


class Explorer:
    """Makes configurations of a space.

    Args:
        space: where they are from.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._labels = {id(own): label for own, label in _groups(space)}
        self._grids = {
            model_id: (space.compile_grid.of(model_id), space.fit_grid.of(model_id))
            for model_id in space.model_ids
        }
        _check_models(space)

    def suggest(self, chooser: Suggesting) -> Parameters:
        """Values for all dimensions that there are, chosen one after another."""
        found = {MODEL: choose(chooser, MODEL, Choices(self.space.model_ids))}
        optimizers = self._optimizers(found[MODEL])
        if optimizers:
            name = self._named(found[MODEL], "compile", OPTIMIZER)
            found[name] = choose(chooser, name, Choices(tuple(optimizers)))
        for rule in self._rules(found):
            found[rule.name] = choose(chooser, rule.name, rule.dimension)
        return found

    def text(self, parameters: Parameters) -> ConfigurationText:
        """The row of a table of configurations that values stand for."""
        parts: dict[str, dict[str, Any]] = {"compile": {}, "fit": {}, "optimizer": {}}
        for rule in self._rules(parameters):
            parts[rule.part][rule.key] = parameters[rule.name]
        model_id = parameters[MODEL]
        optimizers = self._optimizers(model_id)
        if optimizers:
            label = parameters[self._named(model_id, "compile", OPTIMIZER)]
            _, name = optimizers[label]
            parts["compile"] = {"optimizer": optimizer_text(name, parts["optimizer"])} | parts[
                "compile"
            ]
        return ConfigurationText(model_id, compile_text(parts["compile"]), fit_text(parts["fit"]))

    def place(self, row: ConfigurationText) -> Parameters | None:
        """The values that stand for a row, None where the space has none such."""
        if row.model_id not in self._grids:
            return None
        given = parse_keywords(row.compile_params, "compile_params")
        found: dict[str, Any] = {MODEL: row.model_id}
        arguments: dict[str, Any] = {}
        optimizers = self._optimizers(row.model_id)
        if optimizers:
            call = _call_of(given)
            fitting = None if call is None else self._fitting(row.model_id, optimizers, call)
            if call is None or fitting is None:
                return None
            arguments = dict(call.arguments)
            found[self._named(row.model_id, "compile", OPTIMIZER)] = fitting
        values = {
            "compile": given,
            "optimizer": _canonical(arguments),
            "fit": parse_keywords(row.fit_params, "fit_params"),
        }
        for rule in self._rules(found):
            value = values[rule.part].get(rule.argument)
            if rule.key == METRICS and not holds(rule.dimension, value):
                value = _only(value)
            if not holds(rule.dimension, value):
                return None
            found[rule.name] = value
        return found

    def has(self, parameters: Parameters) -> bool:
        """True if values are of the space."""
        model_id = parameters.get(MODEL)
        if model_id not in self._grids:
            return False
        optimizers = self._optimizers(model_id)
        if optimizers and (
            parameters.get(self._named(model_id, "compile", OPTIMIZER)) not in optimizers
        ):
            return False
        return all(
            holds(rule.dimension, parameters.get(rule.name)) for rule in self._rules(parameters)
        )

    def has_model(self, model_id: int) -> bool:
        """True if an architecture is of the space."""
        return model_id in self._grids

    def nearby(
        self,
        parameters: Parameters,
        row: ConfigurationText,
        chooser: Suggesting,
        move: Callable[[str, Dimension, Any], Any],
    ) -> Parameters:
        """Values near those of a configuration, which need not be of the space; its architecture is.

        Args:
            parameters: that are known of it, by the names of dimensions.
            row: its texts, which tell of the dimensions that these lack.
            chooser: of what it has no value of.
            move: makes another value of the one of a dimension.
        """
        written = self._written(row)
        found: dict[str, Any] = {MODEL: row.model_id}
        optimizers = self._optimizers(row.model_id)
        if optimizers:
            name = self._named(row.model_id, "compile", OPTIMIZER)
            found[name] = self._optimizer_of(parameters.get(name), row, optimizers) or choose(
                chooser, name, Choices(tuple(optimizers))
            )
        rules = {rule.name: rule for rule in self._rules(found)}
        for name in [*(name for name in parameters if name in rules), *rules]:
            if name in found:
                continue
            rule = rules[name]
            value = parameters.get(name, written.get((rule.part, rule.argument), _MISSING))
            if value is _MISSING:
                found[name] = choose(chooser, name, rule.dimension)
            else:
                found[name] = move(name, rule.dimension, value)
        return found

    def _written(self, row: ConfigurationText) -> dict[tuple[str, str], Any]:
        """The values in the texts of a configuration, by part and key."""
        compiling = parse_keywords(row.compile_params, "compile_params")
        call = _call_of(compiling)
        parts = {
            "compile": compiling,
            OPTIMIZER: {} if call is None else _canonical(dict(call.arguments)),
            "fit": parse_keywords(row.fit_params, "fit_params"),
        }
        return {(part, key): value for part, of in parts.items() for key, value in of.items()}

    def _optimizer_of(
        self, label: Any, row: ConfigurationText, optimizers: Mapping[str, tuple[int, str]]
    ) -> str | None:
        """The optimizer of the space that a configuration has: by its label, its values, or its class."""
        if label in optimizers:
            return str(label)
        call = _call_of(parse_keywords(row.compile_params, "compile_params"))
        if call is None:
            return None
        alike = [one for one, (_, name) in optimizers.items() if name.lower() == call.name.lower()]
        return self._fitting(row.model_id, optimizers, call) or next(iter(alike), None)

    def probes(self) -> list[ConfigurationText]:
        """Configurations that have each value, and both ends of each range, with each architecture."""
        found: dict[ConfigurationText, None] = {}
        for chosen in self._nets():
            ends = {rule.name: _ends(rule.dimension) for rule in self._rules(chosen)}
            for number in range(max(map(len, ends.values()), default=1)):
                values = {name: of[number % len(of)] for name, of in ends.items()}
                found[self.text(chosen | values)] = None
        return list(found)

    def combinations(self) -> Iterator[Parameters]:
        """Every combination of values, where all dimensions are lists; the last changes fastest.

        Raises:
            InvalidArgument: one is a range.
        """
        for chosen in self._nets():
            yield from _combined(chosen, list(self._rules(chosen)))

    @property
    def size(self) -> float:
        """Configurations that it has; infinite where there is a range."""
        return sum(compiling.size() * fitting.size() for compiling, fitting in self._grids.values())

    @property
    def has_range(self) -> bool:
        """True if it has infinitely many configurations."""
        return any(grid.has_range() for pair in self._grids.values() for grid in pair)

    @property
    def is_numeric(self) -> bool:
        """True if each dimension with a choice is a range of numbers."""
        chosen, *others = self._nets()
        return not others and all(
            isinstance(rule.dimension, Range) or len(rule.dimension.values) == 1
            for rule in self._rules(chosen)
        )

    # -- inside ----------------------------------------------------------------------------------
    def _optimizers(self, model_id: int) -> dict[str, tuple[int, str]]:
        """The optimizers by names that tell them apart: index of the alternative, and class."""
        spaces = self._grids[model_id][0].optimizers
        names = [(place, name) for place, one in enumerate(spaces) for name in _classes(one)]
        found = {}
        for place, name in names:
            alone = sum(other == name for _, other in names) == 1
            found[name if alone else f"{name} {place + 1}"] = place, name
        return found

    def _nets(self) -> Iterator[dict[str, Any]]:
        """Each architecture with each of its optimizers."""
        for model_id in self.space.model_ids:
            for label in self._optimizers(model_id) or [None]:
                chosen: dict[str, Any] = {MODEL: model_id}
                if label is not None:
                    chosen[self._named(model_id, "compile", OPTIMIZER)] = label
                yield chosen

    def _rules(self, chosen: Parameters) -> Iterator[_Rule]:
        """The dimensions that there are beside the architecture and the optimizer."""
        model_id = chosen[MODEL]
        compiling, fitting = self._grids[model_id]
        optimizers = self._optimizers(model_id)
        if optimizers:
            label = chosen[self._named(model_id, "compile", OPTIMIZER)]
            place, _ = optimizers[label]
            for key, dimension in compiling.optimizers[place].items():
                if key != OPTIMIZER:
                    several = len(compiling.optimizers) > 1
                    shown = f"{_tag(compiling.optimizers, place)}.{key}" if several else key
                    yield _Rule(self._named(model_id, "compile", shown), OPTIMIZER, key, dimension)
        for part, grid in (("compile", compiling), ("fit", fitting)):
            for key, dimension in grid.dimensions.items():
                yield _Rule(self._named(model_id, part, key), part, key, dimension)

    def _named(self, model_id: int, part: str, key: str) -> str:
        """The name of a dimension: of its own where an architecture has its own."""
        whole = self.space.compile_grid if part == "compile" else self.space.fit_grid
        own = whole.models.get(model_id)
        if own is None:
            return key
        is_own = key in own.dimensions or (
            bool(own.optimizers) and key not in self._grids[model_id][0].dimensions
        )
        return f"{self._labels[id(own)]}.{key}" if is_own else key

    def _fitting(
        self, model_id: int, optimizers: Mapping[str, tuple[int, str]], call: Any
    ) -> str | None:
        """The optimizer of a text among those of the space."""
        given = _canonical(dict(call.arguments))
        for label, (place, name) in optimizers.items():
            rules = self._grids[model_id][0].optimizers[place]
            if call.name.lower() == name.lower() and all(
                holds(one, given.get(ARGUMENT_ALIASES.get(key, key)))
                for key, one in rules.items()
                if key != OPTIMIZER
            ):
                return label
        return None


_MISSING = object()


def _call_of(compile_params: Mapping[str, Any]) -> Any:
    """The optimizer of compile parameters, which may be written as a text; None for none."""
    given = compile_params.get("optimizer")
    return parse_call(given, "compile_params") if isinstance(given, str) else given


def _tag(spaces: Sequence[Mapping[str, Dimension]], place: int) -> str:
    """The name of an alternative: of its optimizers, with its place where others have these too."""
    names = ["|".join(_classes(one)) for one in spaces]
    return names[place] if names.count(names[place]) == 1 else f"{names[place]} {place + 1}"


def _groups(space: Space) -> list[tuple[Grid, str]]:
    """Grids of some architectures only, each under a name."""
    found: dict[int, tuple[Grid, list[int]]] = {}
    for grid in (space.compile_grid, space.fit_grid):
        for model_id, own in grid.models.items():
            found.setdefault(id(own), (own, []))[1].append(model_id)
    return [(own, "model " + "|".join(map(str, sorted(ids)))) for own, ids in found.values()]


def _check_models(space: Space) -> None:
    """Refuses conditions on architectures that are not searched, and architectures without an optimizer."""
    for grid, what in ((space.compile_grid, "compile"), (space.fit_grid, "fit")):
        wrong = sorted(set(grid.models) - set(space.model_ids))
        if wrong:
            raise InvalidArgument(
                f"{what}_params_grid: model_params_list: got the model_id {wrong[0]}; allowed: those "
                f"of model_id_list, {', '.join(map(str, space.model_ids))}"
            )
    for model_id in space.model_ids:
        own = space.compile_grid.of(model_id)
        if not own.optimizers and OPTIMIZER not in own.dimensions:
            raise InvalidArgument(
                f"compile_params_grid: 'optimizer_params_list' is missing for model_id {model_id}; "
                "it must be given"
            )


def _classes(space: Mapping[str, Dimension]) -> tuple[str, ...]:
    named = space[OPTIMIZER]
    assert isinstance(named, Choices)
    return named.values


def _canonical(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {ARGUMENT_ALIASES.get(key, key): value for key, value in arguments.items()}


def choose(chooser: Suggesting, name: str, dimension: Dimension) -> Any:
    """A value of a dimension; one with a single value needs no choice."""
    if isinstance(dimension, Choices):
        values = dimension.values
        if len(values) == 1:
            return values[0]
        categories = _categories(values)
        if isinstance(chooser, Fixed):
            chooser.place = _place_of(chooser.parameters[name], values)
        return values[categories.index(chooser.suggest_categorical(name, categories))]
    if dimension.distribution == "log_near_one":
        low, high = 1.0 - dimension.high, 1.0 - dimension.low
        value = 1.0 - chooser.suggest_float(f"1 - {name}", low, high, log=True)
        value = min(max(value, dimension.low), dimension.high)
        return round(value) if dimension.whole else value
    log = dimension.distribution == "log"
    if dimension.whole:
        low_, high_ = round(dimension.low), round(dimension.high)
        step = round(dimension.step) or 1
        return int(chooser.suggest_int(name, low_, high_, step=step, log=log))
    if dimension.step:
        last = dimension.at(dimension.steps)
        value = chooser.suggest_float(name, dimension.low, last, step=dimension.step)
        return dimension.at(round((value - dimension.low) / dimension.step))
    return float(chooser.suggest_float(name, dimension.low, dimension.high, log=log))


def _categories(values: Sequence[Any]) -> list[Category]:
    """Values as Optuna takes them, all different."""
    found: list[Category] = []
    for value in values:
        plain = value if isinstance(value, str | bool | int | float) or value is None else None
        shown = plain if plain is not None or value is None else repr(value)
        same = any(type(shown) is type(other) and shown == other for other in found)
        found.append(f"{shown} ({len(found) + 1})" if same or shown in found else shown)
    return found


def _shown(value: Any) -> str:
    """Equal for values that mean the same, also where one was a value of JSON meanwhile."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return value if isinstance(value, str) else repr(value)


def _place_of(value: Any, values: Sequence[Any]) -> int:
    """The place of a value among those of a dimension."""
    return [_shown(one) for one in values].index(_shown(value))


def _only(value: Any) -> Any:
    """The element of a list of one, as which a text has a single metric."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def holds(dimension: Dimension, value: Any) -> bool:
    """True if a dimension has a value."""
    if isinstance(dimension, Choices):
        return _shown(value) in map(_shown, dimension.values)
    return is_number(value) and dimension.low <= value <= dimension.high


def is_number(value: Any) -> bool:
    """True for a number, which True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends(dimension: Dimension) -> tuple[Any, ...]:
    if isinstance(dimension, Choices):
        return dimension.values
    ends = (dimension.low, dimension.high)
    return tuple(map(round, ends)) if dimension.whole else ends


def _combined(chosen: Parameters, rules: Sequence[_Rule]) -> Iterator[Parameters]:
    if not rules:
        yield dict(chosen)
        return
    first, rest = rules[0], rules[1:]
    if isinstance(first.dimension, Range):
        raise InvalidArgument(
            f"got a range for {first.key!r}; a grid search allows lists of values only",
            hint="choose another method, such as 'random', or list some values",
        )
    for value in first.dimension.values:
        yield from _combined({**chosen, first.name: value}, rest)


class Fixed:
    """Chooses known values, and notes the bounds that they were chosen from.

    Args:
        parameters: by the names of dimensions.

    Attributes:
        place: of the value of the next choice.
        chosen: what a sampler knows of the parameters.
        bounds: kind and bounds of each.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.place = 0
        self.chosen: dict[str, Any] = {}
        self.bounds: dict[str, tuple[str, dict[str, Any]]] = {}

    def suggest_categorical(self, name: str, choices: Sequence[Category]) -> Any:
        """The category of the value."""
        found = choices[self.place]
        return self._chose(name, found, "categorical", choices=tuple(choices))

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """The number."""
        own = name.removeprefix("1 - ")
        value = float(self.parameters[own])
        value = 1.0 - value if own != name else value
        value = min(max(value, low), high)
        return float(self._chose(name, value, "float", low=low, high=high, step=step, log=log))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """The whole number."""
        value = min(max(round(self.parameters[name]), low), high)
        return int(self._chose(name, value, "int", low=low, high=high, step=step, log=log))

    def _chose(self, name: str, value: Any, kind: str, **bounds: Any) -> Any:
        self.chosen[name] = value
        self.bounds[name] = kind, bounds
        return value
