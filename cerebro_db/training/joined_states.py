"""States of several models as that of one model which has them as layers, one after another."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cerebro_db.training.state import WEIGHTS, State, of_model, to_bytes

_OTHERS = "others/"


def joined(states: Iterable[State]) -> bytes:
    """The state of a model whose layers are other models, in their order.

    Names of weights and of what else a model keeps begin with their numbers, which go on from model to model.

    Args:
        states: of the models; of an optimizer they may have parts, which are left out.
    """
    weights: list[tuple[str, np.ndarray]] = []
    others: list[tuple[str, np.ndarray]] = []
    for state in states:
        for name, array in of_model(state).items():
            kept = weights if name.startswith(WEIGHTS) else others
            kept.append((name.split("/", 2)[2], array))
    found = {f"{WEIGHTS}{i}/{name}": array for i, (name, array) in enumerate(weights)}
    found |= {f"{_OTHERS}{i}/{name}": array for i, (name, array) in enumerate(others)}
    return to_bytes(found)
