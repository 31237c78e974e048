"""Members of a net: parts of one model that predict each for itself, and whose mean is the prediction.

The output of such a net is a ``GlobalAveragePooling1D`` over ``[rows, members, units]``, so that whatever predicts,
scores or exports needs to know nothing of members. With ``loss_per_member`` training compares each member with the
target, and takes the mean of these losses: Gorishniy et al. 2025, "TabM: Advancing Tabular Deep Learning with
Parameter-Efficient Ensembling".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_db.configs.architectures.limits import refuse
from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.grids.outputs import output_names
from cerebro_db.errors import InvalidArgument

MEAN = "GlobalAveragePooling1D"
# Losses that compare rows with each other, or sum over them.
_ACROSS_ROWS = frozenset({"Circle", "Dice", "Tversky"})


def check_members(architecture: Mapping[str, Any]) -> None:
    """Check that each output of a checked architecture is the mean of its members.

    Raises:
        InvalidArchitecture: one is not.
    """
    layers = {layer["config"].get("name"): layer for layer in architecture["config"]["layers"]}
    for name in output_names(architecture):
        found = layers.get(name, {}).get("class_name")
        if found != MEAN:
            refuse(
                f"got loss_per_member, but the output {name!r} is made by {found or 'no layer of its own'}",
                f"it must be a {MEAN} over the members; cerebro.cerebro_tabular(..., kind := 'tabm') makes such nets",
            )


def check_loss(loss: LossSpec) -> None:
    """Check that a loss is a mean over rows, which a member has, too.

    Raises:
        InvalidArgument: it is not.
    """
    given = dict(loss.arguments)
    if loss.name in _ACROSS_ROWS or "reduction" in given:
        raise InvalidArgument(
            f"loss_per_member: got it with the loss {loss.name}"
            f"{' and a reduction' if 'reduction' in given else ''}; allowed: losses that are means over rows"
        )
