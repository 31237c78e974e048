"""The plan of an epoch is complete, depends on nothing but its arguments, and seldom conflicts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import stretched

from cerebro_db.core.spec import Hop
from cerebro_db.decide import plan as plans
from cerebro_db.decide.plan import plan_epoch
from cerebro_db.errors import InvalidArgument

COSTS = {1: 1.0, 2: 5.0, 3: 1.0, 10: 0.25, 7: 5.0}


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.integers(1, 99), st.sampled_from([0.1, 1.0, 1.5, 20.0]), max_size=8),
    st.lists(st.integers(0, 50), max_size=6, unique=True),
    st.integers(0, 2**40),
)
def test_each_configuration_visits_each_partition_once(
    costs: dict[int, float], partitions: list[int], seed: int
) -> None:
    plan = plan_epoch(costs, partitions, seed, 3)
    assert len(plan) == len(costs) * len(partitions)
    for mst_key in costs:
        own = [hop for hop in plan if hop.mst_key == mst_key]
        assert sorted(hop.partition_key for hop in own) == sorted(partitions)
        assert [hop.position for hop in own] == list(range(len(partitions)))
        assert {hop.epoch for hop in own} <= {3}


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.integers(1, 500), st.sampled_from([0.1, 0.3, 1.5, 20.0]), max_size=60),
    st.integers(1, 5),
    st.integers(0, 2**40),
)
def test_the_plan_of_very_many_is_the_same(
    costs: dict[int, float], partitions: int, seed: int
) -> None:
    usual = plans._Schedule(costs, range(partitions), [seed, 3])
    large = plans._LargeSchedule(costs, range(partitions), [seed, 3])
    assert list(large.hops(3)) == list(usual.hops(3))


def test_order_of_arguments_does_not_matter() -> None:
    turned = dict(reversed(COSTS.items()))
    assert plan_epoch(COSTS, [0, 1, 2, 3], 5, 0) == plan_epoch(turned, [3, 1, 0, 2], 5, 0)


def test_seed_and_epoch_matter() -> None:
    costs = dict.fromkeys(range(12), 1.0)
    plans = {
        tuple((v.mst_key, v.partition_key) for v in plan_epoch(costs, range(4), seed, epoch))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(plans) == 9


def test_known_plan() -> None:
    """The same on every platform, and in every release that resumes runs of this one."""
    plan = plan_epoch({1: 1.0, 2: 2.0}, [0, 1], 42, 1)
    assert plan == KNOWN


KNOWN = (
    Hop(2, 1, 0, 0),
    Hop(1, 1, 0, 1),
    Hop(2, 1, 1, 1),
    Hop(1, 1, 1, 0),
)


def test_equal_configurations_never_wait() -> None:
    plan = plan_epoch(dict.fromkeys(range(12), 1.0), range(4), 0, 0)
    for start in range(0, 48, 4):
        together = plan[start : start + 4]
        assert len({hop.mst_key for hop in together}) == 4
        assert len({hop.partition_key for hop in together}) == 4


def test_large_plan_is_fast() -> None:
    started = time.perf_counter()
    plan = plan_epoch({key: 1.0 + key % 17 for key in range(500)}, range(64), 1, 1)
    assert len(plan) == 32_000
    assert time.perf_counter() - started < stretched(10)


@pytest.mark.parametrize(
    ("costs", "partitions", "seed", "message"),
    [
        ({1: 0.0}, [0], 0, "above 0"),
        ({1: float("nan")}, [0], 0, "above 0"),
        ({1: 1.0}, [0, 0], 0, "once"),
        ({1: 1.0}, [0], -1, "seed"),
    ],
)
def test_refused(costs: dict[int, float], partitions: list[int], seed: int, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        plan_epoch(costs, partitions, seed, 0)
