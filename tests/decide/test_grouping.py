"""Groups: how many workers train a configuration together, by estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from run_states import configuration, joined, run_state

from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.core import events
from cerebro_db.core.events import Verdict
from cerebro_db.core.spec import Architecture, Configuration, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import Speeds, shares_of
from cerebro_db.core.tasks import Participate, Task, Train
from cerebro_db.decide import grouping
from cerebro_db.decide import plan as plans
from cerebro_db.decide.cost import hop_seconds, joined_step_seconds, step_seconds
from cerebro_db.decide.grouping import Rule
from cerebro_db.decide.strategies.auto import Auto

# Those of the benchmarks: a net of convolutions for images of 28 x 28, and 64-128-128-10.
IMAGES = ArchitectureFacts(225_034, 2_600_000, True, False, 8, ((28, 28, 1),), ((10,),))
TABULAR = ArchitectureFacts(26_122, 25_856, False, False, 4, ((64,),), ((10,),))
ROWS = 2_500


# Of a machine on which a step of IMAGES takes 29.8 ms where the built-in figures say 110.
FASTER = Speeds(convolution=3.7, measured_hops=160)


def costly(
    mst_key: int, facts: ArchitectureFacts = IMAGES, batch: int = 256, rows: int = ROWS
) -> Configuration:
    """A configuration of a net, with its costs."""
    seconds = hop_seconds(facts, rows, batch, 1)
    one = configuration(mst_key, seconds, 10, f"batch_size={batch}")
    return replace(one, architecture=Architecture(1, "net", "{}", facts, has_weights=False))


def sizes(
    count: int, facts: ArchitectureFacts = IMAGES, batch: int = 256, **rule: int
) -> list[int]:
    given = {"partitions": 4, "processors": 4, "largest": 4, "epochs": 10, **rule}
    found = grouping.choose(
        Rule(**given), [costly(key, facts, batch) for key in range(1, count + 1)]
    )
    return list(found.sizes.values())


def test_fewer_models_than_processors_are_trained_by_groups() -> None:
    assert sizes(1) == [4]
    assert sizes(2) == [2, 2]
    assert sizes(3) == [2, 2, 2]
    assert sizes(4) == [1] * 4
    assert sizes(9) == [1] * 9


def test_a_group_is_no_larger_than_it_takes() -> None:
    assert sizes(1, processors=2) == [2]
    assert sizes(2, processors=2) == [1, 1]
    assert sizes(1, processors=1) == [1]
    assert sizes(1, largest=2) == [2]
    assert sizes(1, largest=3) == [2]  # of which 4 partitions make whole rounds
    assert sizes(1, partitions=3, processors=2) == [3]  # more trainers than processors
    assert sizes(1, partitions=1) == [1]


def test_short_steps_are_not_shared() -> None:
    assert sizes(1, TABULAR) == [1]
    assert sizes(1, TABULAR, 32, epochs=1_000_000) == [1]
    assert sizes(1, IMAGES, batch=2) == [1]
    wide = replace(TABULAR, parameters=2_176_010, multiply_adds=2_172_928)  # much is exchanged
    assert sizes(1, wide, 32) == [1]


def test_gradients_that_leave_a_host_take_time() -> None:
    for parameters, neighbours, size in (
        (225_034, 2, 4), (1_000_000, 0, 4), (1_000_000, 1, 4), (1_000_000, 2, 1), (5_000_000, 1, 1),
    ):  # fmt: skip
        facts = replace(IMAGES, parameters=parameters)
        assert sizes(1, facts, neighbours=neighbours) == [size]


def test_the_speed_of_the_machine_is_that_of_its_steps() -> None:
    assert step_seconds(IMAGES, 256, 3.7) == pytest.approx(29.8e-3, rel=0.05)
    # Workers of a group compute as fast; what they exchange takes as long as before.
    rest = joined_step_seconds(IMAGES, 256, 4, 4) - step_seconds(IMAGES, 64)
    faster = joined_step_seconds(IMAGES, 256, 4, 4, speed=3.7)
    assert faster - step_seconds(IMAGES, 64, 3.7) == pytest.approx(rest)


def test_a_choice_follows_from_the_speed_of_the_machine() -> None:
    # By the built-in figures steps of 64 rows are long enough for a group.
    one, faster = costly(1, batch=64), Speeds(convolution=10.0, other=1.0)
    assert grouping.choose(Rule(4, 4, 4, 10), [one]).sizes == {1: 4}
    assert grouping.choose(Rule(4, 4, 4, 10, 0, faster), [one]).sizes == {1: 1}
    # That of other nets does not count, and a slow machine shares what a fast one does not.
    other = Speeds(convolution=None, other=10.0)
    assert grouping.choose(Rule(4, 4, 4, 10, 0, other), [one]).sizes == {1: 4}
    wide = costly(1, replace(TABULAR, parameters=200_000, multiply_adds=200_000), 64)
    assert grouping.choose(Rule(4, 4, 4, 100), [wide]).sizes == {1: 1}
    slow = Speeds(other=0.1)
    assert grouping.choose(Rule(4, 4, 4, 100, 0, slow), [wide]).sizes == {1: 4}


def test_seconds_of_a_choice_are_those_of_the_machine() -> None:
    built_in = grouping.choose(Rule(4, 4, 4, 10), [costly(1)])
    faster = grouping.choose(Rule(4, 4, 4, 10, 0, FASTER), [costly(1)])
    assert faster.alone == pytest.approx(built_in.alone / 3.7)
    assert faster.seconds > built_in.seconds / 3.7


def test_little_work_is_not_shared() -> None:
    assert sizes(1, epochs=1) == [4]
    few = grouping.choose(Rule(4, 4, 4, 1), [costly(1, rows=100)])
    assert few.sizes == {1: 1}


def test_statistics_of_a_batch_are_of_enough_rows() -> None:
    one = costly(1, batch=64)
    normalised = replace(
        one, architecture=replace(one.architecture, text='{"class_name": "BatchNormalization"}')
    )
    rule = Rule(4, 4, 4, 100)
    assert grouping.choose(rule, [one]).sizes == {1: 4}
    assert grouping.choose(rule, [normalised]).sizes == {1: 2}


def test_small_models_beside_large_ones_stay_alone() -> None:
    both = [costly(1), costly(2, TABULAR)]
    assert grouping.choose(Rule(4, 4, 4, 10), both).sizes == {1: 4, 2: 1}


def test_a_batch_is_shared_to_the_row() -> None:
    assert shares_of(256, 3) == [86, 85, 85]
    assert shares_of(8, 4) == [2, 2, 2, 2]
    assert sum(shares_of(1001, 16)) == 1001


def begun(count: int, fit: str = "batch_size=256", **more: Any) -> RunState:
    state = added(count, fit, **more)
    plan(state)
    return state


def added(count: int, fit: str = "batch_size=256", **more: Any) -> RunState:
    """A run of some configurations before anything is planned."""
    speeds = more.pop("speeds", Speeds())
    strategy = Auto(processors=4, group=4).with_speeds(speeds)
    state = run_state({}, range(4), workers=4, epochs=10, frequency=1, strategy=strategy, **more)
    ones = [replace(costly(key), fit_text=fit) for key in range(1, count + 1)]
    state.apply(joined(tuple(ones)))
    state.decisions = 0
    return state


def plan(state: RunState) -> None:
    state.apply(events.Planned(tuple(state.spec.strategy.plan(state))))


def make(state: RunState, mst_key: int) -> None:
    """A configuration makes the hops of an epoch."""
    track = state.tracks[mst_key]
    until = track.done + 4
    while track.done < until:
        hops = state.ready(track)
        for worker, hop in enumerate(hops):
            task: Task = Train((hop,))
            if hop.group > 1:
                task = Participate(tuple(hops), worker, is_root=worker == len(hops) - 1)
            state.apply(events.Submitted(worker, task))
        for worker, hop in enumerate(hops):
            state.apply(events.Returned(worker))
            state.apply(events.HopDone(hop, 1.0, 0.0))
        if hops[0].group > 1:
            state.apply(events.RoundDone(mst_key, track.done, len(hops), 0.0))


def groups(state: RunState, mst_key: int) -> list[int]:
    return [hop.group for hop in state.tracks[mst_key].waiting if hop.position == 0]


def test_the_plan_has_rounds_of_groups() -> None:
    state = begun(2)
    hops = list(state.tracks[1].waiting)[:4]
    assert [hop.group for hop in hops] == [2] * 4
    assert sorted(hop.partition_key for hop in hops) == [0, 1, 2, 3]
    other = list(state.tracks[2].waiting)[:4]  # begins where the first one does not
    assert {hop.partition_key for hop in hops[:2]} == {hop.partition_key for hop in other[2:]}
    assert state.spec.base(hops[1]) == 0
    assert state.spec.left(hops[1]) == 2
    assert len(state.ready(state.tracks[1])) == 2


def test_a_model_that_has_ended_leaves_its_workers_to_the_others_two_epochs_later() -> None:
    state = begun(2)
    assert groups(state, 1) == [2, 2]
    make(state, 1)
    plan(state)
    assert groups(state, 1) == [
        2
    ]  # nobody knows yet whether the other one ends with its first epoch
    make(state, 2)
    state.apply(events.Judged(2, Verdict(stopped_epoch=1)))
    plan(state)
    assert groups(state, 1) == [2, 4]
    reasons = state.spec.strategy.reasons(state, [Hop(1, 4, 0, 0, 2)])
    assert list(reasons) == [(1, 4)]
    assert reasons[1, 4].startswith(
        "from epoch 4: 2 workers together for configuration 1 (by estimate"
    )


@pytest.mark.parametrize(
    ("speeds", "step", "figures"),
    [
        (Speeds(), "takes one of them 1.1e+02 ms", "; estimated by the built-in figures"),
        (FASTER, "takes one of them 30 ms",
         "; estimated with steps of nets with convolutions 3.7 times as fast as by the built-in figures, "
         "as measured by 160 hops of earlier runs"),
        (replace(FASTER, measured_hops=0), "takes one of them 30 ms",
         "nets with convolutions 3.7 times as fast as by the built-in figures, as strategy_params say"),
        (Speeds(other=2.0), "takes one of them 1.1e+02 ms", "; estimated by the built-in figures"),
    ],
)  # fmt: skip
def test_the_reason_tells_the_figures_and_where_they_come_from(
    speeds: Speeds, step: str, figures: str
) -> None:
    state = added(1, speeds=speeds)
    (reason,) = state.spec.strategy.reasons(state, state.spec.strategy.plan(state)).values()
    assert step in reason
    assert reason.endswith(figures)


def test_who_fails_has_gone_as_far_as_its_hops() -> None:
    state = begun(2)
    make(state, 2)
    make(state, 1)
    make(state, 1)
    state.apply(events.Failed(2, "failed", "x"))
    plan(state)
    assert groups(state, 1) == [2, 4]


def test_hops_of_a_hopper_are_those_of_a_hopper() -> None:
    state = begun(5)
    costs = {key: track.configuration.hop_seconds for key, track in state.tracks.items()}
    alone = plans.plan_epoch(costs, range(4), state.spec.seed, 1)
    for key, track in state.tracks.items():
        first = [hop for hop in alone if hop.mst_key == key]
        assert list(track.waiting)[:4] == first


def test_a_round_begins_when_there_are_workers_for_all_of_it() -> None:
    from run_states import view

    state = begun(2)
    strategy = state.spec.strategy
    for worker in range(4):
        task = strategy.next(state, view(worker), 0.0)
        assert isinstance(task, Participate)
        assert (task.own.mst_key, task.is_root) == (1 + worker // 2, worker % 2 == 1)
        state.apply(events.Submitted(worker, task))
    state.apply(events.Returned(0))
    assert strategy.next(state, view(0), 0.0) is None
