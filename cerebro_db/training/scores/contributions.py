"""Contributions of columns to predictions: Shapley values by sampling.

The prediction of a row is compared with those of other rows, the background. On the way from a background row to the
row at hand the columns are changed one after another, in an order of the seed; what the prediction moves by is the
contribution of the column that was changed. Each order is also gone backwards. The mean over all ways is an unbiased
estimate of the Shapley value of the column (Strumbelj and Kononenko 2014), and the contributions of a row add up to
its prediction less the mean prediction of the background, whatever the orders.

All rows go the same ways, so that contributions do not depend on batches.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np

from cerebro_db.training.buffers import Losses, decode_features, parse_rows
from cerebro_db.training.fields import Fields
from cerebro_db.training.programs import Scorers
from cerebro_db.training.scores.prediction import Answers, Prediction
from cerebro_db.training.scores.studies.study import MAX_PLACE, columns_of, flat
from cerebro_db.training.tasks import Architectures

# Rows that are predicted at once, and bytes of their features.
_ROWS, _BYTES = 8192, 32 * 2**20


def prediction_of(
    text: str, data: bytes, scorers: Scorers, known: Architectures, tick: Callable[[], None]
) -> Prediction:
    """What a task asks of a model: predictions, or contributions to these."""
    kind = Contributions if Fields.parse(text).has("contributions") else Prediction
    return kind(text, data, scorers, known, tick)


class Contributions(Prediction):
    """A model that is asked how much each column of a row has moved its prediction.

    Args:
        text: as of a prediction, with ``contributions``: places of the columns, the seed, rows of the background,
            and the class whose probability is explained, where that is not the most probable one of each row.
        data, scorers, known, tick: as of a prediction.
    """

    def __init__(
        self,
        text: str,
        data: bytes,
        scorers: Scorers,
        known: Architectures,
        tick: Callable[[], None],
    ) -> None:
        super().__init__(text, data, scorers, known, tick)
        task = Fields.parse(text).object("contributions")
        self._features_of = columns_of(task)
        self._seed = task.integer("seed") % 2**64
        self._class = task.integer("class", 0, MAX_PLACE) if task.has("class") else None
        given = task.object("background")
        rows = self._parsed(given, base64.b64decode(given.text("data"), validate=True))
        self._background = flat(rows, self._features_of)
        self._of_background = self._predicted(self._background)

    def _parsed(self, given: Fields, data: bytes) -> np.ndarray:
        count = given.integer("rows", 1, MAX_PLACE)
        if given.flag("packed"):
            shape = [size for row in self._inputs for size in (count, *row)]
            return decode_features(data, shape, self._inputs)
        pairs = enumerate(self._columns)
        losses = [Losses(column, place in self._whole) for place, column in pairs]
        return parse_rows(data, count, self._inputs, self._divisor, losses)

    def _answers(self, features: np.ndarray) -> Answers:
        """The class of each row, None of numbers; of each row its contributions, the mean of the background, and
        the prediction."""
        rows = flat(features, self._features_of)
        found = self._predicted(rows)
        chosen = self._chosen(found)
        prediction = found[np.arange(len(rows)), chosen]
        base = self._of_background[:, chosen].mean(axis=0)
        parts = np.zeros((len(rows), len(self._features_of)))
        for number, start in enumerate(self._background):
            order = np.random.default_rng([self._seed, number]).permutation(parts.shape[1])
            before = self._of_background[number, chosen]
            for way in (order, order[::-1]):
                values = self._way(rows, start, way, chosen)
                values = np.concatenate([before[np.newaxis], values, prediction[np.newaxis]])
                parts[:, way] += np.diff(values, axis=0).T
        parts /= 2 * len(self._background)
        numbers = np.concatenate([parts, base[:, np.newaxis], prediction[:, np.newaxis]], axis=1)
        is_class = self._targets[0].kind == "class"
        return chosen.tolist() if is_class else None, numbers.ravel().tolist()

    def _chosen(self, found: np.ndarray) -> np.ndarray:
        if self._class is None:
            return found.argmax(axis=1)
        return np.full(len(found), self._class)

    def _way(
        self, rows: np.ndarray, start: np.ndarray, way: np.ndarray, chosen: np.ndarray
    ) -> np.ndarray:
        """Predictions between a background row and the rows, ``[columns - 1, rows]``: that at the end is known."""
        values = np.empty((len(way) - 1, len(rows)))
        now = np.repeat(start[np.newaxis], len(rows), axis=0)
        most = max(1, min(_ROWS, _BYTES // rows[0].nbytes) // len(rows))
        for first in range(0, len(values), most):
            steps = way[first : min(first + most, len(values))]
            block = np.empty((len(steps), *now.shape), now.dtype)
            for place, column in enumerate(steps):
                now[:, self._features_of[column]] = rows[:, self._features_of[column]]
                block[place] = now
            found = self._predicted(block.reshape(-1, now.shape[1]))
            everywhere = np.tile(chosen, len(steps))
            values[first : first + len(steps)] = found[np.arange(len(found)), everywhere].reshape(
                len(steps), -1
            )
        return values

    def _predicted(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities of all classes, or the only number, of flat rows."""
        self._tick()
        features = rows.reshape(len(rows), *self._models[0].scorer.row)
        found: np.ndarray = self._numbers(features)[0].reshape(len(rows), -1)
        return found
