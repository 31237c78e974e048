"""The learning rate that a LearningRateScheduler sets at the beginning of an epoch."""

from __future__ import annotations

import math

from cerebro_db.configs.callbacks import SCHEDULER, CallbackSpec
from cerebro_db.configs.parameters import FitParams
from cerebro_db.errors import ConfigurationFailed
from cerebro_db.training import models


def scheduler_of(fit: FitParams) -> CallbackSpec | None:
    """The scheduler of a configuration, where it has one."""
    return next((callback for callback in fit.callbacks if callback.name == SCHEDULER), None)


def scheduled_rate(scheduler: CallbackSpec, epoch: int) -> float:
    """The learning rate of an epoch, which is counted from 1; Keras, and schedules, count from 0.

    Raises:
        ConfigurationFailed: it is no number.
    """
    assert scheduler.schedule is not None
    rate = float(models.make_schedule(scheduler.schedule)(epoch - 1))
    if not math.isfinite(rate):
        raise ConfigurationFailed(
            f"LearningRateScheduler: got the learning rate {rate} for epoch {epoch}"
        )
    return rate
