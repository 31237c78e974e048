"""Predictions of one model, or of several together, for batches of rows."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from cerebro_db.configs.functions.losses import LossSpec
from cerebro_db.configs.grids.parameters import ByOutput
from cerebro_db.configs.names import is_custom
from cerebro_db.configs.rounding import Rounding
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.training import state as states
from cerebro_db.training.backends import Scorer
from cerebro_db.training.buffers import (
    Losses,
    Shapes,
    decode_features,
    parse_rows,
    side_by_side,
    to_float32,
)
from cerebro_db.training.fields import Fields
from cerebro_db.training.programs import Scorers
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.probabilities import probabilities
from cerebro_db.training.tasks import Architectures, inputs_of, recipe_of

Answers = tuple[list[int] | None, list[float]]
# How far the sum of probabilities may be from 1: layers may compute in 16 bits.
_TOLERANCE = 0.01
# What a model's state may be: that of a run, or what ``model_weights`` of a model holds.
_STATE, _WEIGHTS = "state", "weights"
RESPONSE = "response"


class Predictor:
    """A model with what was trained: features in, probabilities of classes or values out.

    Args:
        task: the recipe of the model, and ``format``, how ``data`` is written.
        data: the model's state.
        scorers: of the worker; models of one kind share a scorer.
        known: architectures of the worker.
    """

    def __init__(self, task: Fields, data: bytes, scorers: Scorers, known: Architectures) -> None:
        self.recipe: Recipe = recipe_of(task, known)
        self._format = task.text("format")
        if self._format not in (_STATE, _WEIGHTS):
            raise InvalidArgument(f"task: got the format {self._format!r}; allowed: state, weights")
        self._data = data
        self.scorer: Scorer = scorers.get(_without_functions(self.recipe))
        self.load()

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept of the model beside its scorer."""
        return len(self._data)

    def load(self) -> None:
        """Put what was trained into the scorer, which may hold another model's."""
        if self._format == _WEIGHTS:
            self.scorer.set_weights(self._data)
        else:
            self.scorer.load(states.from_bytes(self._data), self.recipe.compile_params)

    def numbers(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Meaning of the model's outputs, each ``float64[rows, ...]``."""
        return [
            probabilities(output.astype(np.float64), spec.loss, facts.num_classes)
            if facts.kind == "class"
            else output.astype(np.float64)
            for output, spec, facts in zip(
                outputs, self.recipe.outputs, self.recipe.targets.each, strict=True
            )
        ]


def _without_functions(recipe: Recipe) -> Recipe:
    """The same without metrics and registered functions, which predictions have no use for."""
    losses = tuple(
        LossSpec("MeanSquaredError") if is_custom(output.loss.name) else output.loss
        for output in recipe.outputs
    )
    params = structs.replace(
        recipe.compile_params,
        loss=losses[0],
        losses=ByOutput(losses) if len(losses) > 1 else None,
        metrics=(),
        output_metrics=None,
    )
    return dataclasses.replace(recipe, compile_params=params)


class Prediction:
    """Models that are loaded once and asked batch by batch; of several the mean counts.

    Args:
        text: JSON: the recipe of the first model, and shape, divisor, and ranks, for each output
            the number of classes that are wanted of each row; for several inputs their shapes.
        data: that model's state.
        scorers: of the worker.
        known: architectures of the worker.
        tick: called at every batch.
    """

    def __init__(
        self,
        text: str,
        data: bytes,
        scorers: Scorers,
        known: Architectures,
        tick: Callable[[], None],
    ) -> None:
        task = Fields.parse(text)
        self._scorers, self._known, self._tick = scorers, known, tick
        self._models = [Predictor(task, data, scorers, known)]
        self._loaded = self._models[0]
        given = inputs_of(task) or (task.integers("shape", 0, 2**31 - 1, most=32),)
        self._inputs = self._loaded.scorer.shapes
        if given != self._inputs:
            raise InvalidArgument(
                f"got rows of shape {_shown(given)}; allowed: {_shown(self._inputs)}, "
                "as the model has it"
            )
        self._divisor = task.number("divisor")
        named = task.texts("columns") if task.has("columns") else {}
        self._columns = [named.get(str(place), "features") for place in range(len(self._inputs))]
        self._whole = frozenset(task.integers("whole", 0) if task.has("whole") else ())
        self._targets = self._loaded.recipe.targets.each
        # Of a model of which it is not known what its outputs are: whether probabilities are wanted.
        self._unsure = task.text("unsure") if task.has("unsure") else None
        self._ranks = task.integers("ranks", 0, most=len(self._targets))
        if len(self._ranks) != len(self._targets):
            raise InvalidArgument(
                f"task: got {len(self._ranks)} ranks; allowed: one for each of the "
                f"{len(self._targets)} outputs"
            )

    def extend(self, text: str, data: bytes) -> None:
        """Ask one more model, for targets of the same kind."""
        task = Fields.parse(text)
        models = [(model.recipe, model.kept_bytes) for model in self._models]
        self._known.check_together([*models, (recipe_of(task, self._known), len(data))])
        model = Predictor(task, data, self._scorers, self._known)
        if model.recipe.targets != self._models[0].recipe.targets:
            raise InvalidArgument("task: got a model of other targets than the first one's")
        self._models.append(model)
        self._loaded = model

    def batch(self, data: bytes, count: int, notice: Callable[[str], None]) -> Answers:
        """Answers for rows as the server serialises them.

        Args:
            data: what array_send() wrote of every row, concatenated.
            count: number of rows.
            notice: gets the report of each input that has numbers which float32 does not hold.
        """
        losses = [
            Losses(column, place in self._whole) for place, column in enumerate(self._columns)
        ]
        answers = self._answers(parse_rows(data, count, self._inputs, self._divisor, losses))
        for one in losses:
            if one.found is not None:
                notice(one.found.text())
        return answers

    def buffer(self, data: bytes, count: int) -> Answers:
        """Answers for rows of a packed table, which have been divided already.

        Args:
            data: float32, row by row.
            count: number of rows.
        """
        shape = [size for row in self._inputs for size in (count, *row)]
        return self._answers(decode_features(data, shape, self._inputs))

    def _answers(self, features: np.ndarray) -> Answers:
        """Class ids, the best of each row first, and their probabilities; or the rows' values.

        Of several outputs what is of the first one comes first in each row. Lists without
        structure: the server takes such an array much faster than many small ones.
        """
        self._tick()
        classes, numbers = [], []
        outputs = self._models[0].recipe.outputs
        for found, ranks, facts, output in zip(
            self._numbers(features), self._ranks, self._targets, outputs, strict=True
        ):
            if facts.kind != "class":
                numbers.append(found.reshape(len(found), -1))
                continue
            order = np.argsort(-found, axis=1, kind="stable")[:, :ranks]
            classes.append(order)
            best = np.take_along_axis(found, order, axis=1)
            is_one = output.loss.compares_each
            numbers.append(best if self._unsure is None else self._sure(found, best, is_one))
        return _flat(classes) if classes else None, _flat(numbers)

    def _sure(self, outputs: np.ndarray, best: np.ndarray, is_one: bool) -> np.ndarray:
        """The best outputs of rows, where these are probabilities.

        Raises:
            InvalidData: they are not, and probabilities are wanted, or the class depends on that.
        """
        wrong = ~_are_probabilities(outputs)
        if not wrong.any():
            return best
        if self._unsure == RESPONSE and not is_one:
            return np.where(wrong[:, np.newaxis], np.nan, best)
        raise not_probabilities(outputs[wrong][0], is_one)

    def _numbers(self, features: np.ndarray) -> list[np.ndarray]:
        total: list[np.ndarray] | None = None
        for model in self._models:
            if model is not self._loaded:
                model.load()
                self._loaded = model
            numbers = model.numbers(model.scorer.predict(features))
            total = [a + b for a, b in zip(total, numbers, strict=True)] if total else numbers
        assert total is not None
        count = len(self._models)
        return [one / count for one in total] if count > 1 else total


def _are_probabilities(outputs: np.ndarray) -> np.ndarray:
    """For each row, whether its outputs are a distribution."""
    within = ((outputs >= 0) & (outputs <= 1)).all(axis=1)
    found: np.ndarray = within & (np.abs(outputs.sum(axis=1) - 1) <= _TOLERANCE)
    return found


def not_probabilities(outputs: np.ndarray, is_one: bool) -> InvalidData:
    """The error for outputs of a row that are no distribution."""
    shown = ", ".join(f"{value:.4g}" for value in (outputs[1:] if is_one else outputs)[:5])
    more = ", ..." if len(outputs) > 5 else ""
    allowed = "a number from 0 to 1" if is_one else "numbers from 0 to 1 whose sum is 1"
    return InvalidData(
        f"model_id: got a model whose output for a row is {shown}{more}, which is no probability; "
        f"allowed: {allowed}",
        "from_logits := true makes probabilities of logits"
        + (
            "; class_values := NULL with pred_type := 'response' returns the number itself"
            if is_one
            else "; pred_type := 'response' returns the class of the largest output"
        ),
    )


def _flat(parts: Sequence[np.ndarray]) -> list[Any]:
    """Rows of all parts, side by side, one after another."""
    joined = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    flat: list[Any] = joined.ravel().tolist()
    return flat


def _shown(shapes: Shapes) -> str:
    return str(shapes[0] if len(shapes) == 1 else shapes)


Answer = tuple[str | None, float | None, list[Any]]


def no_notice(message: str) -> None:
    """Report to nobody."""


class RowModel:
    """A model for single rows.

    Args:
        task: the recipe of the model, and ``format``, how ``data`` is written.
        data: the model's state.
        known: architectures of this process.
        names: of the targets.
        class_values: of each output, in the order of the ids; empty for float targets.
        shapes: of a row of each input.
        divisor: the features are divided by it.
        class_kinds: of each output, the type of its class values where these are dates or times.
    """

    def __init__(
        self,
        task: Mapping[str, Any],
        data: bytes,
        known: Architectures,
        names: Sequence[str],
        class_values: Sequence[Sequence[str | None]],
        shapes: Shapes,
        divisor: float,
        class_kinds: Sequence[str | None] = (),
    ) -> None:
        # A scorer of its own: what else is computed in this process must not load another state.
        self._model = Predictor(Fields(task), data, Scorers(1), known)
        self.names, self.class_kinds = tuple(names), tuple(class_kinds)
        self._class_values, self._shapes, self._divisor = class_values, shapes, divisor
        self._is_reported = False

    def answer(
        self,
        features: Sequence[Any],
        notice: Callable[[str], None] = no_notice,
        *,
        is_whole: bool = False,
    ) -> Answer:
        """The best class and its probability (None for float targets), and all numbers.

        Args:
            features: of the row.
            notice: gets a report, once of each model, where float32 does not hold a number.
            is_whole: whether the features are known to be whole numbers, in whatever type they come.

        Raises:
            InvalidArgument: the features have another shape, or there are several inputs or outputs.
            InvalidData: one of them is NULL, or no number that a model can take, or a whole number that float32
                does not hold.
        """
        if len(self._class_values) > 1:
            raise InvalidArgument(
                f"model_table: got a model of {len(self._shapes)} inputs and "
                f"{len(self._class_values)} outputs; allowed: one output",
                hint="cerebro.cerebro_predict_outputs takes several",
            )
        return self.answers(self._parted(features), notice, is_whole=is_whole)[0]

    def _parted(self, features: Sequence[Any]) -> list[Sequence[Any]]:
        """The features of each input, out of those of all inputs, one after another."""
        if len(self._shapes) == 1:
            return [features]
        sizes = [math.prod(shape) for shape in self._shapes]
        if any(len(shape) != 1 for shape in self._shapes) or len(features) != sum(sizes):
            raise InvalidArgument(
                f"features: got {len(features)} elements for a model of {len(sizes)} inputs; allowed: numbers, those "
                f"of all inputs one after another, {' + '.join(map(str, sizes))}",
                hint="cerebro.cerebro_predict_outputs takes an array for each input",
            )
        ends = list(itertools.accumulate(sizes))
        return [features[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def answers(
        self,
        inputs: Sequence[Any],
        notice: Callable[[str], None] = no_notice,
        *,
        is_whole: bool = False,
    ) -> list[Answer]:
        """The same for each output, from the features of each input; integers of Python are whole numbers."""
        if len(inputs) != len(self._shapes):
            raise InvalidArgument(
                f"features: got {len(inputs)} inputs; allowed: {len(self._shapes)}, as many as the "
                "model has"
            )
        pairs = zip(inputs, self._shapes, strict=True)
        rows, losses = zip(*(self._row(one, shape, is_whole) for one, shape in pairs), strict=True)
        found = [one for one in losses if one is not None]
        if found and not self._is_reported:
            # A query asks for each of its rows: once is enough.
            self._is_reported = True
            notice(sum(found[1:], found[0]).notice("features"))
        single = rows[0] if len(rows) == 1 else side_by_side(rows)
        outputs = self._model.scorer.predict_row(single)
        answers = [numbers[0] for numbers in self._model.numbers(outputs)]
        return [
            _answer(numbers, values)
            for numbers, values in zip(answers, self._class_values, strict=True)
        ]

    def _row(
        self, features: Any, shape: tuple[int, ...], is_whole: bool
    ) -> tuple[np.ndarray, Rounding | None]:
        """The row of an input, and the report of numbers that were changed."""
        try:
            row = _numbers(features)
        except (ValueError, TypeError):
            raise InvalidArgument(
                f"features: got something else than an array of numbers; allowed: the shape {shape}"
            ) from None
        if row.shape != shape:
            raise InvalidArgument(
                f"features: got the shape {row.shape}; allowed: {shape}, that of the rows "
                "that the model was trained on"
            )
        values = row[np.newaxis]
        try:
            result = to_float32(values, self._divisor)
        except InvalidData:
            raise InvalidData(
                "features: got a NULL, or a value that is NaN, infinite or too large; "
                "allowed: finite float32 numbers",
                hint="coalesce(value, 0) replaces a NULL; leave such a row out otherwise",
            ) from None
        losses = Losses("features", is_whole or _are_whole(features))
        losses.check(values, result, self._divisor)
        return result, losses.found


def _numbers(features: Any) -> np.ndarray:
    """The features as int64 where they are integers, so that each is the number that was given; else as float64.

    Raises:
        ValueError, TypeError: they are no array of numbers.
    """
    found = np.asarray(features)
    return found if found.dtype == np.int64 and found.size else np.asarray(features, np.float64)


def _are_whole(features: Any) -> bool:
    """True if all numbers are integers, be they as large as they want."""
    if isinstance(features, list):
        return bool(features) and all(map(_are_whole, features))
    return type(features) is int


def _answer(numbers: np.ndarray, class_values: Sequence[str | None]) -> Answer:
    if not class_values:
        return None, None, numbers.tolist() if numbers.ndim else [float(numbers)]
    best = int(np.argmax(numbers))
    return class_values[best], float(numbers[best]), numbers.tolist()
