"""Modules that drivers and trainers need, imported by their keeper.

All of them at once: what a process imports later may be of another version by then.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from cerebro_db import server, training
from cerebro_db.relay.wire import TRAINER
from cerebro_db.training import environment


def load(kind: str) -> None:
    """Import what processes of a kind need; nothing computes, and no thread is left but TensorFlow's.

    Args:
        kind: driver or trainer.
    """
    if kind == TRAINER:
        environment.preload()
        _import_all(training)
    _import_all(server)


def _import_all(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
