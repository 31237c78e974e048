"""The state of a run follows from what has happened, and the plan from its decisions."""

from __future__ import annotations

import pytest
from run_states import begin, configuration, do, finish, joined, planned, run_state

from cerebro_db.core import events
from cerebro_db.core.decisions import promote, stop
from cerebro_db.core.events import Verdict
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.tasks import Measures
from cerebro_db.decide import plan as plans
from cerebro_db.decide import retention
from cerebro_db.decide.plan import next_partitions, plan_epoch


def open_run(epochs: int = 2) -> RunState:
    """Two configurations and two partitions."""
    state = run_state({1: 1.0, 2: 5.0}, epochs=epochs, frequency=1, is_open=True)
    return replanned(state)


def replanned(state: RunState) -> RunState:
    return planned(state, state.spec.strategy.plan(state))


def train(state: RunState, mst_key: int, epochs: int = 1) -> None:
    """A configuration makes the next hops of its plan, and is scored after each epoch."""
    for _ in range(epochs * state.spec.hops_an_epoch):
        hop = state.tracks[mst_key].waiting[0]
        do(state, hop)
        replanned(state)
        if hop.position == state.spec.hops_an_epoch - 1:
            state.apply(Measures(mst_key, hop.epoch, "training", 1.0))
            state.apply(events.Scored(hop.epoch, (mst_key,)))


def orders(state: RunState, mst_key: int) -> list[tuple[int, int]]:
    """Epoch and partition of the hops that a configuration still has to make."""
    return [(hop.epoch, hop.partition_key) for hop in state.tracks[mst_key].waiting]


def test_the_plan_of_a_run_without_decisions_is_that_of_its_configurations() -> None:
    state = open_run()
    hops = [hop for epoch in (1, 2) for hop in plan_epoch({1: 1.0, 2: 5.0}, [0, 1], 7, epoch)]
    waiting = [hop for track in state.tracks.values() for hop in track.waiting]
    assert sorted(waiting) == sorted(hops)
    assert state.spec.strategy.plan(state) == []


def test_a_run_is_complete_when_all_are_trained_and_scored() -> None:
    state = open_run()
    for mst_key in (1, 2):
        assert not state.is_complete
        train(state, mst_key, 2)
    assert state.is_complete
    assert state.trained == {1: 2, 2: 2}


def test_who_joins_later_is_planned_apart_whatever_has_happened_by_then() -> None:
    found = []
    for trained in (0, 1, 2):
        state = open_run()
        train(state, 1, trained)
        others = orders(state, 2)
        state.apply(joined(tuple(configuration(key, 1.0, 2, cohort=1) for key in (8, 9))))
        replanned(state)
        assert orders(state, 2) == others
        found.append((orders(state, 8), orders(state, 9)))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == 4


def test_who_is_promoted_goes_on_as_if_it_had_been_meant_to_from_the_beginning() -> None:
    long, state = open_run(4), open_run(2)
    train(state, 1, 2)
    assert not state.tracks[1].waiting
    state.apply(events.Decided(promote(1, 4)))
    assert not state.is_complete
    replanned(state)
    assert orders(state, 1) == [pair for pair in orders(long, 1) if pair[0] > 2]
    assert [epoch for epoch in range(1, 5) if state.is_awaited(state.tracks[1], epoch)] == [
        1, 2, 3, 4,
    ]  # fmt: skip


def test_the_state_of_who_may_be_promoted_is_left_where_it_would_go_on() -> None:
    long, state = open_run(4), open_run(2)
    last = state.tracks[1].waiting[-1]
    (following,) = [hop for hop in long.tracks[1].waiting if (hop.epoch, hop.position) == (3, 0)]
    assert next_partitions(state, last) == [following.partition_key]
    first, second, *_ = state.tracks[1].waiting
    assert next_partitions(state, first) == [second.partition_key]
    closed = replanned(run_state({1: 1.0, 2: 5.0}, epochs=2))
    assert next_partitions(closed, closed.tracks[1].waiting[-1]) == []


def test_who_is_stopped_keeps_the_state_of_its_last_epoch() -> None:
    state = open_run(4)
    train(state, 1, 2)
    do(state, state.tracks[1].waiting[0])
    assert retention.needed(state, state.tracks[1]) == {4, 5}
    begin(state, state.tracks[1].waiting[0])
    under_way = state.tracks[1].in_flight
    assert under_way is not None
    state.apply(events.Decided(stop(1, 2)))
    assert not state.tracks[1].is_alive
    assert not state.tracks[1].waiting
    finish(state, under_way)
    assert 4 in retention.needed(state, state.tracks[1])
    assert state.tracks[1].verdict == Verdict(stopped_epoch=2, restored_epoch=2)
    train(state, 2, 4)
    assert state.is_complete


def test_who_is_stopped_before_its_scores_are_there_is_still_scored() -> None:
    state = open_run(4)
    for _ in range(2):
        do(state, state.tracks[1].waiting[0])
    state.apply(events.Decided(stop(1, 1)))
    assert state.pending[1].mst_keys == {1}
    state.apply(events.Failed(2, "failed", "x"))
    assert not state.is_complete
    state.apply(events.Scored(1, (1,)))
    assert state.is_complete


def test_who_has_failed_ahead_of_a_decision_has_the_model_of_before() -> None:
    state = open_run(4)
    train(state, 1)
    state.apply(events.Allowance(1, 2, frozenset({1})))
    do(state, state.tracks[1].waiting[0])
    state.apply(Measures(1, 2, "training", float("nan")))
    state.apply(events.Failed(1, "failed", "the loss is nan"))
    assert state.ended == {1: ("failed", "the loss is nan")}
    assert state.tracks[1].states == {2}
    assert retention.useless(state, [1]) == ()
    state.apply(events.Decided(stop(1, 1)))
    assert state.ended == {}
    assert state.tracks[1].is_stopped
    assert state.tracks[1].history == [(1, {"loss": 1.0})]
    assert 2 in retention.needed(state, state.tracks[1])
    state.apply(events.Failed(2, "failed", "x"))
    assert state.is_complete


def test_who_has_failed_leaves_nothing_once_that_is_taken_note_of() -> None:
    state = open_run(4)
    train(state, 1)
    state.apply(events.Allowance(1, 2, frozenset({1})))
    state.apply(events.Failed(1, "failed", "x"))
    state.apply(events.Allowance(1, None))
    assert retention.useless(state, state.changed) == ((1, 2),)


def test_who_was_stopped_goes_on_with_the_hops_of_its_plan() -> None:
    state = open_run(4)
    wanted = [pair for pair in orders(open_run(4), 1) if pair[0] > 1]
    train(state, 1)
    state.apply(events.Decided(stop(1, 1)))
    assert orders(state, 1) == []
    state.apply(events.Decided(promote(1, 4)))
    assert state.tracks[1].is_alive
    planned(state, plans.planned_again(state, 1))
    replanned(state)
    assert orders(state, 1) == wanted
    train(state, 1, 3)
    assert state.tracks[1].done == 8


def test_a_clone_begins_with_a_state() -> None:
    state = open_run()
    train(state, 1, 2)
    state.apply(joined((configuration(7, 1.0, 1, cohort=1, is_warm=True),)))
    replanned(state)
    assert state.tracks[7].states == {0}
    assert len(orders(state, 7)) == 2
    train(state, 7)
    assert state.tracks[7].done == 2


def test_the_same_events_make_the_same_state() -> None:
    """As whoever goes on with a run applies them: decisions first, then what is known of each."""
    state = open_run()
    train(state, 1, 2)
    added = configuration(9, 1.0, 1, cohort=1)
    state.apply(joined((added,)))
    state.apply(events.Decided(promote(1, 3)))
    replanned(state)
    train(state, 1)
    state.apply(events.Discarded(retention.useless(state, [1])))
    again = run_state({1: 1.0, 2: 5.0}, epochs=2, frequency=1, is_open=True)
    again.apply(joined((added,)))
    again.apply(events.Decided(promote(1, 3)))
    for epoch in (1, 2, 3):
        again.apply(Measures(1, epoch, "training", 1.0))
        again.apply(events.Scored(epoch, (1,)))
    for key, track in state.tracks.items():
        states = frozenset(track.states)
        again.apply(events.Restored(key, track.done, track.planned, states))
    again.apply(events.Planned(tuple(h for t in state.tracks.values() for h in t.waiting)))
    for key, track in state.tracks.items():
        other = again.tracks[key]
        assert orders(again, key) == orders(state, key)
        assert (other.done, other.planned, other.budget, other.scored, other.states, other.history) == (
            track.done, track.planned, track.budget, track.scored, track.states, track.history,
        )  # fmt: skip
    assert (again.decisions, again.trained, again.cohorts) == (
        state.decisions, state.trained, state.cohorts,
    )  # fmt: skip
    assert again.spec.strategy.plan(again) == state.spec.strategy.plan(state) == []


@pytest.mark.parametrize("epoch", [1, 2])
def test_values_of_the_validation_table_come_last(epoch: int) -> None:
    state = run_state({1: 1.0}, validation=[0])
    for dataset, name, value in (("validation", "same", 8.0), ("training", "val_same", 4.0)):
        state.apply(Measures(1, epoch, dataset, 1.0, [name], [value]))
    assert state.tracks[1].history == [(epoch, {"loss": 1.0, "val_same": 8.0, "val_loss": 1.0})]


def test_a_thousand_configurations_are_planned_and_taken_note_of_fast() -> None:
    state = run_state(dict.fromkeys(range(1000), 1.0), range(4), epochs=2)
    replanned(state)
    assert len(state.tracks[999].waiting) == 8
    assert state.tracks[0].waiting[0] in {Hop(0, 1, 0, key) for key in range(4)}
