"""Scoring: who is scored when and together, and which states must outlive their hop."""

from __future__ import annotations

import math

import pytest
from run_states import begin, do, finish, planned, run_state, view

from cerebro_db.core import events
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Scan, Scanned, Score, WorkerView
from cerebro_db.decide import retention
from cerebro_db.decide.scoring import next_scans


def scoring(
    *mst_keys: int, frequency: int = 1, seconds: float | None = None, **more: bool
) -> RunState:
    """Configurations whose only hop of an epoch is planned, for two epochs."""
    costs = dict.fromkeys(mst_keys, 1.0)
    state = run_state(costs, [0], epochs=2, frequency=frequency, validation=[0, 1], **more)
    for track in state.tracks.values():
        track.seconds = seconds
    return planned(state, [Hop(key, epoch, 0, 0) for epoch in (1, 2) for key in mst_keys])


def taken(
    state: RunState,
    worker: WorkerView | None = None,
    awaited: tuple[int, ...] | None = (),
    *,
    now: float = 0.0,
    idle: bool = True,
) -> Scan | None:
    """The scan that a worker takes."""
    scans = next_scans(state, worker or view(), now, awaited, idle=idle)
    if not scans:
        return None
    state.apply(events.Submitted(0, Score(scans)))
    state.apply(events.Returned(0))
    return scans[0]


def drain(state: RunState) -> list[Scan]:
    """Take scans until none is handed out."""
    scans = []
    while (scan := taken(state, now=math.inf)) is not None:
        scans.append(scan)
    return scans


def pairs(scans: list[Scan]) -> list[tuple[str, int]]:
    return [(scan.dataset, scan.partition_key) for scan in scans]


ALL = [("training", 0), ("validation", 0), ("validation", 1)]


def test_in_memory_a_configuration_is_scored_without_the_others() -> None:
    state = scoring(1, 2, frequency=2)
    do(state, Hop(1, 1, 0, 0))
    assert drain(state) == []  # no measures are wanted
    do(state, Hop(1, 2, 0, 0))
    scans = drain(state)
    assert pairs(scans) == ALL
    assert scans[0].group.mst_keys == (1,)
    for scan in scans:
        assert not state.combining
        state.apply(Scanned(scan, {}, {}))
    assert [(one.group, one.dataset) for one in state.combining] == [
        (scans[0].group, "training"),
        (scans[0].group, "validation"),
    ]
    assert not state.groups


def test_beyond_memory_one_scan_serves_all_configurations() -> None:
    state = scoring(1, 2, 3, scans_wait=True)
    do(state, Hop(1, 1, 0, 0))
    assert drain(state) == []
    do(state, Hop(3, 1, 0, 0))
    state.apply(events.Failed(2, "failed", "x"))
    scans = drain(state)
    assert len(scans) == 3
    assert scans[0].group.mst_keys == (1, 3)


def test_configurations_that_finish_within_a_moment_share_a_scan() -> None:
    state = scoring(1, 2, 3, 4, seconds=0.0)
    do(state, Hop(1, 1, 0, 0), seconds=0.0)
    assert taken(state) is None
    do(state, Hop(2, 1, 0, 0), seconds=0.0, at=0.4)
    assert taken(state, now=0.4) is None
    scan = taken(state, now=0.5)
    assert scan is not None
    assert scan.group.mst_keys == (1, 2)
    do(state, Hop(3, 1, 0, 0), seconds=0.0, at=0.5)  # begins a moment of its own
    others = [taken(state, now=0.5) for _ in range(3)]
    assert [other.group if other else None for other in others] == [scan.group, scan.group, None]
    do(state, Hop(4, 1, 0, 0), seconds=0.0, at=0.5)  # nobody else is left
    last = taken(state, now=0.5)
    assert last is not None
    assert last.group.mst_keys == (3, 4)


@pytest.mark.parametrize(
    ("longest", "idle", "seconds"),
    [
        (0.4, True, 0.5),
        (0.4, False, 0.5),
        (3.0, True, 0.0),  # it would wait for as long as others train
        (3.0, False, 3.0),  # others finish the epoch meanwhile
        (5.0, False, 5.0),
        (6.0, False, 0.0),  # nobody wants to wait for their scores that long
    ],
)
def test_what_can_be_trained_meanwhile_tells_how_long_scores_wait(
    longest: float, idle: bool, seconds: float
) -> None:
    state = scoring(1, 2, 3, seconds=longest)
    do(state, Hop(1, 1, 0, 0), seconds=longest)
    if seconds:
        assert taken(state, now=0.9 * seconds, idle=idle) is None
        do(state, Hop(2, 1, 0, 0), seconds=longest, at=0.9 * seconds)  # does not begin anew
    scan = taken(state, now=seconds + 0.01, idle=idle)
    assert scan is not None
    assert scan.group.mst_keys == ((1, 2) if seconds else (1,))


def test_one_long_hop_ends_the_waiting() -> None:
    state = scoring(1, 2, 3, seconds=4.0)
    do(state, Hop(1, 1, 0, 0), seconds=4.0)
    assert taken(state, idle=False) is None
    do(state, Hop(2, 1, 0, 0), seconds=6.0)
    scan = taken(state, idle=False)
    assert scan is not None
    assert scan.group.mst_keys == (1, 2)


def test_scores_wait_no_longer_than_the_longest_hop_that_may_come() -> None:
    """A worker that does not score takes a hop of whomever."""
    state = scoring(1, 2, 3)
    state.tracks[1].seconds, state.tracks[2].seconds = 1.0, 60.0
    assert state.longest_hop == math.inf  # nobody knows that of 3
    state.tracks[3].seconds = 2.0
    assert state.longest_hop == 60.0
    state.apply(events.Failed(2, "failed", "x"))
    assert state.longest_hop == 2.0


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("seconds", [0.0, 3.0])
@pytest.mark.parametrize(("alive", "awaited"), [((1,), ()), ((1, 2), (1,)), ((1, 2), None)])
def test_nobody_waits_for_a_moment_for_nothing(
    alive: tuple[int, ...], awaited: tuple[int, ...] | None, idle: bool, seconds: float
) -> None:
    """All are there, or one is waited for, or there is nothing else to do."""
    state = scoring(1, 2, seconds=seconds)
    do(state, Hop(1, 1, 0, 0), seconds=seconds)
    if seconds == 0.0 or not idle:
        assert taken(state, awaited=(2,), idle=idle) is None
    for mst_key in {1, 2}.difference(alive):
        state.apply(events.Failed(mst_key, "failed", "x"))
    scan = taken(state, awaited=awaited, idle=idle)
    assert scan is not None
    assert scan.group.mst_keys == (1,)


def test_a_worker_scans_what_it_keeps_first() -> None:
    state = scoring(1)
    do(state, Hop(1, 1, 0, 0))
    scan = taken(state, WorkerView(0, {("validation", 1)}), None)
    assert scan is not None
    assert (scan.dataset, scan.partition_key) == ("validation", 1)


def test_one_statement_scans_all_partitions_of_a_data_set() -> None:
    state = scoring(1)
    do(state, Hop(1, 1, 0, 0))
    found = []
    for _ in range(3):
        scans = next_scans(state, view(), 0.0, None, idle=True, side_by_side=True)
        found.append(pairs(list(scans)))
        if scans:
            state.apply(events.Submitted(0, Score(scans, together=True)))
    assert found == [ALL[:1], ALL[1:], []]


# -- retention -------------------------------------------------------------------------------------
def retaining(durability: str = "hop", frequency: int = 1, epochs: int = 9) -> RunState:
    """One configuration with four hops an epoch."""
    state = run_state({1: 1.0}, range(4), epochs=epochs, frequency=frequency, durability=durability)
    hops = [Hop(1, epoch, n, n) for epoch in range(1, epochs + 1) for n in range(4)]
    return planned(state, hops)


def hop(state: RunState) -> list[int]:
    """The configuration makes its next hop; returns what nothing needs after that."""
    do(state, state.tracks[1].waiting[0])
    return gone(state)


def gone(state: RunState) -> list[int]:
    states = retention.useless(state, [1])
    state.apply(events.Discarded(states))
    return [version for _, version in states]


def test_a_state_goes_with_the_hop_that_makes_the_next_one() -> None:
    state = retaining()
    assert [hop(state) for _ in range(4)] == [[], [1], [2], [3]]


def test_a_state_that_is_to_be_scored_outlives_the_next_hop_and_no_more() -> None:
    state = retaining()
    assert [hop(state) for _ in range(5)][-1] == []
    assert gone(state) == []
    state.apply(events.Scored(1, (1,)))
    assert gone(state) == [4]
    assert gone(state) == []


def test_a_state_that_was_scored_before_the_next_hop_goes_with_that_hop() -> None:
    state = retaining()
    for _ in range(4):
        hop(state)
    state.apply(events.Scored(1, (1,)))
    assert gone(state) == []
    assert hop(state) == [4]


def test_the_last_state_that_outlives_a_crash_stays_until_there_is_another() -> None:
    state = retaining("epoch", frequency=100)
    found = [hop(state) for _ in range(9)]
    assert found == [[], [1], [2], [3], [], [5], [6], [4, 7], []]


@pytest.mark.parametrize("durability", ["hop", "epoch"])
def test_never_more_than_three_states(durability: str) -> None:
    state = retaining(durability)
    while not retention.held(state):
        hop(state)
    assert state.tracks[1].done >= 8
    state.apply(events.Scored(1, (1,)))
    assert gone(state) == [4]
    assert retention.held(state) == []


def test_a_configuration_with_callbacks_waits_for_its_scores() -> None:
    fit = "batch_size=8,callbacks=[EarlyStopping(monitor='loss')]"
    state = run_state({1: 1.0}, [0], epochs=2, frequency=1, fit=fit)
    planned(state, [Hop(1, 1, 0, 0), Hop(1, 2, 0, 0)])
    assert retention.held(state) == []
    do(state, Hop(1, 1, 0, 0))
    assert retention.held(state) == [1]
    state.apply(events.Scored(1, (1,)))
    assert retention.held(state) == []


def test_a_hop_under_way_of_a_configuration_that_ended_leaves_no_state() -> None:
    state = retaining()
    first = state.tracks[1].waiting[0]
    begin(state, first)
    state.apply(events.Failed(1, "cancelled", "x"))
    finish(state, first)
    assert state.tracks[1].states == set()
    assert retention.useless(state, [1]) == ()
