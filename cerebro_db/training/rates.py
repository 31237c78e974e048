"""The learning rate that a LearningRateScheduler sets at the beginning of an epoch."""

from __future__ import annotations

import math

from cerebro_db.configs.callbacks import SCHEDULER, CallbackSpec
from cerebro_db.configs.custom import bare_name, is_custom
from cerebro_db.configs.parameters import FitParams
from cerebro_db.errors import ConfigurationFailed
from cerebro_db.training import models
from cerebro_db.training.functions import function_of, places_of


def scheduler_of(fit: FitParams) -> CallbackSpec | None:
    """The scheduler of a configuration, where it has one."""
    return next((callback for callback in fit.callbacks if callback.name == SCHEDULER), None)


def scheduled_rate(scheduler: CallbackSpec, epoch: int, current: float) -> float:
    """The learning rate of an epoch, which is counted from 1; Keras, and schedules, count from 0.

    Args:
        scheduler: which sets it.
        epoch: which begins.
        current: the learning rate of the epoch before.

    Raises:
        ConfigurationFailed: it is no number from 0.
    """
    spec = scheduler.schedule
    assert spec is not None
    if is_custom(spec.name):
        function = function_of(bare_name(spec.name))
        given = (epoch - 1, current)[: places_of(function)]
        rate = float(function(*given))
    else:
        rate = float(models.make_schedule(spec)(epoch - 1))
    if not (math.isfinite(rate) and rate >= 0):
        raise ConfigurationFailed(
            f"LearningRateScheduler: got the learning rate {rate} for epoch {epoch}"
        )
    return rate
