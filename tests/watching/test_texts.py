"""Sparklines, bars, durations; values as JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest

from cerebro_db.watching import texts


def test_a_curve_goes_from_its_lowest_to_its_highest() -> None:
    assert texts.sparkline([0.0, 1.0, 0.5]) == "▁█▅"
    assert texts.sparkline([2.0, 2.0]) == "▅▅"
    assert texts.sparkline([1.0, math.nan, 0.0, math.inf]) == "█×▁×"
    assert texts.sparkline([math.nan]) == "×"
    assert texts.sparkline([]) == ""
    assert len(texts.sparkline(list(range(100)), width=7)) == 7


@pytest.mark.parametrize(
    ("share", "shown"), [(0, "    "), (0.5, "██  "), (2, "████"), (-1, "    ")]
)
def test_a_bar(share: float, shown: str) -> None:
    assert texts.bar(share, 4) == shown


def test_a_bar_has_eighths() -> None:
    assert texts.bar(1 / 32, 4) == "▏   "


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (4.21, "4.2 s"), (200, "3 min 20 s"), (3900, "1 h 05 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert texts.duration(seconds) == shown


def test_what_is_no_number_is_null_in_json() -> None:
    value = {"a": math.nan, "b": (1, math.inf), "c": datetime(2026, 1, 2, tzinfo=UTC)}
    told = json.dumps(texts.plain(value), allow_nan=False)
    assert json.loads(told) == {"a": None, "b": [1, None], "c": "2026-01-02T00:00:00+00:00"}
