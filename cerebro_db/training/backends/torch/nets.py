"""Nets of configurations: with their dropout, and what they train."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from cerebro_db.configs.aten.graph import Architecture
from cerebro_db.configs.aten.operations import ATEN
from cerebro_db.configs.grids.groups import is_of
from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArchitecture, InvalidArgument
from cerebro_db.training.backends.torch.net import Net
from cerebro_db.training.recipe import Recipe

_DROPOUTS = frozenset(
    f"{ATEN}{name}.default"
    for name in ("dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout",
                 "alpha_dropout_", "feature_alpha_dropout", "native_dropout")
)  # fmt: skip
MIXED = "mixed_bfloat16"
_POLICIES = (None, "float32", MIXED)


def net_of(recipe: Recipe) -> Net:
    """The net of a configuration.

    Raises:
        InvalidArgument: a parameter is for other frameworks.
        InvalidArchitecture: there is no dropout whose rate could be set.
    """
    params = recipe.compile_params
    if params.loss_per_member:
        raise InvalidArgument(
            "got loss_per_member=True for a PyTorch model; it is for ensembles of Keras models"
        )
    if params.dtype_policy not in _POLICIES:
        raise InvalidArgument(
            f"got dtype_policy={shown(params.dtype_policy)} for a PyTorch model; allowed: 'float32', '{MIXED}'"
        )
    config = with_dropout(recipe.architecture, params.dropout)
    return Net(config, mixed=params.dtype_policy == MIXED)


def with_dropout(config: Mapping[str, Any], rate: float | None) -> Mapping[str, Any]:
    """The architecture with another rate in every dropout layer; None for its own."""
    if rate is None:
        return config
    changed = copy.deepcopy(dict(config))
    found = [
        argument
        for part in ("train", "eval")
        for argument in _rates(changed.get(part) or {"graph": {"nodes": []}})
    ]
    if not found:
        raise InvalidArchitecture(
            f"got dropout={rate} for an architecture without dropout layers", "leave dropout out"
        )
    for argument in found:
        argument["arg"] = {"as_float": rate}
    return changed


def _rates(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for node in part["graph"]["nodes"]:
        if node["target"] in _DROPOUTS:
            yield from (one for one in node["inputs"] if one["name"] == "p")


def trained_names(architecture: Architecture, params: CompileParams) -> list[str]:
    """Names of the parameters that a configuration trains.

    Raises:
        InvalidArchitecture: a pattern of what is frozen fits nothing.
    """
    names = [one.name for one in architecture.parameters]
    for pattern in params.freeze:
        if not any(is_of(name, pattern) for name in names):
            raise InvalidArchitecture(
                f"got freeze={shown(pattern)}, which fits no module with parameters; "
                f"allowed: names such as {shown(names[:3])}, or modules that they are in"
            )
    return [
        one.name
        for one in architecture.parameters
        if one.trainable and not any(is_of(one.name, pattern) for pattern in params.freeze)
    ]
