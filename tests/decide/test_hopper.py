"""Hopper: what comes first, training or scoring; and a driver is imported without what is slow."""

from __future__ import annotations

import subprocess
import sys

import pytest
from run_states import begin, do, planned, run_state, view

from cerebro_db.core import events
from cerebro_db.core.run_spec import Workers
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Score, Task, Train
from cerebro_db.decide.strategies.hopper import Hopper

WATCHED = "batch_size=8,callbacks=[EarlyStopping(monitor='loss',patience=9)]"


def chosen(state: RunState, worker: int = 0, now: float = 0.0) -> str:
    """What a worker does next."""
    task: Task | None = Hopper().next(state, view(worker), now)
    match task:
        case Train(hops):
            return f"hop of {hops[0].mst_key}"
        case Score():
            return "scan"
    return "nothing"


def scored_soon(costs: tuple[float, float], fit: str = "batch_size=8") -> RunState:
    """Two configurations, and a third one that is to be scored now."""
    three = dict(zip((1, 2, 3), (*costs, 0.001), strict=True))
    state = run_state(three, [0, 1], workers=2, frequency=1, fit=fit)
    planned(state, [Hop(key, 1, place, place) for key in (1, 2, 3) for place in (0, 1)])
    for place in (0, 1):
        do(state, Hop(3, 1, place, place), seconds=60.0)
    return state


@pytest.mark.parametrize(
    ("costs", "first"),
    [
        ((1.0, 50.0), "hop of 2"),  # it decides when the run ends
        ((50.0, 50.0), "scan"),  # both do, and nobody would have time to score
    ],
)
def test_a_hop_that_decides_the_end_comes_before_a_scan(
    costs: tuple[float, float], first: str
) -> None:
    assert chosen(scored_soon(costs)) == first


def test_scores_that_the_critical_path_waits_for_come_first() -> None:
    state = run_state({1: 1.0, 2: 50.0}, [0, 1], workers=2, frequency=1, fit=WATCHED)
    hops = [Hop(key, epoch, n, n) for key in (1, 2) for epoch in (1, 2) for n in (0, 1)]
    planned(state, hops)
    for place in (0, 1):
        do(state, Hop(2, 1, place, place))
    assert chosen(state) == "scan"


@pytest.mark.parametrize(("worker", "choice"), [(0, "hop of 1"), (1, "scan")])
def test_scores_wait_for_others_as_long_as_a_worker_can_train(worker: int, choice: str) -> None:
    workers = Workers(2, bound=True)
    state = run_state({1: 1.0, 2: 1.0}, [0, 1], workers=workers, frequency=1)
    for track in state.tracks.values():
        track.seconds = 1.0
    planned(state, [Hop(2, 1, 0, 1), Hop(2, 1, 1, 0), Hop(1, 1, 0, 0), Hop(1, 1, 1, 1)])
    for hop in (Hop(2, 1, 0, 1), Hop(2, 1, 1, 0)):
        do(state, hop)
    assert chosen(state, worker) == choice


@pytest.mark.parametrize(("trains", "choice"), [(True, "nothing"), (False, "scan")])
def test_scores_wait_for_nobody_where_nobody_trains(trains: bool, choice: str) -> None:
    state = run_state({1: 1.0, 2: 1.0}, [0], workers=2, frequency=1)
    planned(state, [Hop(1, 1, 0, 0), Hop(2, 1, 0, 0)])
    state.tracks[2].seconds = 0.1
    if trains:
        begin(state, Hop(2, 1, 0, 0), worker=1)
    do(state, Hop(1, 1, 0, 0), seconds=0.1)
    if not trains:
        state.tracks[2].waiting.clear()
    assert chosen(state) == choice


def test_scores_of_configurations_that_ended_meanwhile_are_not_waited_for() -> None:
    state = scored_soon((1.0, 1.0))
    state.apply(events.Failed(3, "cancelled", "x"))
    assert not state.pending
    assert chosen(state) != "scan"


def test_a_driver_is_imported_without_numpy() -> None:
    """What it does before its workers begin makes every run longer."""
    code = "import sys, cerebro_db.server.fitting; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
