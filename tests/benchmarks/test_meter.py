"""CPU time of a server, and of processes that come and go."""

from __future__ import annotations

import os
from typing import Any

import pytest

from benchmarks import meter
from benchmarks.meter import Meter, _Process


def test_work_of_this_process_and_of_its_children_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_computes", lambda process: False)  # keepers of other tests
    with Meter().measure() as cost:
        child = os.fork()
        total = sum(number * number for number in range(2_000_000))
        if child == 0:
            os._exit(total == 0)
        os.waitpid(child, 0)
    assert cost.cpu > 0.02


def test_a_process_that_nobody_has_waited_for_yet_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that has ended, which its keeper has not noticed."""
    child = os.fork()
    if child == 0:
        os._exit(sum(number * number for number in range(2_000_000)) == 0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(meter, "_computes", lambda process: process == os.getpid())
    used = Meter()._used()
    os.waitpid(child, 0)
    assert used[child].ticks > 0.02 * meter.TICKS


def test_a_process_that_is_waited_for_meanwhile_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = os.fork()
    if child == 0:
        os._exit(sum(number * number for number in range(2_000_000)) == 0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    waited: list[Any] = []
    stat = meter._stat

    def seen(process: int) -> list[str]:
        fields = stat(process)
        if process == child and not waited:
            waited.append(os.waitpid(child, 0))
        return fields

    monkeypatch.setattr(meter, "_computes", lambda process: process == os.getpid())
    monkeypatch.setattr(meter, "_stat", seen)
    assert child not in Meter()._used()
    assert waited


def test_processes_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer 21 of keeper 20 is waited for by that; keeper 30 is gone, and its trainer 31 with it."""
    second = meter.TICKS
    before = {
        20: _Process(1, 2 * second), 21: _Process(20, 5 * second),
        30: _Process(1, 3 * second), 31: _Process(30, 9 * second),
    }  # fmt: skip
    after: Any = {20: _Process(1, 2 * second + 6 * second), 40: _Process(20, second)}
    monkeypatch.setattr(Meter, "_used", lambda self: after)
    assert Meter()._since(before) == 2.0
