"""Parameters of a configuration with some of them changed."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.functions.optimizers import ARGUMENT_ALIASES, DECAY
from cerebro_db.configs.grammar import Call, call_of, named_values, parse_keywords
from cerebro_db.configs.grids.parameters import (
    COMPILE_KEYS,
    FIT_KEYS,
    parse_compile_params,
    parse_fit_params,
)
from cerebro_db.configs.grids.texts import compile_text, fit_text
from cerebro_db.configs.names import find_optimizer
from cerebro_db.errors import hinted

_OPTIMIZER = "optimizer"


@hinted(
    "changes are such as 'lr=0.003, batch_size=64': compile parameters, fit parameters, and "
    "arguments of the optimizer"
)
def changed(
    compile_params: str, fit_params: str, changes: str, what: str = "changes"
) -> tuple[str, str]:
    """The compile and fit parameters after changes such as ``'lr=0.003, batch_size=64'``.

    A name is a compile parameter, a fit parameter, or else an argument of the optimizer; with another
    ``optimizer`` the arguments of the one before are gone.

    Raises:
        InvalidArgument: there is no such parameter, or it cannot have that value.
    """
    compiling = parse_keywords(compile_params, "compile_params")
    fitting = parse_keywords(fit_params, "fit_params")
    arguments: dict[str, Any] = {}
    for key, value in parse_keywords(changes, what).items():
        place = compiling if key in COMPILE_KEYS else fitting if key in FIT_KEYS else arguments
        place[key] = value
    if arguments:
        compiling[_OPTIMIZER] = _with_arguments(compiling[_OPTIMIZER], arguments, what)
    texts = compile_text(compiling), fit_text(fitting)
    parse_compile_params(texts[0])
    parse_fit_params(texts[1])
    return texts


def _with_arguments(optimizer: object, arguments: dict[str, Any], what: str) -> str:
    """The text of an optimizer with other arguments."""
    call = call_of(optimizer, _OPTIMIZER, what)
    entry = find_optimizer(call.name, what)
    names = [argument.name for argument in entry.arguments]
    allowed = (*COMPILE_KEYS, *FIT_KEYS, *names, *ARGUMENT_ALIASES, DECAY.name)
    found = named_values(call, tuple(names[: entry.by_place]), what)
    for key, value in arguments.items():
        if key not in allowed:
            raise unknown(what, "parameter", key, allowed)
        for other in [one for one in found if _same(one, key)]:
            del found[other]
        found[key] = value
    return repr(Call(entry.name, tuple(found.items())))


def _same(name: str, other: str) -> bool:
    return ARGUMENT_ALIASES.get(name, name) == ARGUMENT_ALIASES.get(other, other)
