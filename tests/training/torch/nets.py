"""Nets of PyTorch for tests, exported; recipes and rows for them."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from cerebro_db.configs.architectures.limits import ArchitectureLimits

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
FEATURES, CLASSES = 6, 3
LIMITS = ArchitectureLimits()


def exported(module: Any, *rows: Any, **options: Any) -> bytes:
    """The archive of a module."""
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        module, rows, dynamic_shapes=tuple({0: batch} for _ in rows), **options
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


class Exported:
    """A module, its architecture and its weights."""

    def __init__(self, module: Any, *rows: Any) -> None:
        from cerebro_db.configs.aten import archive

        self.module = module
        self.file = exported(module, *rows)
        self.text, self.weights = archive.read(self.file, LIMITS)
        self.architecture: dict[str, Any] = json.loads(self.text)

    @classmethod
    def both(cls, module: Any, *rows: Any) -> Exported:
        """A module that was exported in train mode and in eval mode."""
        from cerebro_db.configs.aten import archive

        found = cls.__new__(cls)
        found.module = module
        files = [exported(module.train(), *rows), exported(module.eval(), *rows)]
        found.text, found.weights = archive.read_both(*files, LIMITS)
        found.architecture = json.loads(found.text)
        return found


def mlp() -> Any:
    """A net with batch normalization and dropout."""
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES)
    )


def plain() -> Any:
    """A net without anything random."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))


SOFTMAX = "loss='sparse_categorical_crossentropy(from_logits=True)',optimizer='Adam(lr=0.01)',metrics=['accuracy']"


def rows(count: int = 24, shape: tuple[int, ...] = (FEATURES,)) -> tuple[np.ndarray, np.ndarray]:
    """Random rows and ids of classes."""
    generator = np.random.default_rng(1)
    features = generator.normal(size=(count, *shape)).astype(np.float32)
    return features, generator.integers(0, CLASSES, count).astype(np.int32)


def begun(recipe: Any, weights: bytes | None, seed: int = 7) -> Any:
    """A program that holds the initial state of a seed."""
    from cerebro_db.training.backends.torch import BACKEND

    program = BACKEND.program(recipe)
    program.prepare(recipe.compile_params, recipe.fit_params)
    program.load(program.initial_state(recipe, seed, weights))
    return program
