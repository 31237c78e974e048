"""Names of the arrays of a state: those of a model, of its optimizer, and of averages of its weights."""

from __future__ import annotations

from typing import Any

import keras

from cerebro_db.training.state import AVERAGES, OPTIMIZER, WEIGHTS


def named_model_variables(model: keras.Model) -> dict[str, Any]:
    """``weights/...`` in the order of ``get_weights()``, then generators and the like."""
    known = {id(variable) for variable in model.weights}
    others = [variable for variable in model.non_trainable_variables if id(variable) not in known]
    named = {f"{WEIGHTS}{i}/{variable.name}": variable for i, variable in enumerate(model.weights)}
    named |= {f"others/{i}/{variable.name}": variable for i, variable in enumerate(others)}
    return named


def named_variables(model: keras.Model, optimizer: Any) -> dict[str, Any]:
    """Those of a model that is trained; the optimizer is built."""
    named = named_model_variables(model)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    averages = _averages(model, inner)
    known = {id(variable) for variable in averages.values()}
    for place, variable in enumerate(optimizer.variables):
        # The rest of a slot's name holds names of layers, which Keras counts up in each process.
        slot = variable.name.rpartition("_")[2]
        name = "learning_rate" if variable is inner._learning_rate else f"{place}/{slot}"
        if id(variable) not in known:
            named[OPTIMIZER + name] = variable
    return named | averages


def copies_of_weights(model: keras.Model, optimizer: Any) -> dict[str, str]:
    """Names of what an optimizer begins as a copy of a weight, each with that weight's name."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(inner, keras.optimizers.ScheduleFreeAdamW):
        return {}
    names = {id(variable): name for name, variable in named_variables(model, optimizer).items()}
    pairs = zip(inner._momentums, model.trainable_variables, strict=True)
    return {names[id(slot)]: names[id(variable)] for slot, variable in pairs}


def _averages(model: keras.Model, optimizer: Any) -> dict[str, Any]:
    """``averages/...`` of an optimizer that keeps such, with the names of their weights."""
    if not optimizer.use_ema:
        return {}
    weights = {id(variable): name for name, variable in named_model_variables(model).items()}
    averages = optimizer._model_variables_moving_average
    return {
        AVERAGES + weights[id(variable)].removeprefix(WEIGHTS): average
        for variable, average in zip(model.trainable_variables, averages, strict=True)
        if average is not None
    }
