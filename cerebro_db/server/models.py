"""Entries that look into models."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from cerebro_db.configs.architecture import ArchitectureLimits, check_architecture
from cerebro_db.server.computing import Tick, compute
from cerebro_db.server.entry import entry
from cerebro_db.server.limits import bind
from cerebro_db.server.settings import settings_of


@entry
def inspect(plpy: Any, gd: dict[str, Any], model_arch: str, model_weights: bytes | None) -> str:
    """Build a model within the limits of the database and tell its size, work and shapes as JSON."""
    settings = settings_of(plpy)
    limits = ArchitectureLimits.of(settings)
    memory = bind(settings, connects=plpy.asks_nothing)
    config = check_architecture(model_arch, limits)

    def work(tick: Tick) -> str:
        from cerebro_db.training.environment import configure_once

        configure_once(threads=1)
        from cerebro_db.training import models
        from cerebro_db.training.sizes import check_size

        size = check_size(config, limits, memory)
        model = models.build(config, seed=0)
        if model_weights is not None:
            models.set_weights(model, model_weights)
        return replace(models.facts_of(model), **asdict(size)).to_json()

    return compute(plpy, work)


@entry
def read_file(plpy: Any, gd: dict[str, Any], file: bytes | None) -> tuple[str, bytes]:
    """The architecture and the weights in a file of Keras."""
    settings = settings_of(plpy)
    limits = ArchitectureLimits.of(settings)
    memory = bind(settings, connects=plpy.asks_nothing)

    def work(tick: Tick) -> tuple[str, bytes]:
        from cerebro_db.training.environment import configure_once

        configure_once(threads=1)
        from cerebro_db.training import keras_file

        return keras_file.read(file or b"", limits, memory, tick)

    return compute(plpy, work)
