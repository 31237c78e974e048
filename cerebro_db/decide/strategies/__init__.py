"""Strategies: what a worker of a run does next, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cerebro_db.core.ports import Strategy
from cerebro_db.core.spec import (
    ALLREDUCE,
    AUTO,
    AVERAGING,
    GROUPS,
    HOPPER,
    PARAMETER_SERVER,
    PIPE,
    ROTATION,
    TASK,
)
from cerebro_db.decide.strategies.allreduce import AllReduce
from cerebro_db.decide.strategies.auto import Auto
from cerebro_db.decide.strategies.averaging import Averaging
from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.decide.strategies.rotation import Rotation
from cerebro_db.decide.strategies.task import WholeTask

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        HOPPER: Hopper(),
        ROTATION: Rotation(),
        TASK: WholeTask(),
        AVERAGING: Averaging(),
        ALLREDUCE: AllReduce(),
        PIPE: AllReduce(),
        AUTO: Auto(),
        PARAMETER_SERVER: AllReduce(),
        GROUPS: AllReduce(),
    }
)
