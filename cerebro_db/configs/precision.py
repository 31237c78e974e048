"""In which precision the layers of an architecture compute: the policies of Keras with float32 weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from cerebro_db.configs.architecture_names import LAYERS, POLICIES
from cerebro_db.configs.arguments import choice
from cerebro_db.configs.freezing import inner_layers

__all__ = ["DTYPE_POLICY", "with_policy"]

DTYPE_POLICY = choice("dtype_policy", None, *sorted(POLICIES))
# What they are given is not computed with: rows as they come, and numbers of bins.
_OTHER_TYPES = frozenset(["Discretization", "InputLayer"])


def with_policy(config: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Returns a copy in which every layer, nested ones too, follows a policy.

    As in Keras where it is set before the model is made; whole numbers stay whole numbers.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for layer in inner_layers(changed):
        if layer["class_name"] in LAYERS - _OTHER_TYPES and not _is_whole(layer["config"]):
            layer["config"]["dtype"] = policy
    return changed


def _is_whole(config: Mapping[str, Any]) -> bool:
    dtype = config.get("dtype")
    return isinstance(dtype, str) and ("int" in dtype or dtype == "bool")
