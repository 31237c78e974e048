"""Kinds of answers of a prediction: all classes, the best ones, those above a probability, or a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument


class Answer(StrEnum):
    """The kinds of answers."""

    RESPONSE = "response"
    PROB = "prob"
    TOP = "top"
    ABOVE = "above"


@dataclass(frozen=True)
class PredictionType:
    """A kind of answer and its number.

    Attributes:
        number: how many classes for TOP; the probability for ABOVE; else 0.
    """

    answer: Answer
    number: float = 0.0

    def __str__(self) -> str:
        return f"{self.number:g}" if self.number else repr(self.answer.value)


def prediction_type(given: str | float) -> PredictionType:
    """Reads ``pred_type``: 'response', 'prob', a rank from 1, or a probability between 0 and 1."""
    text = str(given).strip().lower()
    if text in (Answer.RESPONSE, Answer.PROB):
        return PredictionType(Answer(text))
    number = _number(given)
    if 0 < number < 1:
        return PredictionType(Answer.ABOVE, number)
    if number >= 1 and number.is_integer():
        return PredictionType(Answer.TOP, number)
    raise InvalidArgument(
        f"pred_type: got {shown(given)}; allowed: 'response', 'prob', a whole number from 1 for that many "
        "classes, or a number between 0 and 1 for the classes of a higher probability"
    )


def _number(given: str | float) -> float:
    try:
        number = float(given)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0
