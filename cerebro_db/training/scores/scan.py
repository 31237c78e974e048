"""Scores of many configurations in one pass over a partition."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cerebro_db.configs.grids.outputs import AUC, CONFUSION, CURVES, is_exact, metric_names
from cerebro_db.errors import PACK_AGAIN, InvalidArgument, InvalidData
from cerebro_db.training import state as states
from cerebro_db.training.backends import Scorer
from cerebro_db.training.buffers import Shapes
from cerebro_db.training.causes import cause
from cerebro_db.training.environment import computing
from cerebro_db.training.fields import Fields
from cerebro_db.training.folds import Fold, NamedRows, fold_of
from cerebro_db.training.partitions import Partition, PartitionCache
from cerebro_db.training.programs import Scorers
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.curves import CurveCounts
from cerebro_db.training.scores.curves import added as added_curves
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.metric_views import MetricView, view_of
from cerebro_db.training.scores.probabilities import of_logits, probabilities
from cerebro_db.training.scores.studies import combined as studied
from cerebro_db.training.scores.studies import recipe_for, study_of
from cerebro_db.training.scores.studies.study import Studied, Study
from cerebro_db.training.scores.sums import Partial, add_partials
from cerebro_db.training.scores.targets import TargetFacts, parts
from cerebro_db.training.tasks import Architectures, ScanTask, recipe_of


@dataclass
class _Area:
    """Outputs of one view, apart for the rows of its class and all others.

    Args:
        view: what the metrics are given.
        labels: of the metrics whose exact value this is.
    """

    view: MetricView
    labels: list[str] = field(default_factory=list)
    positive: list[np.ndarray] = field(default_factory=list)
    negative: list[np.ndarray] = field(default_factory=list)

    def add(self, outputs: np.ndarray, truth: np.ndarray) -> None:
        """Take the outputs for some rows, and which of them are of the class."""
        values = _ranked(outputs, self.view)
        truth = truth.reshape(values.shape)
        self.positive.append(values[truth].astype(np.float32))
        self.negative.append(values[~truth].astype(np.float32))

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        positive, negative = _packed(self.positive), _packed(self.negative)
        return {"labels": self.labels, "positive": positive, "negative": negative}


@dataclass
class Detail:
    """Share of one configuration's predictions for some rows.

    Args:
        kind: AUC, CONFUSION or CURVES.
        recipe: of the configuration.
        units: last dimension of the output.
        place: of the output among those of the model.
    """

    kind: str
    recipe: Recipe
    units: int
    place: int = 0
    _areas: dict[MetricView, _Area] = field(default_factory=dict)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)
    _curves: CurveCounts | None = None

    def __post_init__(self) -> None:
        if self.kind not in (AUC, CONFUSION, CURVES):
            raise InvalidArgument(
                f"task: got the detail {self.kind!r}; allowed: auc, confusion, curves"
            )
        if self.kind != AUC and self._facts.kind != "class":
            raise InvalidArgument("got a float target; allowed: classes")
        if self.kind == CURVES:
            self._curves = CurveCounts(self._facts.num_classes)
        if self.kind == AUC:
            self._areas = self._exact_areas()

    def add(self, outputs: np.ndarray, targets: np.ndarray) -> None:
        """Take the outputs for some rows, and their stored targets."""
        if self._curves is not None:
            self._curves.add(self._probabilities(outputs), targets)
            return
        if self.kind == CONFUSION:
            self._count(outputs, targets)
            return
        for area in self._areas.values():
            positive = area.view.positive
            truth = self._truth(targets, area.view) if positive is None else targets == positive
            area.add(outputs, truth)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        if self._curves is not None:
            return self._curves.to_json()
        if self.kind == CONFUSION:
            counts = self._counts.items()
            return {"counts": [[*pair, count] for pair, count in sorted(counts)]}
        return {"areas": [area.to_json() for area in self._areas.values()]}

    @property
    def _facts(self) -> TargetFacts:
        return self.recipe.targets.each[self.place]

    def _exact_areas(self) -> dict[MetricView, _Area]:
        """One for each view of the output that metrics with an exact value are given."""
        output = self.recipe.outputs[self.place]
        areas: dict[MetricView, _Area] = {}
        for spec in filter(is_exact, output.metrics):
            view = view_of(spec, output.loss, self._facts, self.units)
            areas.setdefault(view, _Area(view)).labels.append(spec.label)
        return areas

    def _truth(self, targets: np.ndarray, view: MetricView) -> np.ndarray:
        if view.encoding == "onehot":
            return np.eye(self._facts.num_classes, dtype=bool)[targets]
        return targets != 0

    def _probabilities(self, outputs: np.ndarray) -> np.ndarray:
        loss = self.recipe.outputs[self.place].loss
        return probabilities(outputs.astype(np.float64), loss, self._facts.num_classes)

    def _count(self, outputs: np.ndarray, targets: np.ndarray) -> None:
        classes, found = self._facts.num_classes, self._probabilities(outputs).argmax(axis=1)
        pairs, counts = np.unique(targets.astype(np.int64) * classes + found, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            place = divmod(pair, classes)
            self._counts[place] = self._counts.get(place, 0) + count


def _ranked(outputs: np.ndarray, view: MetricView) -> np.ndarray:
    """Numbers in the order of the probability of the positive class, ``float[rows]``; else of all outputs."""
    if view.pair:
        second = of_logits(outputs, one_by_one=True) if view.logits else outputs
        return np.concatenate([1.0 - second, second], axis=1)
    if view.positive is None:
        one_by_one = view.binary_loss or outputs.shape[-1] == 1
        return of_logits(outputs, one_by_one=one_by_one) if view.logits else outputs
    if outputs.shape[1] == 1:
        return outputs[:, 0] if view.positive == 1 else -outputs[:, 0]
    chosen = outputs[:, view.positive]
    if not view.logits or view.binary_loss:
        return chosen
    return chosen.astype(np.float64) - outputs[:, 1 - view.positive]


def details_for(kind: str, recipe: Recipe, units: Sequence[int]) -> tuple[Detail | None, ...]:
    """Details of each output; None for those of several of which there is nothing to ask."""
    if len(units) == 1:
        return (Detail(kind, recipe, units[0]),)
    has = [
        any(map(is_exact, output.metrics)) if kind == AUC else facts.kind == "class"
        for output, facts in zip(recipe.outputs, recipe.targets.each, strict=True)
    ]
    return tuple(
        Detail(kind, recipe, units[place], place) if asked else None
        for place, asked in enumerate(has)
    )


def _exact_areas(details: Sequence[Any]) -> dict[str, float]:
    """The exact value of each metric of an output that has one, by its label.

    Args:
        details: what :meth:`Detail.to_json` gave for each partition.
    """
    together = zip(*(detail["areas"] for detail in details), strict=True)
    return {label: exact_auc(parts) for parts in together for label in parts[0]["labels"]}


def exact_auc(details: Sequence[Any]) -> float:
    """The probability that a positive has a higher output than a negative, ties counting half.

    Args:
        details: the outputs of positives and negatives of each partition.

    Returns:
        NaN where there are no positives, or no negatives.
    """
    positive = np.concatenate([_unpacked(detail["positive"]) for detail in details])
    negative = np.sort(np.concatenate([_unpacked(detail["negative"]) for detail in details]))
    pairs = len(positive) * len(negative)
    if not pairs:
        return float("nan")
    below = np.searchsorted(negative, positive, "left").sum(dtype=np.int64)
    not_above = np.searchsorted(negative, positive, "right").sum(dtype=np.int64)
    return (int(below) + int(not_above)) / (2 * pairs)


def added_counts(details: Sequence[Any]) -> list[list[int]]:
    """Of all partitions together: actual class, predicted class, rows; by their ids."""
    total: dict[tuple[int, int], int] = {}
    for detail in details:
        for actual, predicted, count in detail["counts"]:
            total[actual, predicted] = total.get((actual, predicted), 0) + int(count)
    return [[*pair, count] for pair, count in sorted(total.items())]


def _packed(parts: Sequence[np.ndarray]) -> str:
    joined = np.concatenate([np.zeros(0, np.float32), *parts])
    return base64.b64encode(joined.astype("<f4").tobytes()).decode("ascii")


def _unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


Tick = Callable[[], None]


@dataclass
class _Entry:
    mst_key: int
    recipe: Any
    scorer: Scorer
    state: states.State
    partials: list[Partial]
    details: tuple[Detail | None, ...]
    study: Study | None = None
    fold: Fold | NamedRows | None = None
    held_out: bool = False

    def rows(self, buffer_id: int, rows: int) -> np.ndarray | None:
        """Places of the rows of a buffer that it is scored on; None for all of them."""
        if self.fold is None:
            return None
        choose = self.fold.held_out if self.held_out else self.fold.kept
        return choose(buffer_id, rows)


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
        self._rows = self._streamed = 0

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
            recipe = recipe_for(fields, recipe_of(fields, opening.known))
            scorer, state = self._scorers.get(recipe), states.from_bytes(opening.state())
            kind = fields.text("detail") if fields.has("detail") else None
            details = details_for(kind, recipe, scorer.units) if kind else ()
            study = self._study(fields, recipe, scorer)
            fold = fold_of(fields, self._task.cache_key[2], self._task.buffers.rows_of)
            held_out = isinstance(fold, Fold) and fields.flag("held_out")
        except Exception as error:  # whatever Keras raises is about this configuration
            self._errors[mst_key] = cause(error)
            return
        one = _Entry(mst_key, recipe, scorer, state, [], details, study, fold, held_out)
        self._entries.append(one)

    def _study(self, fields: Fields, recipe: Recipe, scorer: Scorer) -> Study | None:
        if not fields.has("study"):
            return None
        partition_key = self._task.cache_key[2]
        studied_model = Studied(recipe, scorer, partition_key, self._tick)
        return study_of(fields.object("study"), studied_model)

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
        self._streamed = len(features)
        self._score_all(lambda: [(buffer_id, features, targets)])

    def finish(self, kept: Callable[[], list[str]]) -> str:
        """Partial sums of every configuration as JSON, and what the worker keeps."""
        self._close()
        if self._partition is not None:
            if not self._cached:
                self._cached = self._cache.put(self._task.cache_key, self._partition)
            self._rows = self._task.buffers.total
            self._score_all(self._partition.named_pieces)
        if self._rows != self._task.buffers.total:
            raise InvalidData(
                f"got {self._rows} rows in a scan; the partition has {self._task.buffers.total}",
                PACK_AGAIN,
            )
        self._end_studies()
        partials = {entry.mst_key: _partials_of(entry) for entry in self._entries}
        return json.dumps({"kept": kept(), "partials": partials, "errors": self._errors})

    @property
    def targets(self) -> TargetFacts:
        """Storage of the buffers' targets."""
        return self._task.targets

    @property
    def inputs(self) -> Shapes:
        """The shapes of several inputs; none where there is one."""
        return self._task.inputs

    # -- inside ----------------------------------------------------------------
    def _fits(self, features: np.ndarray, targets: np.ndarray) -> bool:
        row = features[:1].nbytes + targets[:1].nbytes
        return row * self._task.buffers.total <= self._cache.limit

    def _score_all(
        self, pieces: Callable[[], Iterable[tuple[int, np.ndarray, np.ndarray]]]
    ) -> None:
        passed = 0 if self._partition is not None else self._rows - self._streamed
        for entry in self._entries:
            first = passed
            for buffer_id, features, targets in pieces():
                self._tick()  # outside of what is caught: it raises when the statement is cancelled
                rows = entry.rows(buffer_id, len(features))
                if rows is None:
                    self._score(entry, features, targets, first)
                elif len(rows):
                    self._score(entry, features[rows], targets[rows], first, rows)
                if entry.study is not None and entry.mst_key not in self._errors:
                    entry.study.add(features, parts(targets))
                first += len(features)
        self._entries = [e for e in self._entries if e.mst_key not in self._errors]

    def _end_studies(self) -> None:
        for entry in self._entries:
            if entry.study is not None:
                self._load(entry)
                entry.study.finish()

    def _load(self, entry: _Entry) -> None:
        if self._loaded is not entry:
            entry.scorer.load(entry.state, entry.recipe.compile_params)
            self._loaded = entry

    def _score(
        self,
        entry: _Entry,
        features: np.ndarray,
        targets: np.ndarray,
        first: int,
        rows: np.ndarray | None = None,
    ) -> None:
        if entry.mst_key in self._errors:
            return
        try:
            self._load(entry)
            stored = parts(targets)
            entry.partials.append(entry.scorer.measure(features, *stored))
            if entry.details:
                outputs = entry.scorer.predict(features)
                for detail, *of_one in zip(entry.details, outputs, stored, strict=True):
                    if detail is not None:
                        detail.add(*of_one)
        except IdsBeyond as error:
            place = error.row if rows is None else int(rows[error.row])
            where = self._task.buffers.named(first + place)
            where = f"{where} of partition {self._task.cache_key[2]}"
            self._errors[entry.mst_key] = f"{where}: {error.message}"
        except Exception as error:  # such as a metric that does not fit the model's output
            self._errors[entry.mst_key] = cause(error)


def _partials_of(entry: _Entry) -> dict[str, Any]:
    sums = add_partials(entry.partials).to_json()
    if entry.study is not None:
        return sums | {"study": entry.study.to_json()}
    if not entry.details:
        return sums
    return sums | {"details": [one and one.to_json() for one in entry.details]}


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
            partial = scorer.measure(np.zeros((1, *scorer.row), np.float32), *targets)
            computing(recipe.backend).metrics(recipe, partial)
        except Exception as error:  # whatever Keras raises is about this configuration
            errors[mst_key] = f"its loss or metrics cannot be computed: {cause(error)}"
            continue
        try:
            scorer.check_training(recipe)
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
    recipe = recipe_for(task, recipe_of(task, known))
    partials = task.raw("partials")
    total = add_partials([Partial.from_json(partial) for partial in partials])
    values = computing(recipe.backend).metrics(recipe, total)
    kind = task.text("detail") if task.has("detail") else None
    details = list(zip(*(partial["details"] for partial in partials), strict=True)) if kind else []
    if kind == AUC:
        values = _with_exact(recipe, values, details)
    values += total.loss_of_each(recipe.outputs)
    result = {
        "loss": total.loss(recipe.outputs),
        "names": metric_names(recipe.outputs),
        "metrics": values,
    }
    if task.has("study"):
        found = studied(task.object("study"), recipe, [partial["study"] for partial in partials])
        return result | {"study": found}
    if kind == CURVES:
        return result | {"curves": _curves(recipe, details)}
    if kind != CONFUSION:
        return result
    counts = {place: added_counts(one) for place, one in enumerate(details) if one[0] is not None}
    return result | {"counts": [[place, *c] for place, found in counts.items() for c in found]}


def _curves(recipe: Recipe, details: Sequence[Any]) -> list[list[Any]]:
    """Places of outputs, and the curves of each."""
    return [
        [place, added_curves(recipe.targets.each[place].num_classes, parts)]
        for place, parts in enumerate(details)
        if parts[0] is not None
    ]


def _with_exact(recipe: Recipe, values: list[float], details: Sequence[Any]) -> list[float]:
    """The metrics, with the exact value of those that have one."""
    specs = [(place, s) for place, o in enumerate(recipe.outputs) for s in o.metrics]
    places = {place for place, spec in specs if is_exact(spec)}
    exact = {place: _exact_areas(details[place]) for place in places}
    return [
        exact[place][spec.label] if is_exact(spec) else value
        for (place, spec), value in zip(specs, values, strict=True)
    ]
