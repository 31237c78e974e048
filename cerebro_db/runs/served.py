"""Checks of runs whose weights a parameter server holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cerebro_db.configs.functions.callbacks import SETTING_RATES
from cerebro_db.core.spec import SERVED, Asynchrony, Configuration
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.packed import PackedTable
from cerebro_db.training.peers.updates import implicit_momentum

_CORRECTED = "SGD"
_KEEP = (
    "strategy_params := 'groups=N, momentum=kept' leaves optimizers as they are; with 'groups=1' there is "
    "nothing to be corrected"
)
# Types of numbers with which Keras scales a loss, as a model's JSON has them.
_SCALING = re.compile(r'"(mixed_)?float16"')


def scales_loss(configuration: Configuration) -> bool:
    """True if the optimizer of a configuration scales its loss, as the model computes in float16."""
    policy = configuration.compile_params.dtype_policy
    text = configuration.architecture.text if policy is None else f'"{policy}"'
    return _SCALING.search(text) is not None


def check_served(
    strategy: str,
    asynchrony: Asynchrony,
    configurations: Sequence[Configuration],
    packed: PackedTable,
) -> None:
    """Refuse what a server of weights, or groups, cannot do.

    Args:
        strategy, asynchrony: of the run.
        configurations: that it has, or is to have.
        packed: what is trained on.

    Raises:
        InvalidArgument: more groups than workers, or an optimizer whose momentum cannot be corrected.
    """
    if strategy not in SERVED:
        return
    groups, most = asynchrony.groups, len(packed.partitions)
    if groups is not None and groups > most:
        raise InvalidArgument(
            f"strategy_params of {strategy}: got groups={groups}; allowed: 1 to {most}, as "
            f"{packed.relation.name} has {most} partitions, each of which has a worker",
            hint=f"pack the source with num_partitions := {groups}, or choose fewer groups",
        )
    for one in configurations:
        if scales_loss(one):
            raise InvalidArgument(
                f"configuration {one.mst_key}: got an optimizer that scales its loss, as the model computes "
                f"in float16; allowed with strategy := {strategy!r}: others, as workers would scale "
                "theirs apart from the server",
                hint="dtype_policy='mixed_bfloat16' needs no scale",
            )
        if asynchrony.is_corrected and groups != 1:
            _check_corrected(one, groups)


def _check_corrected(one: Configuration, groups: int | None) -> None:
    """Refuse an optimizer whose momentum cannot make up for what groups bring."""
    optimizer = one.compile_params.optimizer
    arguments = {} if optimizer.parts else optimizer.all_arguments()
    what = f"configuration {one.mst_key}: got {optimizer.name}"
    if optimizer.name != _CORRECTED or arguments["nesterov"]:
        nesterov = " with nesterov=True" if optimizer.name == _CORRECTED else ""
        raise InvalidArgument(
            f"{what}{nesterov}; allowed with groups whose momentum is corrected: {_CORRECTED} with momentum",
            hint=_KEEP,
        )
    momentum = float(arguments["momentum"])
    # What the optimizer is told then must be above -1.
    least = -1.0 if groups is None else implicit_momentum(groups) - 1
    if momentum <= least or not momentum:
        brings = "" if groups is None else f", as {groups} groups bring {least + 1:g}"
        raise InvalidArgument(
            f"{what} with momentum={momentum:g}; allowed: above {least:g} and not 0{brings}",
            hint=_KEEP,
        )
    if groups is not None:
        return
    if optimizer.schedule is not None:
        raise InvalidArgument(
            f"{what} with a schedule of its learning rate; allowed where probes choose the rate: a number",
            hint=_KEEP,
        )
    for callback in one.fit_params.callbacks:
        if callback.name in SETTING_RATES:
            raise InvalidArgument(
                f"configuration {one.mst_key}: got the callback {callback.name}, which sets the learning rate; "
                "allowed where probes choose that: others",
                hint=_KEEP,
            )
