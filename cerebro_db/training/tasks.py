"""What a driver tells a worker, as JSON: the only form in which the two speak."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_db.configs.architecture import ArchitectureLimits, check_architecture
from cerebro_db.configs.parameters import parse_compile_params, parse_fit_params
from cerebro_db.errors import RunFailed
from cerebro_db.training.partitions import Buffers, CacheKey, VisitOrder
from cerebro_db.training.program import Recipe
from cerebro_db.training.sizes import check_size
from cerebro_db.training.targets import TargetFacts
from cerebro_db.training.visit import VisitTask


class Architectures:
    """Architectures that this worker has checked, by fingerprint.

    Args:
        limits: what an administrator allows.
    """

    def __init__(self, limits: ArchitectureLimits = ArchitectureLimits()) -> None:  # noqa: B008
        self._limits = limits
        self._known: dict[str, dict[str, Any]] = {}

    def limit(self, limits: ArchitectureLimits) -> None:
        """Check against these limits from now on."""
        if limits != self._limits:
            self._limits = limits
            self._known.clear()

    def get(self, architecture_id: str, text: str) -> dict[str, Any]:
        """The checked JSON of an architecture."""
        if architecture_id not in self._known:
            config = check_architecture(text, self._limits)
            check_size(config, self._limits)
            self._known[architecture_id] = config
        return self._known[architecture_id]


def recipe_of(task: Mapping[str, Any], known: Architectures) -> Recipe:
    """The recipe in a task."""
    return Recipe(
        architecture=known.get(task["architecture_id"], task["architecture"]),
        architecture_id=task["architecture_id"],
        compile_params=parse_compile_params(task["compile_params"]),
        fit_params=parse_fit_params(task["fit_params"]),
        targets=_targets(task["targets"]),
        jit=task["jit"],
        steps_per_call=task["steps_per_call"],
    )


def visit_of(text: str, run_id: int, known: Architectures) -> VisitTask:
    """The task of a hop, for a worker that got ready for ``run_id``."""
    task = json.loads(text)
    recipe = recipe_of(task, known)
    order = VisitOrder(
        seed=task["seed"],
        epoch=task["epoch"],
        partition_key=task["partition_key"],
        salt=task["salt"],
        shuffle=recipe.fit_params.shuffle,
    )
    return VisitTask(
        recipe=recipe,
        order=order,
        buffers=buffers_of(task["buffers"]),
        cache_key=_cache_key(task, run_id),
        initial_seed=task["initial_seed"],
        is_first=task["is_first"],
    )


@dataclass(frozen=True)
class ScanTask:
    """What scores of all configurations over one partition have in common."""

    buffers: Buffers
    cache_key: CacheKey
    targets: TargetFacts


def scan_of(text: str, run_id: int) -> ScanTask:
    """The common part of a scoring task, for a worker that got ready for ``run_id``."""
    task = json.loads(text)
    return ScanTask(
        buffers_of(task["buffers"]), _cache_key(task, run_id), _targets(task["targets"])
    )


def _cache_key(task: Mapping[str, Any], run_id: int) -> CacheKey:
    if task["run_id"] != run_id:
        raise RunFailed(f"got a task of run {task['run_id']} in a worker of run {run_id}")
    return run_id, str(task["dataset"]), int(task["partition_key"])


def buffers_of(value: Mapping[str, Any]) -> Buffers:
    """Buffer ids and rows."""
    return Buffers(tuple(value["ids"]), tuple(value["rows"]))


def _targets(value: Mapping[str, Any]) -> TargetFacts:
    return TargetFacts(value["kind"], value["num_classes"], tuple(value["shape"]))
