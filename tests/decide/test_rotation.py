"""Steps of a rotation make the hops of the plan, each partition and configuration once a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_states import begin, finish, planned, run_state, view

from cerebro_db.core import events
from cerebro_db.core.spec import Hop
from cerebro_db.decide.plan import plan_epoch
from cerebro_db.decide.strategies.rotation import next_step, step_of

COSTS = st.dictionaries(st.integers(1, 40), st.floats(0.001, 100.0), min_size=1, max_size=12)


def idle_share(steps: Sequence[Sequence[Hop]], costs: Mapping[int, float], width: int) -> float:
    """The part of the time in which partitions wait for the longest hop of their step."""
    seconds = sum(max(costs[hop.mst_key] for hop in step) for step in steps)
    busy = sum(costs[hop.mst_key] for step in steps for hop in step)
    return 1 - busy / (width * seconds)


def steps(
    costs: Mapping[int, float], partitions: int, epochs: int = 2, seed: int = 0
) -> list[tuple[Hop, ...]]:
    """All steps of a run."""
    state = run_state(costs, range(partitions), epochs=epochs)
    for epoch in range(1, epochs + 1):
        planned(state, plan_epoch(costs, range(partitions), seed, epoch))
    found = []
    while state.going_on:
        found.append(next_step(state, view(), []))
        begin(state, *found[-1], step=True)
        finish(state, *found[-1])
    return found


@given(COSTS, st.integers(1, 6), st.integers(0, 5))
def test_steps_make_the_hops_of_the_plan_in_its_order(
    costs: dict[int, float], partitions: int, seed: int
) -> None:
    planned = sorted(
        hop for epoch in (1, 2) for hop in plan_epoch(costs, range(partitions), seed, epoch)
    )
    found = steps(costs, partitions, seed=seed)
    for step in found:
        assert 1 <= len(step) <= partitions
        assert len({hop.partition_key for hop in step}) == len(step)
        assert len({hop.mst_key for hop in step}) == len(step)
    made = [hop for step in found for hop in step]
    for mst_key in costs:
        assert [v for v in made if v.mst_key == mst_key] == [
            v for v in planned if v.mst_key == mst_key
        ]
    assert len(made) == len(planned)
    assert steps(costs, partitions, seed=seed) == found


def test_equal_configurations_leave_no_partition_idle() -> None:
    costs = dict.fromkeys(range(1, 13), 1.0)
    found = steps(costs, 3)
    assert len(found) == 12 * 2
    assert idle_share(found, costs, 3) == 0


def test_long_hops_meet_long_ones() -> None:
    costs = {key: 10.0 if key <= 6 else 1.0 for key in range(1, 13)}
    found = steps(costs, 3, epochs=1)
    long = [sum(costs[hop.mst_key] == 10.0 for hop in step) for step in found]
    # At the least 6 steps have a long hop: all of them three, and the short ones are by themselves.
    assert long == [3] * 6 + [0] * 6
    assert idle_share(found, costs, 3) == 0


def test_fewer_configurations_than_partitions_leave_some_idle() -> None:
    costs = {1: 1.0}
    assert [len(step) for step in steps(costs, 4, epochs=1)] == [1] * 4
    assert idle_share(steps(costs, 4, epochs=1), costs, 4) == pytest.approx(0.75)


def test_a_partition_takes_the_longest_remaining_work() -> None:
    ready = [Hop(1, 1, 0, 0), Hop(2, 2, 1, 0), Hop(3, 1, 0, 1), Hop(4, 1, 0, 1)]
    step = step_of(ready, {1: 1.0, 2: 2.0, 3: 5.0, 4: 5.0})
    assert step == (Hop(2, 2, 1, 0), Hop(3, 1, 0, 1))
    assert step_of(reversed(ready), {1: 1.0, 2: 2.0, 3: 5.0, 4: 5.0}) == step


def test_what_is_held_ended_or_in_flight_waits() -> None:
    state = run_state({1: 1.0, 2: 1.0, 3: 1.0})
    planned(state, [Hop(1, 1, 0, 0), Hop(2, 1, 0, 0), Hop(3, 1, 0, 1)])
    state.apply(events.Failed(3, "failed", "x"))
    assert next_step(state, view(), [1]) == (Hop(2, 1, 0, 0),)
    begin(state, Hop(2, 1, 0, 0), step=True)
    assert next_step(state, view(), []) == (Hop(1, 1, 0, 0),)
    begin(state, Hop(1, 1, 0, 0), step=True)
    assert next_step(state, view(), []) == ()
    finish(state, Hop(1, 1, 0, 0), Hop(2, 1, 0, 0))
    assert not state.going_on
