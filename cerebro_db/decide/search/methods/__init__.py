"""Methods of a search, by their names. A further one is a class in a module here, and a line of this list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_db.configs.arguments import named_arguments, nearest
from cerebro_db.configs.grammar import Call, parse_keywords
from cerebro_db.configs.messages import shown
from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.methods.asha import Asha
from cerebro_db.decide.search.methods.bracketed import Bohb, Halving, Hyperband
from cerebro_db.decide.search.methods.external import External
from cerebro_db.decide.search.methods.full import CmaEs, Gp, Grid, Random, Tpe
from cerebro_db.decide.search.methods.population import Population
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.trials import Method
from cerebro_db.errors import InvalidArgument, hinted

METHODS: dict[str, type[Method]] = {
    one.name: one
    for one in (
        Grid, Random, Halving, Hyperband, Asha, Tpe, Bohb, Population, Gp, CmaEs, External,
    )
}  # fmt: skip
HYPEROPT = "hyperopt"
_ALIASES = {"sha": Halving.name}
_ALGORITHMS = {"tpe": Tpe.name, "rand": Random.name, "random": Random.name}
_ALGORITHM = "algorithm"
_PLACES = 2
# Trials of a method that does not learn which are begun together; others begin as places become free.
_MOST_PLACES = 1_000


@hinted(
    "automl_params are such as 'R=9, eta=3, skip_last=0'; docs/search.md lists those of each method"
)
def parse_method(
    automl_method: str | None, automl_params: str | None
) -> tuple[str, dict[str, Any]]:
    """Parses for example ``'hyperband'``, ``'R=9, eta=3, skip_last=0'``; None for the defaults.

    Returns:
        The method, and all of its parameters. MADlib's ``hyperopt`` is another name of ``tpe``, or
        with ``algorithm=rand`` of ``random``.

    Raises:
        InvalidArgument: there is no such method, or it has no such parameter or value.
    """
    method = _method_name(automl_method)
    given = parse_keywords(automl_params or "", "automl_params")
    found = METHODS[_of_hyperopt(given) if method == HYPEROPT else method]
    what = f"automl_params of {method}"
    params = found.validated(named_arguments(given, found.parameters, what))
    return found.name, params


@hinted(
    "automl_params are such as 'num_configs=10' or 'R=27': more of those that the search began with"
)
def parse_more(method: str, params: Mapping[str, Any], automl_params: str | None) -> dict[str, Any]:
    """Parses what a search shall have more of: those parameters of its method that are given.

    Args:
        method: of the search.
        params: that it began with.
        automl_params: as given.

    Raises:
        InvalidArgument: the method has no such parameter, there cannot be more of it, or it cannot
            have that value.
    """
    return checked_more(method, params, parse_keywords(automl_params or "", "automl_params"))


def checked_more(
    method: str, params: Mapping[str, Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Check parameters of which a search shall have more, as ``parse_more`` does with a text."""
    what, found = f"automl_params of {method}", METHODS[method]
    allowed = ", ".join(one.name for one in found.more())
    for key in keywords:
        if key in {one.name for one in found.parameters} - {one.name for one in found.more()}:
            raise InvalidArgument(
                f"{what}: got {key} for a search that goes on; allowed: {allowed}",
                hint=f"{key} stays as the search began with it",
            )
    given = named_arguments(keywords, found.more(), what)
    more = {
        one.name: one.validated(given[one.name], what) for one in found.more() if one.name in given
    }
    found.check_more(params, more, what)
    return more


def _method_name(given: str | None) -> str:
    """The name of a method; case, and what joins words, do not matter."""
    if given is None:
        return Hyperband.name
    names = (*METHODS, HYPEROPT)
    text = str(given).strip().lower()
    for name in names:
        if _bare(name) == _bare(_ALIASES.get(text, text)):
            return name
    raise InvalidArgument(
        f"automl_method: got {shown(given)}; allowed: {', '.join(names)}",
        hint=nearest(text[:80], names),
    )


def _bare(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "")


def _of_hyperopt(given: dict[str, Any]) -> str:
    """The method that MADlib's `algorithm` stands for; takes it out of what is given."""
    key = next((key for key in given if key.lower() == _ALGORITHM), None)
    value = given.pop(key) if key is not None else Tpe.name
    name = value.name if isinstance(value, Call) and not value.arguments else value
    found = _ALGORITHMS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgument(
            f"automl_params of {HYPEROPT}: got algorithm={shown(name)}; allowed: "
            f"{', '.join(map(repr, _ALGORITHMS))}"
        )
    return found


def method_of(spec: SearchSpec) -> Method:
    """The method of a search, at its beginning."""
    return METHODS[spec.method](spec)


def most_trials(spec: SearchSpec) -> int:
    """Trials of a search, at most."""
    size = Explorer(spec.space).size
    wanted = METHODS[spec.method](spec).trials()
    return int(max(1, min(size, wanted, spec.budget.max_configurations)))


def total_epochs(spec: SearchSpec) -> float:
    """Epochs of all trials of a search together, about."""
    method = METHODS[spec.method](spec)
    return min(method.total(most_trials(spec)), spec.budget.max_epochs)


def first_epochs(spec: SearchSpec) -> int:
    """Epochs with which the first trial of a search begins; 1 where others propose it."""
    wanted = method_of(spec).next({})
    return 1 if wanted is None else wanted.budget


def default_places(spec: SearchSpec, partitions: int) -> int:
    """Number of trials that are trained at the same time.

    Where results decide what is tried next, enough that no worker waits for one of them: a worker has
    a partition, and a trial that waits for its next one is another's. With more of them the best would
    come to their last epochs only when all others do. Else all, up to some number: those that there are
    then fill whatever is free, and the search begins as soon with many trials as with few.
    """
    if METHODS[spec.method].is_staged:
        return min(_PLACES * partitions, most_trials(spec))
    return min(_MOST_PLACES, most_trials(spec))
