"""Tasks that a driver sends a worker, as JSON: the only form in which the two speak."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import (
    FEWER_MODELS,
    Load,
    check_worker_memory,
    worker_memory,
)
from cerebro_db.configs.frameworks import check_architecture, framework_of
from cerebro_db.configs.grids.parameters import MAX_OUTPUTS, parse_fit_params
from cerebro_db.configs.messages import shown
from cerebro_db.configs.names import Format
from cerebro_db.errors import InvalidArgument, PeersApart, RunFailed
from cerebro_db.training import state as states
from cerebro_db.training.backends import ModelSize, Tick
from cerebro_db.training.buffers import MAX_INPUTS, Shapes
from cerebro_db.training.environment import computing
from cerebro_db.training.fields import Fields
from cerebro_db.training.folds import fold_of
from cerebro_db.training.hop import HopTask, RoundPart
from cerebro_db.training.partitions import Buffers, CacheKey, RowOrder
from cerebro_db.training.peers.listeners import Address, Listener
from cerebro_db.training.peers.parameter_server import ServedRound
from cerebro_db.training.peers.peers import ProcessGroup
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.targets import TargetFacts

MAX_PLACE = 100_000
_MAX_STEPS = 1_000_000
_MAX_DIMENSIONS = 32


class Architectures:
    """Architectures that this worker has checked, by fingerprint.

    Args:
        limits: what an administrator allows.
        memory_mb: megabytes that this process may use; None for any.
    """

    def __init__(
        self,
        limits: ArchitectureLimits = ArchitectureLimits(),  # noqa: B008
        memory_mb: int | None = None,
    ) -> None:
        self._limits = limits
        self._memory_mb = memory_mb
        self._known: dict[str, dict[str, Any]] = {}
        self._sizes: dict[str, ModelSize] = {}

    def limit(self, limits: ArchitectureLimits, memory_mb: int | None = None) -> None:
        """Check against these limits from now on, and against the memory of this process."""
        if (limits, memory_mb) != (self._limits, self._memory_mb):
            self._limits, self._memory_mb = limits, memory_mb
            self._known.clear()

    def get(self, architecture_id: str, text: str) -> dict[str, Any]:
        """The checked JSON of an architecture."""
        if architecture_id not in self._known:
            config = check_architecture(text, self._limits)
            self._sizes[architecture_id] = computing(framework_of(config).name).check_size(
                config, self._limits, self._memory_mb
            )
            self._known[architecture_id] = config
        return self._known[architecture_id]

    def check_training(self, recipe: Recipe) -> None:
        """Refuse to train a configuration for which this process has too little memory.

        Raises:
            InvalidArgument: with the estimate.
        """
        if self._memory_mb is None:
            return
        optimizer = recipe.compile_params.optimizer
        load = Load(
            program=None,
            optimizer=optimizer.name,
            compiled=recipe.jit,
            averages=optimizer.keeps_averages,
            batch_size=recipe.fit_params.batch_size,
            framework=recipe.backend,
            **self._sizes[recipe.architecture_id]._asdict(),
        )
        check_worker_memory(worker_memory([load], 0, 0), self._memory_mb, "a configuration")

    def check_together(self, models: Sequence[tuple[Recipe, int]]) -> None:
        """Refuse models that predict together if this process has too little memory for all of them.

        Args:
            models: recipes, and how many bytes are kept of each.

        Raises:
            InvalidArgument: with the estimate.
        """
        if self._memory_mb is None:
            return
        each = {one.architecture_id: one.backend for one, _ in models}
        loads = [
            Load(id, optimizer="", compiled=False, framework=framework, **self._sizes[id]._asdict())
            for id, framework in each.items()
        ]
        # The largest one is counted while it is asked; of the others the weights are there.
        weights = sorted(load.state_bytes for load in loads)
        kept = sum(size for _, size in models) + sum(weights[:-1])
        what = f"{len(models)} models together"
        check_worker_memory(worker_memory(loads, kept, kept), self._memory_mb, what, FEWER_MODELS)


def recipe_of(given: Fields | Mapping[str, Any], known: Architectures) -> Recipe:
    """The recipe in a task.

    Raises:
        InvalidArgument: something is missing in it, or is not what it must be.
    """
    task = given if isinstance(given, Fields) else Fields(given)
    architecture = known.get(task.text("architecture_id"), task.text("architecture"))
    return Recipe(
        architecture=architecture,
        architecture_id=task.text("architecture_id"),
        compile_params=framework_of(architecture).compile_params(task.text("compile_params")),
        fit_params=parse_fit_params(task.text("fit_params")),
        targets=_targets(task.object("targets")),
        jit=task.flag("jit"),
        steps_per_call=task.integer("steps_per_call", 1, _MAX_STEPS),
    )


def export(text: str, data: bytes, wanted: Format, known: Architectures, tick: Tick) -> bytes:
    """A file of a model.

    Args:
        text: JSON: the recipe of the model, and architecture and facts, JSON that goes with raw arrays.
        data: the model's state.
        wanted: the format.
        known: architectures of the worker.
        tick: called between the steps.
    """
    task = Fields.parse(text)
    recipe = recipe_of(task, known)
    documents = {name: task.text(name) for name in ("architecture", "facts") if task.has(name)}
    state = states.from_bytes(data)
    return computing(recipe.backend).export(recipe, state, wanted, documents, tick)


def hop_of(
    text: str, run_id: int, known: Architectures, listener: Listener | None = None
) -> HopTask:
    """The task of a hop, for a worker that got ready for ``run_id``, and where its peers come in."""
    task = Fields.parse(text)
    cache_key = _cache_key(task, run_id)
    recipe = recipe_of(task, known)
    known.check_training(recipe)
    if recipe.fit_params.mixup is not None and task.has("part"):
        raise InvalidArgument(
            f"fit_params: got mixup={recipe.fit_params.mixup:g} with a strategy whose rounds share rows; allowed: "
            "strategies whose hops train alone, such as 'hopper'"
        )
    buffers = buffers_of(task.raw("buffers"))
    order = RowOrder(
        seed=task.integer("seed", 0),
        epoch=task.integer("epoch", 1),
        partition_key=cache_key[2],
        salt=task.text("salt"),
        shuffle=recipe.fit_params.shuffle,
        fold=fold_of(task, cache_key[2], buffers.rows_of),
    )
    return HopTask(
        recipe=recipe,
        order=order,
        buffers=buffers,
        cache_key=cache_key,
        initial_seed=task.integer("initial_seed", 0, 2**32 - 1),
        is_first=task.flag("is_first"),
        inputs=inputs_of(task),
        begins_epoch=task.flag("begins_epoch", False),
        learning_rate=_rate(task),
        part=_part(task, listener),
        worker=task.integer("worker", 0, 2**31 - 1) if task.has("worker") else 0,
        pid=task.integer("pid", 0, 2**31 - 1) if task.has("pid") else 0,
    )


def _part(task: Fields, listener: Listener | None) -> RoundPart | None:
    """The part of a hop in a round of several; None where it is none."""
    if not task.has("part"):
        return None
    part = task.object("part")
    rows = part.integers("rows", 0, most=2)
    most = buffers_of(task.raw("buffers")).total
    if len(rows) != 2 or not rows[0] <= rows[1] <= most:
        raise InvalidArgument(f"part: got the rows {list(rows)}; allowed: two, from 0 to {most}")
    rank = part.integer("rank", 0, MAX_PLACE)
    found = RoundPart(rank, (rows[0], rows[1]), part.flag("resets"))
    if not part.has("group"):
        return found
    group = part.object("group")
    process_group = _process_group(group, rank, listener)
    size = process_group.size
    steps, is_pipelined = group.integer("steps", 0), group.flag("is_pipelined")
    served = _served(group.object("served"), size) if group.has("served") else None
    return replace(
        found,
        process_group=process_group,
        steps=steps,
        is_pipelined=is_pipelined,
        batch_size=group.integer("batch_size", 1, 2**31 - 1),
        served=served,
    )


def _process_group(group: Fields, rank: int, listener: Listener | None) -> ProcessGroup:
    """The process group of a task."""
    size = group.integer("size", rank + 1, MAX_PLACE)
    listed = group.objects("addresses") if group.has("addresses") else []
    if listed and len(listed) != size:
        raise InvalidArgument(f"group: got {len(listed)} addresses; allowed: {size}")
    if len(listed) > _MOST_APART:
        raise InvalidArgument(f"group: got {len(listed)} addresses; allowed: {_MOST_APART}")
    addresses = tuple(map(_address, listed))
    _check_apart(addresses)
    return ProcessGroup(
        group.text("name"),
        group.text("secret").encode(),
        size,
        rank,
        group.flag("is_root"),
        group.integer("bits", 8, 32),
        addresses,
        listener,
    )


def _address(task: Fields) -> Address:
    return Address(task.text("host"), task.text("ip"), task.integer("port", 1, 65_535))


def _check_apart(addresses: Sequence[Address]) -> None:
    """Refuse trainers of the same address."""
    known: dict[tuple[Any, ...], Address] = {}
    for one in addresses:
        other = known.setdefault(one[1:], one)
        if other is not one:
            raise PeersApart(f"peers: got {one} and {other}; allowed: another address for each")


_MOST_APART = 1000  # trainers, each of which opens a connection to all others


def process_group_of(text: str, listener: Listener) -> ProcessGroup:
    """The task of a look whether trainers of several hosts can reach each other."""
    task = Fields.parse(text)
    found = _process_group(task, task.integer("rank", 0, MAX_PLACE), listener)
    if not found.addresses:
        raise InvalidArgument("task: got no addresses; allowed: those of all trainers")
    return found


def _served(task: Fields, size: int) -> ServedRound:
    """Parameters of a round whose weights one trainer holds."""
    steps = task.integers("steps", 0, most=MAX_PLACE)
    if len(steps) != size:
        raise InvalidArgument(f"served: got the steps of {len(steps)} trainers; allowed: of {size}")
    order = task.text("order") if task.has("order") else None
    return ServedRound(
        groups=task.integer("groups", 1, size) if task.has("groups") else None,
        steps=steps,
        passes=task.integer("passes", 1),
        momentum=_fraction(task, "momentum"),
        rate=task.number("rate") if task.has("rate") else None,
        order=None if order is None else base64.b64decode(order, validate=True),
        probe_steps=task.integer("probe_steps", 0, _MAX_STEPS),
    )


def _fraction(task: Fields, name: str) -> float | None:
    if not task.has(name):
        return None
    found = task.number(name)
    if not 0 <= found <= 1:
        raise InvalidArgument(f"served: got {found} for {name!r}; allowed: 0 to 1")
    return found


def _rate(task: Fields) -> float | None:
    if not task.has("learning_rate") or task.raw("learning_rate") is None:
        return None
    rate = task.number("learning_rate")
    if not 0 <= rate <= float(np.finfo(np.float32).max):
        raise InvalidArgument(f"learning_rate: got {rate}; allowed: a number from 0 in float32")
    return rate


@dataclass(frozen=True)
class ScanTask:
    """Task that scores of all configurations over one partition have in common."""

    buffers: Buffers
    cache_key: CacheKey
    targets: TargetFacts
    inputs: Shapes = ()


def scan_of(text: str, run_id: int) -> ScanTask:
    """The common part of a scoring task, for a worker that got ready for ``run_id``."""
    task = Fields.parse(text)
    return ScanTask(
        cache_key=_cache_key(task, run_id),
        buffers=buffers_of(task.raw("buffers")),
        targets=_targets(task.object("targets")),
        inputs=inputs_of(task),
    )


def buffers_of(value: Any) -> Buffers:
    """Buffer ids and rows."""
    task = Fields(value, "buffers")
    buffers = Buffers(task.integers("ids", 0, 2**31 - 1), task.integers("rows", 1, 2**31 - 1))
    if len(buffers.ids) != len(buffers.rows) or len(set(buffers.ids)) != len(buffers.ids):
        raise InvalidArgument(
            f"buffers: got {len(buffers.ids)} ids and {len(buffers.rows)} numbers of rows; "
            "allowed: one number for each id, no id twice"
        )
    return buffers


def _cache_key(task: Fields, run_id: int) -> CacheKey:
    if (got := task.integer("run_id")) != run_id:
        raise RunFailed(f"got a task of run {got} in a worker of run {run_id}")
    return run_id, task.text("dataset"), task.integer("partition_key", 0, 2**31 - 1)


def inputs_of(task: Fields) -> Shapes:
    """The shapes of several inputs; none where there is one."""
    if not task.has("inputs"):
        return ()
    listed = task.raw("inputs")
    if not isinstance(listed, list) or not 2 <= len(listed) <= MAX_INPUTS:
        raise InvalidArgument(
            f"task: got {shown(listed)} for 'inputs'; allowed: 2 to {MAX_INPUTS} shapes"
        )
    return tuple(
        Fields({"shape": shape}, "inputs").integers("shape", 1, 2**31 - 1, most=_MAX_DIMENSIONS)
        for shape in listed
    )


def _targets(task: Fields) -> TargetFacts:
    first = _target(task)
    if not task.has("more"):
        return first
    more = task.objects("more")
    if len(more) >= MAX_OUTPUTS:
        raise InvalidArgument(f"targets: got {len(more) + 1} targets; allowed: up to {MAX_OUTPUTS}")
    return replace(first, more=tuple(replace(_target(one), weighted=False) for one in more))


def _target(task: Fields) -> TargetFacts:
    kind = task.text("kind")
    if kind not in ("class", "float"):
        raise InvalidArgument(f"targets: got the kind {shown(kind)}; allowed: class, float")
    classes = task.integer("num_classes", 0, 2**31 - 1)
    shape = task.integers("shape", 1, 2**31 - 1, most=_MAX_DIMENSIONS)
    facts = TargetFacts(kind, classes, shape, task.flag("weighted", False))
    if task.has("values"):
        facts = replace(facts, values=_values(task, classes))
    if task.has("counts"):
        facts = replace(facts, counts=task.integers("counts", 0, 2**62, most=classes))
    return facts


def _values(task: Fields, classes: int) -> tuple[str | None, ...]:
    values = task.raw("values")
    fit = isinstance(values, list) and all(one is None or isinstance(one, str) for one in values)
    if not fit or len(values) != classes:
        raise InvalidArgument(f"targets: got the values {shown(values)}; allowed: {classes} texts")
    return tuple(values)
