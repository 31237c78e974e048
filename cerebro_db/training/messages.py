"""Messages to trainers, each a struct that driver and trainer share."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta

from cerebro_db.wire import Wire

Value = float | Literal["nan", "inf", "-inf"]
"""A number, as JSON has none for those that are not finite."""


class LoggedEpoch(Wire, frozen=True, array_like=True):
    """Measured values of a configuration after an epoch, by the names in the logs of Keras."""

    epoch: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    logs: dict[str, Value]


class LoggedConfiguration(Wire, frozen=True):
    """Epochs of a configuration that are written for TensorBoard, below its folder."""

    mst_key: int
    log_dir: str
    epochs: tuple[LoggedEpoch, ...]


class EventsTask(Wire, frozen=True, omit_defaults=False):
    """Task that writes event files for TensorBoard; without configurations it only checks that it could."""

    run_id: Annotated[int, Meta(ge=0)]
    configurations: tuple[LoggedConfiguration, ...] = ()


def value_of(number: float) -> Value:
    """A number as a message has it."""
    if math.isnan(number):
        return "nan"
    return number if math.isfinite(number) else "inf" if number > 0 else "-inf"
