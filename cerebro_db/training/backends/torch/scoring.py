"""Loss and metrics of configurations over buffers, as sums that add up over partitions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from cerebro_db.configs.grids.parameters import CompileParams
from cerebro_db.errors import InvalidData
from cerebro_db.training.backends.torch import optimizers
from cerebro_db.training.backends.torch.ids import EmbeddingIds
from cerebro_db.training.backends.torch.metrics import Measure, metrics_of
from cerebro_db.training.backends.torch.nets import net_of, trained_names
from cerebro_db.training.backends.torch.penalties import Penalty
from cerebro_db.training.backends.torch.program import losses_of
from cerebro_db.training.buffers import Shapes
from cerebro_db.training.recipe import Recipe
from cerebro_db.training.scores.id_fault import IdsBeyond
from cerebro_db.training.scores.sums import ROWS, LossPart, Partial
from cerebro_db.training.state import State, check_fits, of_model

_BATCH_FLOATS = 4 * 1024 * 1024
_MAX_BATCH = 4096


class Scorer:
    """A net with its loss and metrics, for every configuration of its kind.

    Args:
        recipe: of the first configuration.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._net = net_of(recipe)
        params = recipe.compile_params
        names = trained_names(self._net.architecture, params)
        self._penalty = Penalty(params, {name: self._net.tensors[name] for name in names})
        self._ids = EmbeddingIds(self._net)
        self._losses = losses_of(recipe, self._net)
        self._output_weights = [output.weight for output in recipe.outputs]
        self._measures = metrics_of(recipe.outputs, recipe.targets, self.units)
        self._batch_size = _batch_size([size for _, size in self._net.graph.sizes.values()])

    @functools.cached_property
    def units(self) -> tuple[int, ...]:
        """Last dimension of each output of the model."""
        return self._net.units()

    @property
    def shapes(self) -> Shapes:
        """The shape of a row of each input."""
        return self._net.shapes

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of a row as a worker holds it."""
        return self._net.row

    @staticmethod
    def key(recipe: Recipe) -> tuple[Any, ...]:
        """Configurations with equal keys share a scorer."""
        params = recipe.compile_params
        outputs = tuple(
            (
                (output.loss.name, repr(output.loss.arguments), output.weight),
                tuple((spec.name, repr(spec.arguments)) for spec in output.metrics),
            )
            for output in recipe.outputs
        )
        layers = (params.dropout, params.freeze, params.dtype_policy)
        penalties = (params.l1 is not None, params.l2 is not None)
        return (recipe.architecture_id, outputs, layers, penalties, recipe.targets)

    def load(self, state: State, params: CompileParams) -> None:
        """Take the model's part of a state and the strengths of the penalties."""
        model = {name: array for name, array in of_model(state).items() if name in self._expected}
        check_fits(model, self._expected)
        self._penalty.assign(params)
        self._net.load(model)

    @functools.cached_property
    def _expected(self) -> State:
        return self._net.described()

    def set_weights(self, weights: bytes) -> None:
        """Take weights as ``model_weights`` has them."""
        self._net.set_weights(weights)

    def check_training(self, recipe: Recipe) -> None:
        """Refuse a configuration that cannot be trained, such as one whose patterns fit no weight."""
        trained_names(self._net.architecture, recipe.compile_params)
        optimizers.kind_of(recipe.compile_params.optimizer)
        if recipe.compile_params.optimizer.schedule is not None:
            from cerebro_db.training.backends.torch.schedules import scheduled_rate

            scheduled_rate(recipe.compile_params.optimizer.schedule, 0)

    def measure(self, features: np.ndarray, *targets: np.ndarray) -> Partial:
        """Score the rows of one buffer with what is loaded; the targets of each output.

        Raises:
            InvalidData: an id is beyond an embedding.
        """
        self._check_ids(features)
        sums = [np.zeros(2) for _ in self._losses]
        metrics: list[list[np.ndarray]] = [measure.fresh() for measure in self._measures]
        for start, outputs in self._batches(features):
            rows = slice(start, start + self._batch_size)
            for place, (loss, output) in enumerate(zip(self._losses, outputs, strict=True)):
                truth = loss.encode(torch.from_numpy(np.ascontiguousarray(targets[place][rows])))
                with _computed():
                    found = loss.sums(output, truth)
                sums[place][: len(found)] += found
            self._add_metrics(metrics, outputs, [one[rows] for one in targets])
        return self._partial(len(features), sums, metrics)

    def _add_metrics(
        self,
        metrics: list[list[np.ndarray]],
        outputs: list[torch.Tensor],
        stored: Sequence[np.ndarray],
    ) -> None:
        arrays = [output.numpy() for output in outputs]
        for sums, measure in zip(metrics, self._measures, strict=True):
            for total, part in zip(
                sums, measure.sums(stored[measure.place], arrays[measure.place]), strict=True
            ):
                total += part

    def _partial(
        self, rows: int, sums: list[np.ndarray], metrics: list[list[np.ndarray]]
    ) -> Partial:
        """The sums of a pass: one total where all losses are means over rows, else those of each output."""
        penalty = float(self._penalty().detach()) * rows if self._penalty.is_on else 0.0
        found = tuple(tuple(one) for one in metrics)
        if {loss.kind for loss in self._losses} == {ROWS}:
            each = [float(one[0]) for one in sums]
            weighted = [
                v if w is None else v * w for v, w in zip(each, self._output_weights, strict=True)
            ]
            more = tuple(each) if len(each) > 1 else ()
            return Partial(rows, sum(weighted) + penalty, self.units, found, more)
        parts = tuple(
            LossPart(loss.kind, tuple(one[: loss.count].tolist()))
            for loss, one in zip(self._losses, sums, strict=True)
        )
        return Partial(rows, penalty, self.units, found, (), parts)

    def predict(self, features: np.ndarray) -> list[np.ndarray]:
        """The model's outputs, each ``float32[rows, ...]``.

        Raises:
            InvalidData: an id is beyond an embedding.
        """
        self._check_ids(features)
        found: list[list[np.ndarray]] = [[] for _ in self.units]
        for _, outputs in self._batches(features):
            for parts, output in zip(found, outputs, strict=True):
                parts.append(output.numpy())
        return [np.concatenate(parts) for parts in found]

    def predict_row(self, features: np.ndarray) -> list[np.ndarray]:
        """The outputs for one row, ``float32[1, ...]``, without the work that many rows share."""
        self._check_ids(features)
        return [np.array(output.numpy()) for output in self._outputs(features)]

    # -- inside ----------------------------------------------------------------
    def _batches(self, features: np.ndarray) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """The outputs for the rows, some at a time, each with the place of the first of them."""
        for start in range(0, len(features), self._batch_size):
            yield start, self._outputs(features[start : start + self._batch_size])

    def _outputs(self, features: np.ndarray) -> list[torch.Tensor]:
        rows = np.require(features, np.float32, ["C", "W"])
        with torch.inference_mode(), _computed():
            return [one.float() for one in self._net.evaluate(self._net.split(rows))]

    def _check_ids(self, features: np.ndarray) -> None:
        if (found := self._ids.fault(features)) is not None:
            raise IdsBeyond(*found)


@contextmanager
def _computed() -> Iterator[None]:
    """Turn an index beyond a tensor into an error of the data."""
    try:
        yield
    except IndexError as error:
        raise InvalidData(f"got rows that the model cannot compute: {str(error)[:200]}") from None


def _batch_size(sizes: Sequence[tuple[int | None, ...]]) -> int:
    """Rows of one scoring batch: a power of two whose largest tensor stays small."""
    rows = (int(np.prod([size or 1 for size in one])) for one in sizes if None in one)
    fitting = max(1, _BATCH_FLOATS // max(1, *rows, 1))
    return int(min(_MAX_BATCH, 2 ** int(np.log2(fitting))))


def results_of(recipe: Recipe, total: Partial) -> list[float]:
    """The metrics of all outputs."""
    measures: list[Measure] = metrics_of(recipe.outputs, recipe.targets, total.units)
    return [one.result(arrays) for one, arrays in zip(measures, total.metrics, strict=True)]
