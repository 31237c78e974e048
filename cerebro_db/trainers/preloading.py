"""Modules that drivers and trainers need, imported by their keeper."""

from __future__ import annotations

import importlib
import pkgutil

from cerebro_db import server
from cerebro_db.relay.wire import TRAINER
from cerebro_db.training import environment


def load(kind: str) -> None:
    """Import what processes of a kind need; nothing computes, and no thread is left but TensorFlow's.

    Args:
        kind: driver or trainer.
    """
    if kind == TRAINER:
        environment.preload()
    for module in pkgutil.iter_modules(server.__path__):
        importlib.import_module(f"{server.__name__}.{module.name}")
