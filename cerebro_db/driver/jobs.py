"""What workers of a run do besides hops and scans, and which of their errors concern all."""

from __future__ import annotations

from dataclasses import dataclass

from cerebro_db.driver.scoreboard import Group

# Classes of SQLSTATE that concern the server, not one configuration.
_FATAL_CLASSES = ("08", "40", "42", "53", "55", "57", "58")
# A hop that is there already, or a damaged page of the disk, is no fault of the configuration.
_FATAL_CODES = ("23505", "XX001", "XX002")


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


def concerns_all(sqlstate: str) -> bool:
    """Whether an error of a hop is no fault of its configuration."""
    return sqlstate in _FATAL_CODES or sqlstate[:2] in _FATAL_CLASSES
