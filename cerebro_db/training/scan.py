"""Scores of many configurations in one pass over a partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cerebro_db.configs.exactness import AUC, CONFUSION, is_exact
from cerebro_db.configs.model_outputs import metric_names
from cerebro_db.errors import PACK_AGAIN, InvalidData
from cerebro_db.training import state as states
from cerebro_db.training.blocks import Shapes
from cerebro_db.training.causes import cause
from cerebro_db.training.detail import Detail, added_counts, details_for, exact_auc
from cerebro_db.training.fields import Fields
from cerebro_db.training.models import check_training
from cerebro_db.training.partitions import Partition, PartitionCache
from cerebro_db.training.program import Recipe
from cerebro_db.training.scoring import Partial, Scorer, add_partials, metrics_of
from cerebro_db.training.targets import TargetFacts, parts
from cerebro_db.training.tasks import Architectures, ScanTask, recipe_of

Tick = Callable[[], None]


class Scorers:
    """The scorers of a worker by key; the least recently used goes first."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._kept: dict[Any, Scorer] = {}

    def get(self, recipe: Any) -> Scorer:
        """The scorer of a recipe, made where there is none."""
        key = Scorer.key(recipe)
        scorer = self._kept.pop(key, None)
        if scorer is None:
            while len(self._kept) >= self._limit:
                self._kept.pop(next(iter(self._kept)))
            scorer = Scorer(recipe)
        self._kept[key] = scorer
        return scorer


@dataclass
class _Entry:
    mst_key: int
    recipe: Any
    scorer: Scorer
    state: states.State
    partials: list[Partial]
    details: tuple[Detail | None, ...]


@dataclass
class _Opening:
    """A configuration whose state is still coming in."""

    text: str
    known: Architectures
    chunks: list[bytes] = field(default_factory=list)

    def state(self) -> bytes:
        """The whole state."""
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)


class Scan:
    """Begun with a task, given states, fed with buffers; finished with partial sums.

    A configuration whose state cannot be scored is reported with its error;
    the others are not affected.
    """

    def __init__(self, task: ScanTask, scorers: Scorers, cache: PartitionCache, tick: Tick) -> None:
        self._task, self._scorers, self._cache, self._tick = task, scorers, cache, tick
        self._entries: list[_Entry] = []
        self._errors: dict[int, str] = {}
        self._open: _Opening | None = None
        self._loaded: _Entry | None = None
        self._partition = cache.get(task.cache_key)
        self._cached = self._partition is not None
        self._rows = 0

    def add(self, text: str, chunk: bytes, known: Architectures) -> None:
        """Take a configuration and a chunk of its state; chunks come one after another."""
        if self._open is None or self._open.text != text:
            self._close()
            self._open = _Opening(text, known)
        self._open.chunks.append(chunk)

    def _close(self) -> None:
        """The chunks of a configuration are all there."""
        opening, self._open = self._open, None
        if opening is None:
            return
        fields = Fields.parse(opening.text)
        mst_key = fields.integer("mst_key")
        try:
            recipe = recipe_of(fields, opening.known)
            scorer, state = self._scorers.get(recipe), states.from_bytes(opening.state())
            kind = fields.text("detail") if fields.has("detail") else None
            details = details_for(kind, recipe, scorer.units) if kind else ()
        except Exception as error:  # whatever Keras raises is about this configuration
            self._errors[mst_key] = cause(error)
            return
        self._entries.append(_Entry(mst_key, recipe, scorer, state, [], details))

    def feed(self, buffer_id: int, features: np.ndarray, targets: np.ndarray) -> None:
        """Take the rows of a buffer; they come in the order of their ids."""
        self._close()
        self._tick()
        if self._cached:
            return
        if self._partition is None and self._rows == 0 and self._fits(features, targets):
            self._partition = Partition.empty(self._task.buffers, features, targets)
        if self._partition is not None:
            self._partition.put(buffer_id, features, targets)
            return
        self._task.buffers.check(buffer_id, features, targets)
        self._rows += len(features)
        self._score_all(lambda: [(features, targets)])

    def finish(self, kept: Callable[[], list[str]]) -> str:
        """Partial sums of every configuration as JSON, and what the worker keeps."""
        self._close()
        if self._partition is not None:
            if not self._cached:
                self._cached = self._cache.put(self._task.cache_key, self._partition)
            self._rows = self._task.buffers.total
            self._score_all(self._partition.pieces)
        if self._rows != self._task.buffers.total:
            raise InvalidData(
                f"got {self._rows} rows in a scan; the partition has {self._task.buffers.total}",
                PACK_AGAIN,
            )
        partials = {entry.mst_key: _told_of(entry) for entry in self._entries}
        return json.dumps({"kept": kept(), "partials": partials, "errors": self._errors})

    @property
    def targets(self) -> TargetFacts:
        """How the buffers' targets are stored."""
        return self._task.targets

    @property
    def inputs(self) -> Shapes:
        """The shapes of several inputs; none where there is one."""
        return self._task.inputs

    # -- inside ----------------------------------------------------------------
    def _fits(self, features: np.ndarray, targets: np.ndarray) -> bool:
        row = features[:1].nbytes + targets[:1].nbytes
        return row * self._task.buffers.total <= self._cache.limit

    def _score_all(self, pieces: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]]) -> None:
        for entry in self._entries:
            for features, targets in pieces():
                self._tick()  # outside of what is caught: it raises when the statement is cancelled
                self._score(entry, features, targets)
        self._entries = [e for e in self._entries if e.mst_key not in self._errors]

    def _score(self, entry: _Entry, features: np.ndarray, targets: np.ndarray) -> None:
        if entry.mst_key in self._errors:
            return
        try:
            if self._loaded is not entry:
                entry.scorer.load(entry.state, entry.recipe.compile_params)
                self._loaded = entry
            stored = parts(targets)
            entry.partials.append(entry.scorer.measure(features, *stored))
            if entry.details:
                outputs = entry.scorer.predict(features)
                for detail, *of_one in zip(entry.details, outputs, stored, strict=True):
                    if detail is not None:
                        detail.add(*of_one)
        except Exception as error:  # such as a metric that does not fit the model's output
            self._errors[entry.mst_key] = cause(error)


def _told_of(entry: _Entry) -> dict[str, Any]:
    told = add_partials(entry.partials).to_json()
    if not entry.details:
        return told
    return told | {"details": [one and one.to_json() for one in entry.details]}


def try_scores(text: str, scorers: Scorers, known: Architectures) -> str:
    """Find out early what fails: score one row of zeros with every configuration.

    Args:
        text: JSON ``{"configurations": [{recipe..., "mst_key"}]}``.
        scorers: of this worker; what is made here serves the scans later.
        known: architectures checked before.

    Returns:
        JSON ``{mst_key: error}`` of those that cannot be scored, or trained.
    """
    errors = {}
    for task in Fields.parse(text).objects("configurations"):
        mst_key = task.integer("mst_key")
        try:
            recipe = recipe_of(task, known)
            scorer = scorers.get(recipe)
            targets = [np.zeros((1, *one.shape), one.dtype) for one in recipe.targets.each]
            partial = scorer.measure(np.zeros((1, *scorer.inputs.row), np.float32), *targets)
            _values(recipe, partial)
        except Exception as error:  # whatever Keras raises is about this configuration
            errors[mst_key] = f"its loss or metrics cannot be computed: {cause(error)}"
            continue
        try:
            check_training(recipe.compile_params, scorer.model, recipe.architecture)
        except Exception as error:  # the same
            errors[mst_key] = cause(error)
    return json.dumps(errors)


def combine(text: str, known: Architectures) -> str:
    """Add the sums of all partitions, in the order given, and turn them into results.

    Args:
        text: JSON ``{"configurations": [{recipe..., "mst_key", "partials": [...]}]}``.

    Returns:
        JSON ``{mst_key: {"loss": x, "names": [...], "metrics": [...]}}``, or ``{"error": text}``
        for a configuration whose sums give no result.
    """
    results: dict[int, dict[str, Any]] = {}
    for task in Fields.parse(text).objects("configurations"):
        mst_key = task.integer("mst_key")
        try:
            results[mst_key] = _result(task, known)
        except Exception as error:  # whatever Keras raises is about this configuration
            results[mst_key] = {"error": cause(error)}
    return json.dumps(results)


def _result(task: Fields, known: Architectures) -> dict[str, Any]:
    recipe = recipe_of(task, known)
    partials = task.raw("partials")
    total = add_partials([Partial.from_json(partial) for partial in partials])
    values = _values(recipe, total)
    kind = task.text("detail") if task.has("detail") else None
    details = list(zip(*(partial["details"] for partial in partials), strict=True)) if kind else []
    if kind == AUC:
        values = _with_exact(recipe, values, details)
    rows = max(total.rows, 1)
    values += [loss / rows for loss in total.losses]
    result = {
        "loss": total.loss_sum / rows,
        "names": metric_names(recipe.outputs),
        "metrics": values,
    }
    if kind != CONFUSION:
        return result
    counts = {place: added_counts(one) for place, one in enumerate(details) if one[0] is not None}
    return result | {"counts": [[place, *c] for place, found in counts.items() for c in found]}


def _with_exact(recipe: Recipe, values: list[float], details: Sequence[Any]) -> list[float]:
    """The metrics, with the exact value of those that have one."""
    specs = [(place, s) for place, o in enumerate(recipe.outputs) for s in o.metrics]
    exact = {place: exact_auc(details[place]) for place, spec in specs if is_exact(spec)}
    return [
        exact[place] if is_exact(spec) else value
        for (place, spec), value in zip(specs, values, strict=True)
    ]


def _values(recipe: Recipe, total: Partial) -> list[float]:
    """The metrics of all outputs."""
    metrics = metrics_of(recipe.outputs, recipe.targets, total.units)
    return [metric.result_of(arrays) for metric, arrays in zip(metrics, total.metrics, strict=True)]
