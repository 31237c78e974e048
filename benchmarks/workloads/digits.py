"""28 x 28 images of 10 classes: MNIST from IDX files, or synthetic ones of the same shape."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

VARIABLE = "CEREBRO_MNIST"
SHAPE = (28, 28, 1)
CLASSES = 10
ROWS = 10_000

Images = tuple[NDArray[np.float32], NDArray[np.int32], str]


def images(count: int) -> Images:
    """Pixels from 0 to 1, labels, and what they are.

    The environment variable CEREBRO_MNIST names a folder with t10k-images-idx3-ubyte.gz and
    t10k-labels-idx1-ubyte.gz.
    """
    folder = os.environ.get(VARIABLE)
    return _mnist(Path(folder), count) if folder else _synthetic(count)


def _mnist(folder: Path, count: int) -> Images:
    pixels = _idx(folder / "t10k-images-idx3-ubyte.gz", 16).reshape(-1, *SHAPE)[:count]
    labels = _idx(folder / "t10k-labels-idx1-ubyte.gz", 8)[:count]
    features = pixels.astype(np.float32) / np.float32(255)
    return features, labels.astype(np.int32), "MNIST, its test images"


def _idx(path: Path, header: int) -> NDArray[np.uint8]:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def _synthetic(count: int) -> Images:
    """A smooth random picture a class, under noise."""
    generator = np.random.default_rng(28)
    coarse = generator.normal(size=(CLASSES, 7, 7))
    pictures = np.kron(coarse, np.ones((1, 4, 4)))[..., np.newaxis]
    labels = generator.integers(0, CLASSES, count)
    noisy = 0.5 + 0.15 * pictures[labels] + generator.normal(scale=0.25, size=(count, *SHAPE))
    features = np.clip(noisy, 0, 1).astype(np.float32)
    return features, labels.astype(np.int32), "synthetic images (no MNIST was given)"
