"""Steps of a rotation make the visits of the plan, each partition and configuration once a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerebro_db.planning.orders import Visit, plan_epoch
from cerebro_db.planning.rotation import Rotation, step_of

COSTS = st.dictionaries(st.integers(1, 40), st.floats(0.001, 100.0), min_size=1, max_size=12)


def idle_share(steps: Sequence[Sequence[Visit]], costs: Mapping[int, float], width: int) -> float:
    """The part of the time in which partitions wait for the longest visit of their step."""
    seconds = sum(max(costs[visit.mst_key] for visit in step) for step in steps)
    busy = sum(costs[visit.mst_key] for step in steps for visit in step)
    return 1 - busy / (width * seconds)


def steps(
    costs: Mapping[int, float], partitions: int, epochs: int = 2, seed: int = 0
) -> list[tuple[Visit, ...]]:
    """All steps of a run."""
    rotation = Rotation(partitions, costs)
    for epoch in range(1, epochs + 1):
        rotation.add_visits(plan_epoch(costs, range(partitions), seed, epoch))
    found = []
    while not rotation.done:
        found.append(rotation.next_step())
        for visit in found[-1]:
            rotation.finished(visit)
    return found


@given(COSTS, st.integers(1, 6), st.integers(0, 5))
def test_steps_make_the_visits_of_the_plan_in_its_order(
    costs: dict[int, float], partitions: int, seed: int
) -> None:
    planned = sorted(
        visit for epoch in (1, 2) for visit in plan_epoch(costs, range(partitions), seed, epoch)
    )
    found = steps(costs, partitions, seed=seed)
    for step in found:
        assert 1 <= len(step) <= partitions
        assert len({visit.partition_key for visit in step}) == len(step)
        assert len({visit.mst_key for visit in step}) == len(step)
    made = [visit for step in found for visit in step]
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


def test_long_visits_meet_long_ones() -> None:
    costs = {key: 10.0 if key <= 6 else 1.0 for key in range(1, 13)}
    found = steps(costs, 3, epochs=1)
    long = [sum(costs[visit.mst_key] == 10.0 for visit in step) for step in found]
    # At the least 6 steps have a long visit: all of them three, and the short ones are by themselves.
    assert long == [3] * 6 + [0] * 6
    assert idle_share(found, costs, 3) == 0


def test_fewer_configurations_than_partitions_leave_some_idle() -> None:
    costs = {1: 1.0}
    assert [len(step) for step in steps(costs, 4, epochs=1)] == [1] * 4
    assert idle_share(steps(costs, 4, epochs=1), costs, 4) == pytest.approx(0.75)


def test_a_partition_takes_the_longest_remaining_work() -> None:
    ready = [Visit(1, 1, 0, 0), Visit(2, 2, 1, 0), Visit(3, 1, 0, 1), Visit(4, 1, 0, 1)]
    step = step_of(ready, {1: 1.0, 2: 2.0, 3: 5.0, 4: 5.0})
    assert step == (Visit(2, 2, 1, 0), Visit(3, 1, 0, 1))
    assert step_of(reversed(ready), {1: 1.0, 2: 2.0, 3: 5.0, 4: 5.0}) == step


def test_what_is_held_dropped_or_in_flight_waits() -> None:
    rotation = Rotation(2, {1: 1.0, 2: 1.0, 3: 1.0})
    rotation.add_visits([Visit(1, 1, 0, 0), Visit(2, 1, 0, 0), Visit(3, 1, 0, 1)])
    rotation.drop(3)
    assert rotation.next_step(held=[1]) == (Visit(2, 1, 0, 0),)
    assert rotation.next_step() == (Visit(1, 1, 0, 0),)
    assert rotation.next_step() == ()
    for key in (1, 2):
        rotation.finished(Visit(key, 1, 0, 0))
    assert rotation.done
