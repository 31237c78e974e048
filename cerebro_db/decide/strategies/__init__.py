"""Strategies: what a worker of a run does next, by the name of the schedule."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cerebro_db.core.ports import Strategy
from cerebro_db.core.spec import HOPPER, ROTATION
from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.decide.strategies.rotation import Rotation

STRATEGIES: Mapping[str, Strategy] = MappingProxyType({HOPPER: Hopper(), ROTATION: Rotation()})
