"""Where one statement trains several configurations, one that fails leaves its error, not its state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cerebro_db.errors import ConfigurationFailed, OutOfMemory, RunFailed
from cerebro_db.protocol import HopFailed, report_of
from cerebro_db.server.memory import WorkerMemory
from cerebro_db.server.training import FAILED, _unless_failed, saved_state


def _memory(keeps_errors: bool = True) -> WorkerMemory:
    nothing: Any = None
    memory = WorkerMemory(1, nothing, nothing, nothing, nothing, keeps_errors=keeps_errors)
    memory.begin("a hop")
    return memory


def _raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def test_an_error_is_kept_in_place_of_a_state() -> None:
    memory = _memory()
    _unless_failed(memory, memory.token, _raising(ConfigurationFailed("diverged", "go slower")))
    calls: list[int] = []
    _unless_failed(memory, memory.token, lambda: calls.append(1))
    assert calls == []
    ((number, data, report),) = saved_state(None, {"cerebro.worker": memory}, memory.token)
    assert (number, data) == (FAILED, b"")
    assert report_of(report or "") == HopFailed(
        sqlstate="22000", message="diverged", hint="go slower"
    )


def test_what_keras_raises_is_reported_by_its_cause() -> None:
    memory = _memory()
    _unless_failed(memory, memory.token, _raising(ValueError("no such layer")))
    told = json.loads(memory.error or "")
    assert (told["sqlstate"], told["message"]) == ("22000", "no such layer (ValueError)")


def test_the_next_hop_begins_without_it() -> None:
    memory = _memory()
    before = memory.token
    _unless_failed(memory, before, _raising(ConfigurationFailed("diverged")))
    memory.begin("another hop")
    calls: list[int] = []
    _unless_failed(memory, memory.token, lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.parametrize(
    ("keeps_errors", "error"),
    [
        (False, ConfigurationFailed("diverged")),  # the statement trains this one only
        (True, RunFailed("no worker")),  # no fault of the configuration
        (True, KeyboardInterrupt()),  # cancelled
    ],
)
def test_other_errors_end_the_statement(keeps_errors: bool, error: BaseException) -> None:
    memory = _memory(keeps_errors)
    with pytest.raises(type(error)):
        _unless_failed(memory, memory.token, _raising(error))
    assert memory.error is None


@pytest.mark.parametrize("keeps_errors", [False, True])
def test_a_process_that_ran_out_of_memory_trains_no_other_configuration(keeps_errors: bool) -> None:
    memory = _memory(keeps_errors)
    with pytest.raises(OutOfMemory):
        _unless_failed(memory, memory.token, _raising(MemoryError()))
    assert memory.error is None
