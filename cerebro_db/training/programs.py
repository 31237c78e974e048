"""Programs and scorers that a worker keeps compiled, by what configurations share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cerebro_db.training.backends import Program, Scorer
from cerebro_db.training.environment import computing
from cerebro_db.training.recipe import Recipe

T = TypeVar("T")


class _Recent(Generic[T]):
    """At most ``limit`` objects by key; the least recently used goes first."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._kept: dict[Hashable, T] = {}

    def _get(self, key: Hashable, make: Callable[[], T]) -> tuple[T, bool]:
        """The object of a key, and whether it had to be made."""
        found = self._kept.pop(key, None)
        made = found is None
        if found is None:
            while len(self._kept) >= self._limit:
                self._kept.pop(next(iter(self._kept)))
            found = make()
        self._kept[key] = found
        return found, made


class Programs(_Recent[Program]):
    """The programs of a worker."""

    def get(self, recipe: Recipe, use: str = "") -> tuple[Program, bool]:
        """The program of a recipe, and whether it had to be made; for another use it is another one."""
        framework = computing(recipe.backend)
        key = (recipe.backend, framework.program_key(recipe), use)
        return self._get(key, lambda: framework.program(recipe))


class Scorers(_Recent[Scorer]):
    """The scorers of a worker."""

    def get(self, recipe: Recipe) -> Scorer:
        """The scorer of a recipe, made where there is none."""
        framework = computing(recipe.backend)
        key = (recipe.backend, framework.scorer_key(recipe))
        return self._get(key, lambda: framework.scorer(recipe))[0]
