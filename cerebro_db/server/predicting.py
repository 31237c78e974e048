"""Entries of a worker that predicts: the models come first, then the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cerebro_db.errors import InvalidData
from cerebro_db.server.computing import Tick, computing
from cerebro_db.server.entry import entry
from cerebro_db.server.joining import take_joined
from cerebro_db.server.memory import recall
from cerebro_db.server.training import checked

if TYPE_CHECKING:  # TensorFlow is imported when a worker is made ready, not before
    from cerebro_db.training.prediction import Answers, Prediction


@entry
@computing
def begin_prediction(tick: Tick, gd: dict[str, Any], task: str | None, state: int | None) -> int:
    """Load a model into this worker; returns what names it in the calls that follow."""
    from cerebro_db.training.prediction import Prediction

    memory = recall(gd)
    data = take_joined(gd, state)
    return memory.begin(Prediction(task or "", data, memory.scorers, memory.architectures, tick))


@entry
@computing
def extend_prediction(
    tick: Tick, gd: dict[str, Any], token: int | None, task: str | None, state: int | None
) -> int:
    """Load one more model; returns the same token."""
    data = take_joined(gd, state)
    _current(gd, token).extend(task or "", data)
    return recall(gd).token


@entry
@computing
def predict_batch(
    tick: Tick,
    gd: dict[str, Any],
    token: int | None,
    data: bytes | None,
    count: int | None,
    known: int | None,
) -> Answers:
    """The predictions for one batch of rows."""
    count = checked("count", count, 1, 2**31 - 1)
    if known != count:
        raise InvalidData("a row has no id")
    return _current(gd, token).batch(data or b"", count)


@entry
@computing
def predict_buffer(
    tick: Tick, gd: dict[str, Any], token: int | None, data: bytes | None, count: int | None
) -> Answers:
    """The predictions for rows of a packed table."""
    count = checked("count", count, 1, 2**31 - 1)
    return _current(gd, token).buffer(data or b"", count)


def _current(gd: dict[str, Any], token: int | None) -> Prediction:
    from cerebro_db.training.prediction import Prediction

    work: Prediction = recall(gd).current(token, Prediction)
    return work
