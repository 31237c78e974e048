"""What is asked for TensorBoard, as results of a run come in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from run_states import run_state

from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Measures
from cerebro_db.runs.tensorboard import EventFiles

FIT = "batch_size=8,callbacks=[TensorBoard('fit')]"


@pytest.fixture
def state() -> RunState:
    """A run of one configuration that is scored on two tables."""
    return run_state({1: 1.0}, fit=FIT, validation=(0,))


def asked(files: EventFiles) -> list[tuple[int, set[str]]]:
    """Epochs that are asked for next, and the names of their values."""
    task: Any = files.next()
    found = json.loads(task)["configurations"] if task else []
    return [(epoch, set(logs)) for one in found for epoch, logs in one["epochs"]]


def measure(state: RunState, files: EventFiles, epoch: int, dataset: str) -> None:
    state.apply(Measures(1, epoch, dataset, 0.5))
    files.measured([1])


def test_epochs_are_requested_in_whatever_order_they_are_measured(state: RunState) -> None:
    files = EventFiles(7, state)
    for epoch in (2, 1, 3):
        measure(state, files, epoch, "training")
        assert asked(files) == [(epoch, {"loss"})]
        assert files.done


def test_an_epoch_is_requested_again_when_another_table_was_measured(state: RunState) -> None:
    files = EventFiles(7, state)
    measure(state, files, 1, "training")
    assert asked(files) == [(1, {"loss"})]
    measure(state, files, 1, "validation")
    assert asked(files) == [(1, {"loss", "val_loss"})]
    files.measured([1])
    assert files.next() is None


def test_a_run_that_goes_on_asks_for_all_that_was_measured(state: RunState) -> None:
    for epoch in (1, 2):
        state.apply(Measures(1, epoch, "training", 0.5))
    assert asked(EventFiles(7, state)) == [(1, {"loss"}), (2, {"loss"})]
