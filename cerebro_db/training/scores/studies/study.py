"""What all kinds of studies have in common: rows that are collected until there are enough to compute with."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.backends import Scorer
from cerebro_db.training.fields import Fields
from cerebro_db.training.recipe import Recipe

# Bytes of features that are held at a time, and copied once.
CHUNK_BYTES = 32 * 2**20
MAX_PLACE = 2**31 - 1


@dataclass(frozen=True)
class Studied:
    """The model and the partition of a study.

    Attributes:
        recipe: of the model.
        scorer: has its state while rows are studied.
        partition_key: of the rows.
        tick: called between batches; it raises to cancel.
    """

    recipe: Recipe
    scorer: Scorer
    partition_key: int
    tick: Callable[[], None]


class Study(ABC):
    """A computation over the rows of a partition, in chunks.

    Attributes:
        takes_logits: whether the net that is handed in ends in logits, whatever its loss takes.

    Args:
        task: its parameters.
        studied: the model and the partition.
    """

    kind: ClassVar[str]
    takes_logits: ClassVar[bool] = False

    def __init__(self, task: Fields, studied: Studied) -> None:
        self._task, self._studied = task, studied
        self._rows: list[tuple[np.ndarray, tuple[np.ndarray, ...]]] = []
        self._bytes = self._chunks = 0

    def add(self, features: np.ndarray, targets: Sequence[np.ndarray]) -> None:
        """Take rows: their features and the targets of each output."""
        self._rows.append((features, tuple(targets)))
        self._bytes += features.nbytes
        if self._bytes >= CHUNK_BYTES:
            self._flush()

    def finish(self) -> None:
        """Compute with the rows that wait, and with all of them."""
        self._flush()
        self.ended()

    def _flush(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._bytes = self._rows, [], 0
        features = np.concatenate([one for one, _ in rows])  # a copy, also of one
        targets = [np.concatenate(each) for each in zip(*(one for _, one in rows), strict=True)]
        self.chunk(self._chunks, features, targets)
        self._chunks += 1

    @abstractmethod
    def chunk(self, number: int, features: np.ndarray, targets: list[np.ndarray]) -> None:
        """Compute with some rows.

        Args:
            number: of the chunk in its partition, from 0.
            features: ``float32[rows, ...]``, which may be changed.
            targets: of each output.
        """

    def ended(self) -> None:
        """Compute what needs all rows of the partition."""
        return

    @abstractmethod
    def to_json(self) -> Any:
        """Result of the partition, as plain values."""

    @classmethod
    @abstractmethod
    def combined(cls, task: Fields, recipe: Recipe, parts: Sequence[Any]) -> Any:
        """The result, from what it left of each partition."""


def columns_of(task: Fields) -> list[slice]:
    """Places of the features of each column in a row."""
    return [slice(*_ends(one)) for one in task.objects("columns")]


def _ends(column: Fields) -> Iterator[int]:
    start = column.integer("start", 0, MAX_PLACE)
    yield start
    yield column.integer("stop", start + 1, MAX_PLACE)


def flat(features: np.ndarray, columns: Sequence[slice]) -> np.ndarray:
    """Rows as numbers side by side, a view.

    Raises:
        InvalidArgument: a column is beyond them.
    """
    rows: np.ndarray = features.reshape(len(features), -1)
    if any(one.stop > rows.shape[1] for one in columns):
        raise InvalidArgument(f"study: got a column beyond rows of {rows.shape[1]} features")
    return rows


def written(values: np.ndarray) -> str:
    """An array as text for JSON: its little-endian bytes."""
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def read_array(text: str, dtype: str) -> np.ndarray:
    """The numbers that ``written`` has made a text of, one after another."""
    return np.frombuffer(base64.b64decode(text), dtype)
