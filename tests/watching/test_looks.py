"""Pauses between looks at a run: long enough to cost it nothing, and not beyond its end."""

from __future__ import annotations

import time

from cerebro_db.watching import view as looks


def test_a_look_that_takes_long_is_rare() -> None:
    now = time.monotonic()
    assert looks.pause_after(now, 2.0) == 2.0
    assert 50 <= looks.pause_after(now - 1.0, 2.0) < 60


def test_nobody_waits_beyond_the_end() -> None:
    asked: list[float] = []

    def is_over() -> bool:
        asked.append(time.monotonic())
        return len(asked) == 2

    began = time.monotonic()
    looks.wait(600.0, 0.01, is_over)
    assert len(asked) == 2
    assert asked[0] - began >= 0.01


def test_a_short_pause_asks_nothing() -> None:
    def is_over() -> bool:
        raise AssertionError

    looks.wait(0.02, 0.02, is_over)
