"""Strategies beside hopper and rotation: who does what, from the state alone."""

from __future__ import annotations

import pytest
from run_states import planned, run_state, view

from cerebro_db.core import events
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import Asynchrony, Strategy
from cerebro_db.core.tasks import Average, Participate, Score, Task, Train
from cerebro_db.decide import retention
from cerebro_db.decide.strategies import STRATEGIES, parse_strategy
from cerebro_db.decide.strategies.allreduce import AllReduce
from cerebro_db.decide.strategies.averaging import Averaging
from cerebro_db.decide.strategies.task import WholeTask
from cerebro_db.errors import InvalidArgument


def begun(
    strategy: Strategy, costs: dict[int, float], workers: int = 2, **more: object
) -> RunState:
    state = run_state(costs, [0, 1], workers=workers, epochs=2, strategy=strategy, **more)  # type: ignore[arg-type]
    return planned(state, state.spec.strategy.plan(state))


def take(state: RunState, worker: int, *kept: int) -> Task | None:
    """What a worker takes, which it has then."""
    task = state.spec.strategy.next(state, view(worker, *kept), 0.0)
    if task is not None:
        state.apply(events.Submitted(worker, task))
    return task


def end(state: RunState, worker: int) -> None:
    """A worker is done with what it has."""
    task = state.tasks[worker]
    state.apply(events.Returned(worker))
    match task:
        case Train(hops):
            for hop in hops:
                state.apply(events.HopDone(hop, 1.0, 0.0))
        case Average(mst_key, version):
            state.apply(events.RoundDone(mst_key, version, 2, 0.0))


def tidy(state: RunState) -> None:
    """What is done beside training: scores, the plan, states that go."""
    for epoch, pending in list(state.pending.items()):
        state.apply(events.Scored(epoch, tuple(pending.mst_keys)))
    state.apply(events.Planned(tuple(state.spec.strategy.plan(state))))
    state.apply(events.Discarded(retention.useless(state, state.tracks)))


def test_a_worker_stays_with_its_configuration() -> None:
    state = begun(WholeTask(), {1: 1.0, 2: 5.0, 3: 1.0})
    taken: dict[int, list[int]] = {0: [], 1: []}
    while state.tracks[3].done < 4:
        for worker in (0, 1):
            task = take(state, worker)
            if isinstance(task, Train):
                taken[worker].append(task.hops[0].mst_key)
        for worker in list(state.tasks):
            end(state, worker)
        tidy(state)
    assert taken == {0: [2] * 4 + [3] * 4, 1: [1] * 4}


def test_hops_of_a_round_begin_together_and_end_in_one_state() -> None:
    state = begun(Averaging(rounds=2), {1: 1.0})
    assert [hop.partition_key for hop in state.tracks[1].waiting] == [0, 1] * 4
    assert take(state, 0, 1) == Train((Hop(1, 1, 1, 1),))  # whose partition it has in memory
    assert take(state, 1) == Train((Hop(1, 1, 0, 0),))
    assert take(state, 2) is None
    end(state, 0)
    assert state.tracks[1].done == 0
    assert retention.needed(state, state.tracks[1]) == {0, -2}
    assert take(state, 0) is None
    end(state, 1)
    assert take(state, 0) == Average(1, 0)
    assert take(state, 1) is None
    end(state, 0)
    assert state.tracks[1].done == 2
    assert retention.useless(state, [1]) == ((1, -2), (1, -1))
    assert take(state, 0) == Train((Hop(1, 1, 2, 0),))


def test_a_run_is_over_when_its_last_round_is_averaged() -> None:
    state = begun(Averaging(), {1: 1.0, 2: 2.0})
    told = []
    while not state.is_complete:
        for worker in (0, 1):
            if isinstance(take(state, worker), Score):
                raise AssertionError("nothing is to be scored yet")
        assert state.tasks
        for worker in list(state.tasks):
            end(state, worker)
        told.append([state.is_epoch_done(epoch) for epoch in (1, 2)])
        tidy(state)
    assert [track.done for track in state.tracks.values()] == [4, 4]
    assert told[-1] == [True, True]
    assert state.trained == {1: 2, 2: 2}


def test_who_failed_is_not_averaged() -> None:
    state = begun(Averaging(), {1: 1.0})
    take(state, 0)
    take(state, 1)
    end(state, 0)
    state.apply(events.Failed(1, "failed", "x"))
    end(state, 1)
    assert take(state, 0) is None
    assert state.is_complete


def test_a_round_goes_on_with_the_parts_that_are_there() -> None:
    state = run_state({1: 1.0}, [0, 1], workers=2, epochs=2, strategy=Averaging())
    state.apply(events.Restored(1, 2, 2, frozenset({2, -4})))
    planned(state, [Hop(1, epoch, key, key) for epoch in (1, 2) for key in (0, 1)])
    assert take(state, 0) == Train((Hop(1, 2, 0, 0),))
    end(state, 0)
    assert take(state, 0) == Average(1, 2)


def test_the_hops_of_a_round_are_found_among_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks for them does not go through all that is planned."""
    state = begun(Averaging(rounds=2000), {1: 1.0})
    looked_at: list[Hop] = []
    base = RunSpec.base
    monkeypatch.setattr(RunSpec, "base", lambda spec, hop: looked_at.append(hop) or base(spec, hop))
    track = state.tracks[1]
    assert len(track.waiting) >= 4000
    assert state.ready(track) == [Hop(1, 1, 0, 0), Hop(1, 1, 1, 1)]
    assert len(looked_at) == 3


def test_a_round_that_is_made_together_waits_for_as_many_workers() -> None:
    state = begun(AllReduce(), {1: 1.0, 2: 5.0}, workers=3)
    second, first = state.ready(state.tracks[1]), state.ready(state.tracks[2])
    assert take(state, 0, 1) == Participate(
        tuple(first), 1, is_root=False
    )  # it has that partition in memory
    assert take(state, 1, 1) == Participate(tuple(first), 0, is_root=True)
    assert take(state, 2) is None  # of three workers two are at work
    for worker in (0, 1):
        state.apply(events.Returned(worker))
    for hop in first:
        state.apply(events.HopDone(hop, 1.0, 0.0))
    assert state.tracks[2].done == 0
    state.apply(events.RoundDone(2, 0, 2, 0.0))
    assert (state.tracks[2].done, state.tracks[2].states) == (2, {2})
    third = state.ready(state.tracks[2])
    assert take(state, 2) == Participate(tuple(third), 0, is_root=False)
    assert state.ready(state.tracks[1]) == second


def test_who_has_joined_is_joined_before_anything_else_is_done() -> None:
    state = begun(AllReduce(), {1: 1.0, 2: 1.0}, workers=4, frequency=1)
    tasks = [take(state, worker) for worker in range(4)]
    assert [(one.own.mst_key, one.is_root) for one in tasks if isinstance(one, Participate)] == [
        (1, False), (1, True), (2, False), (2, True),
    ]  # fmt: skip


def test_a_round_that_has_failed_is_joined_by_nobody_and_can_be_made_again() -> None:
    state = begun(AllReduce(), {1: 1.0}, workers=2)
    task = take(state, 0)
    assert isinstance(task, Participate)
    state.apply(events.Returned(0))
    state.apply(events.Broken(task.hops))
    assert state.joinable == []
    state.apply(events.Lost(task))
    assert take(state, 0) == task
    assert isinstance(take(state, 1), Participate)
    assert state.losses[task.own] == 1


@pytest.mark.parametrize(
    ("name", "params", "asynchrony"),
    [
        ("allreduce", None, Asynchrony(1, False, 0)),
        ("parameter_server", None, Asynchrony(1, False, 0)),
        ("parameter_server", "mode=asynchronous", Asynchrony(0, False, 0)),
        ("groups", "groups=1", Asynchrony(1, True, 0)),
        ("groups", "groups=2, momentum=kept", Asynchrony(2, False, 0)),
        ("groups", None, Asynchrony(None, True, 16)),
        ("groups", "probe_steps=3", Asynchrony(None, True, 3)),
    ],
)
def test_asynchrony_follows_from_parameters(
    name: str, params: str | None, asynchrony: Asynchrony
) -> None:
    chosen = parse_strategy(name, params)
    assert chosen.asynchrony == asynchrony
    assert chosen.asynchrony.is_any == (asynchrony.groups != 1)
    assert parse_strategy(name, chosen.text) == chosen


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("", None, "strategy: got ''; allowed: 'hopper'"),
        (None, None, "strategy: got NULL; allowed: 'hopper'"),
        ("averaging", "rounds", "rounds"),
        ("pipe", "bits=12", "got bits=12; allowed: 32, 16 and 8"),
        ("pipe", "bits=4", "got bits=4; allowed: 32, 16 and 8"),
        ("parameter_server", "mode=async", "Python-like literals; async is a keyword of Python"),
        ("groups", "momentum=kept", "got momentum=kept without groups"),
        ("groups", "groups=2, probe_steps=4", "got probe_steps beside groups=2"),
        (
            "auto",
            "measured_hops=3",
            "got measured_hops=3 without a speed; allowed: beside speed or",
        ),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(
    name: str, params: str | None, message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_strategy(name, params)
    assert message in caught.value.message
    is_known = name in STRATEGIES
    assert (
        caught.value.hint == STRATEGIES[name].hint()
        if is_known
        else "'hopper'" in caught.value.hint
    )
