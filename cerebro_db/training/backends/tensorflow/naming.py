"""Names of the arrays of a state: those of a model, of its optimizer, and of averages of its weights."""

from __future__ import annotations

import re
import zlib
from typing import Any

import keras

from cerebro_db.training.state import AVERAGES, OPTIMIZER, WEIGHTS

_UNNAMED = "variable"
_COUNTED = re.compile(rf"{_UNNAMED}_\d+")


def named_model_variables(model: keras.Model) -> dict[str, Any]:
    """``weights/...`` in the order of ``get_weights()``, then generators and the like."""
    known = {id(variable) for variable in model.weights}
    others = [variable for variable in model.non_trainable_variables if id(variable) not in known]
    named = {f"{WEIGHTS}{i}/{_name(one)}": one for i, one in enumerate(model.weights)}
    named |= {f"others/{i}/{variable.name}": variable for i, variable in enumerate(others)}
    return named


def _name(variable: Any) -> str:
    """The name of a weight; those without one Keras counts up in each process."""
    return _UNNAMED if _COUNTED.fullmatch(variable.name) else str(variable.name)


def named_variables(model: keras.Model, optimizer: Any) -> dict[str, Any]:
    """Variables of a model and its optimizer, which is built, by name."""
    named = named_model_variables(model)
    inner, parts = _inner(optimizer), _parts(optimizer)
    averages = _averages(model, parts)
    passed, prefix = {id(one) for one in averages.values()}, OPTIMIZER
    if isinstance(inner, keras.optimizers.MultiOptimizer):
        # Each part has a learning rate of its own, which is a number of the program.
        passed |= {id(one._learning_rate) for one in (inner, *inner.optimizers)}
        prefix += f"{_division(model, parts)}/"
    for place, variable in enumerate(optimizer.variables):
        # The rest of a slot's name holds names of layers, which Keras counts up in each process.
        slot = variable.name.rpartition("_")[2]
        name = "learning_rate" if variable is inner._learning_rate else f"{place}/{slot}"
        if id(variable) not in passed:
            named[prefix + name] = variable
    return named | averages


def copies_of_weights(model: keras.Model, optimizer: Any) -> dict[str, str]:
    """Names of what an optimizer begins as a copy of a weight, each with that weight's name."""
    kind = keras.optimizers.ScheduleFreeAdamW
    copying = [part for part in _parts(optimizer) if isinstance(part, kind)]
    if not copying:
        return {}
    names = {id(variable): name for name, variable in named_variables(model, optimizer).items()}
    return {
        names[id(slot)]: names[id(variable)]
        for part in copying
        for slot, variable in zip(part._momentums, part._trainable_variables, strict=True)
    }


def _division(model: keras.Model, parts: list[Any]) -> str:
    """Weights that each part trains: slots of one division mean nothing to another one."""
    places = {id(variable): place for place, variable in enumerate(model.weights)}
    of_parts = [
        (type(part).__name__, [places[id(variable)] for variable in part._trainable_variables])
        for part in parts
    ]
    return f"{zlib.crc32(repr(of_parts).encode()):08x}"


def _inner(optimizer: Any) -> Any:
    """The optimizer itself, where its losses are scaled."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _parts(optimizer: Any) -> list[Any]:
    """The optimizers that train weights: of a MultiOptimizer those that it has."""
    inner = _inner(optimizer)
    several = isinstance(inner, keras.optimizers.MultiOptimizer)
    return [part for part in inner.optimizers if part.built] if several else [inner]


def _averages(model: keras.Model, parts: list[Any]) -> dict[str, Any]:
    """``averages/...`` of optimizers that keep such, with the names of their weights."""
    weights = {id(variable): name for name, variable in named_model_variables(model).items()}
    return {
        AVERAGES + weights[id(variable)].removeprefix(WEIGHTS): average
        for part in parts
        if part.use_ema
        for variable, average in zip(
            part._trainable_variables, part._model_variables_moving_average, strict=True
        )
        if average is not None
    }
