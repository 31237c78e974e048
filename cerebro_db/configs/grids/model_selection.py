"""Turns model ids and grids, or lists, of parameters into configurations, as MADlib does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from cerebro_db.configs.frameworks import Framework, meaning
from cerebro_db.configs.grids.grid import MODEL_LIST, Grid, parse_compile_grid, parse_fit_grid
from cerebro_db.configs.grids.parameters import (
    ConfigurationText,
    FitParams,
    compile_text,
    fit_text,
    parse_fit_params,
)
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

MAX_CONFIGURATIONS = 100_000
_SEARCH_TYPES = ("grid", "random")
MAX_CHARACTERS = 16 * 2**20
_DRAWS_PER_CONFIGURATION = 20
_DRAWS_IN_VAIN = 1000
_ROWS_BETWEEN_TICKS = 1000


def generate(
    model_ids: Sequence[int | None] | None,
    compile_params_grid: str,
    fit_params_grid: str,
    search_type: str = "grid",
    num_configs: int | None = None,
    random_state: int | None = None,
    tick: Callable[[], None] = lambda: None,
    suits: Suits | None = None,
    frameworks: Frameworks | None = None,
) -> list[ConfigurationText]:
    """Returns the configurations of a grid search or of a random search, without duplicates.

    The order of a grid is: models outermost, then the optimizers, then the other compile
    parameters, then the fit parameters, each in the order written; the last changes fastest.
    Many take a while: ``tick`` is called meanwhile and may raise to cancel. A parameter is left
    out for the models that it does not suit, which ``suits`` tells. What is a duplicate depends on
    the framework of a model, since defaults do.
    """
    frameworks = frameworks or {}
    search = _search_type(search_type)
    models = checked_model_ids(model_ids)
    compiles, fits = parse_compile_grid(compile_params_grid), parse_fit_grid(fit_params_grid)
    grids = {model_id: (_of(compiles, model_id, suits), fits.of(model_id)) for model_id in models}
    _check_models(models, compiles, fits)
    if search == "grid":
        return _grid_search(grids, num_configs, random_state, tick, frameworks)
    count = _positive(num_configs, "num_configs")
    possible = _size(grids)
    if count > possible:
        raise _too_few(count, possible)
    if random_state is not None:
        _whole(random_state, "random_state", 0, 2**63 - 1)
    import numpy as np  # late: requests are checked without it

    generator = np.random.Generator(np.random.PCG64(random_state))
    return _random_search(grids, count, generator, tick, frameworks)


Suits = Callable[[int, str, Any], bool]
"""Whether a value of a compile parameter suits a model: model_id, parameter, value."""
Grids = Mapping[int, tuple[Grid, Grid]]
Frameworks = Mapping[int, Framework]
"""The framework of each model, by model_id; of models that are not there, whichever understands the parameters."""


def _of(grid: Grid, model_id: int, suits: Suits | None) -> Grid:
    own = grid.of(model_id)
    if suits is None:
        return own
    return own.suited(lambda name, value: suits(model_id, name, value))


def _size(grids: Grids) -> float:
    return sum(compiles.size() * fits.size() for compiles, fits in grids.values())


def _check_models(models: list[int], compile_grid: Grid, fit_grid: Grid) -> None:
    for grid, what in ((compile_grid, "compile"), (fit_grid, "fit")):
        unknown = sorted(set(grid.models) - set(models))
        if unknown:
            raise InvalidArgument(
                f"{what}_params_grid: {MODEL_LIST}: got the model_id {unknown[0]}; allowed: those of "
                f"model_id_list, {shown(models)}"
            )


def combine(
    model_ids: Sequence[int | None] | None,
    compile_params_list: Sequence[str | None] | None,
    fit_params_list: Sequence[str | None] | None,
    frameworks: Frameworks | None = None,
) -> list[ConfigurationText]:
    """Returns every combination of models and parameter strings, kept as written.

    Strings that mean the same to the framework of a model count once. The order is that of the lists,
    models outermost.
    """
    models = checked_model_ids(model_ids)
    compiles = _texts(compile_params_list, "compile")
    fits = _first_of_each(_texts(fit_params_list, "fit"), parse_fit_params)
    parser = _Parser(frameworks or {})
    of = {one: _first_of_each(compiles, partial(parser.compile, one)) for one in models}
    _check_count(sum(map(len, of.values())) * len(fits))
    return [
        ConfigurationText(model_id, *pair)
        for model_id, own in of.items()
        for pair in product(own, fits)
    ]


def _first_of_each(texts: list[str], parse: Callable[[str], Hashable]) -> list[str]:
    """Of texts that mean the same, keeps the first."""
    found: dict[Hashable, str] = {}
    for text in texts:
        found.setdefault(parse(text), text)
    return list(found.values())


class _Parser:
    """Parses parameter strings, each once: a grid repeats them many times."""

    def __init__(self, frameworks: Frameworks) -> None:
        self._frameworks = frameworks
        self._compile: dict[tuple[str, str], Hashable] = {}
        self._fit: dict[str, FitParams] = {}

    def compile(self, model_id: int, text: str) -> Hashable:
        framework = self._frameworks.get(model_id)
        key = (framework.name if framework else "", text)
        if key not in self._compile:
            self._compile[key] = meaning(text, framework)
        return self._compile[key]

    def fit(self, text: str) -> FitParams:
        if text not in self._fit:
            self._fit[text] = parse_fit_params(text)
        return self._fit[text]


def _grid_search(
    grids: Grids,
    num_configs: int | None,
    random_state: int | None,
    tick: Callable[[], None],
    frameworks: Frameworks,
) -> list[ConfigurationText]:
    for name, value in (("num_configs", num_configs), ("random_state", random_state)):
        if value is not None:
            raise InvalidArgument(
                f"{name}: got {value!r}; it must be NULL for a grid search",
                "Use search_type := 'random' to draw configurations at random.",
            )
    for pair in grids.values():
        for grid, what in zip(pair, ("compile", "fit"), strict=True):
            if grid.has_range():
                raise InvalidArgument(
                    f"{what}_params_grid: got a range; a grid search allows lists of values only",
                    "Use search_type := 'random' with num_configs.",
                )
    _check_count(_size(grids))
    return list(_distinct(_rows(grids), tick, frameworks))


def _rows(grids: Grids) -> Iterator[ConfigurationText]:
    for model_id, (compile_grid, fit_grid) in grids.items():
        compiles = _within_limit(compile_text(values) for values in compile_grid.combinations())
        fits = _within_limit(fit_text(values) for values in fit_grid.combinations())
        for compile_params, fit_params in product(compiles, fits):
            yield ConfigurationText(model_id, compile_params, fit_params)


def _within_limit(texts: Iterable[str]) -> list[str]:
    found, characters = [], 0
    for text in texts:
        characters += len(text)
        _check_characters(characters)
        found.append(text)
    return found


def _random_search(
    grids: Grids,
    count: int,
    generator: np.random.Generator,
    tick: Callable[[], None],
    frameworks: Frameworks,
) -> list[ConfigurationText]:
    found: list[ConfigurationText] = []
    models = list(grids)

    def draws() -> Iterator[ConfigurationText]:
        vain = 0
        # Many draws bring nothing new where most has been found, but not for ever.
        while vain < _DRAWS_IN_VAIN + _DRAWS_PER_CONFIGURATION * len(found):
            before = len(found)
            model_id = models[int(generator.integers(len(models)))]
            compile_grid, fit_grid = grids[model_id]
            yield ConfigurationText(
                model_id,
                compile_text(compile_grid.sample(generator)),
                fit_text(fit_grid.sample(generator)),
            )
            vain = vain + 1 if len(found) == before else 0

    characters = 0
    for row in _distinct(draws(), tick, frameworks):
        found.append(row)
        characters += len(row.compile_params) + len(row.fit_params)
        _check_characters(characters)
        if len(found) == count:
            return found
    raise _too_few(count, len(found))


def _too_few(count: int, found: float) -> InvalidArgument:
    return InvalidArgument(
        f"num_configs: got {count}; only {found:.0f} different configurations are in the grid",
        "Ask for fewer, or add values or ranges.",
    )


def _distinct(
    rows: Iterable[ConfigurationText], tick: Callable[[], None], frameworks: Frameworks
) -> Iterator[ConfigurationText]:
    """Validates rows and leaves out those that mean the same as an earlier one."""
    parser = _Parser(frameworks)
    seen: set[tuple[int, Hashable, FitParams]] = set()
    for number, row in enumerate(rows):
        if number % _ROWS_BETWEEN_TICKS == 0:
            tick()
        meaning = (
            row.model_id,
            parser.compile(row.model_id, row.compile_params),
            parser.fit(row.fit_params),
        )
        if meaning not in seen:
            seen.add(meaning)
            yield row


def _search_type(value: object) -> str:
    """Returns the search type of a name or of its beginning, as in MADlib."""
    if isinstance(value, str) and value:
        for search in _SEARCH_TYPES:
            if search.startswith(value.lower()):
                return search
    given = "NULL" if value is None else shown(value)
    raise InvalidArgument(f"search_type: got {given}; it must be 'grid' or 'random'")


def checked_model_ids(values: Sequence[int | None] | None) -> list[int]:
    """Ids of models, each once; at least one.

    Raises:
        InvalidArgument: there is none, or one is NULL or there twice.
    """
    if not values:
        raise InvalidArgument("model_id_list: got no model; at least one is needed")
    models = [_whole(value, "model_id_list", -(2**31), 2**31 - 1) for value in values]
    if len(set(models)) < len(models):
        raise InvalidArgument(
            f"model_id_list: got {shown(models)}; every model is allowed only once"
        )
    return models


def _texts(values: Sequence[str | None] | None, kind: str) -> list[str]:
    what = f"{kind}_params_list"
    if not values:
        raise InvalidArgument(f"{what}: got no parameters; at least one text is needed")
    for position, value in enumerate(values, start=1):
        if not isinstance(value, str):
            given = "NULL" if value is None else shown(value)
            raise InvalidArgument(f"{what}: got {given} at position {position}; it must be a text")
    return [value.strip() for value in values if value is not None]


def _positive(value: object, what: str) -> int:
    return _whole(value, what, 1, MAX_CONFIGURATIONS)


def _whole(value: object, what: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        given = "NULL" if value is None else shown(value)
        raise InvalidArgument(
            f"{what}: got {given}; it must be a whole number from {low} to {high}"
        )
    return value


def _check_count(count: float) -> None:
    if count > MAX_CONFIGURATIONS:
        raise InvalidArgument(
            f"the parameters make {count:.0f} configurations; at most {MAX_CONFIGURATIONS} are "
            "allowed",
            "Use search_type := 'random' to try some of them.",
        )


def _check_characters(count: int) -> None:
    if count > MAX_CHARACTERS:
        raise InvalidArgument(
            f"the parameters make more than the {MAX_CHARACTERS} characters of text that are allowed",
            "Ask for fewer configurations, or write shorter parameters.",
        )
