"""What workers of a run do besides hops and scans."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.driver.scoreboard import Group
from cerebro_db.planning.orders import Visit


@dataclass(frozen=True)
class Preparation:
    """A worker imports TensorFlow."""


@dataclass(frozen=True)
class Trial:
    """A worker finds out which configurations cannot be scored."""


@dataclass(frozen=True)
class Writing:
    """A worker writes what TensorBoard shows."""


@dataclass(frozen=True)
class Combination:
    """A worker adds up the sums of a group."""

    group: Group
    dataset: str


@dataclass(frozen=True)
class Hops:
    """Visits of different configurations, made by one statement."""

    visits: tuple[Visit, ...]
