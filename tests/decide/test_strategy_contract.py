"""What every strategy promises; a further one is tested here as soon as it is registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from msgspec import structs
from run_states import run_state

from cerebro_db.configs.arguments import Argument
from cerebro_db.configs.grammar import parse_keywords
from cerebro_db.core import events
from cerebro_db.core.run_spec import RunSpec, Workers
from cerebro_db.core.spec import TRAINING, Configuration, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.strategies import Resources, Strategy
from cerebro_db.core.tasks import Measures, Outcome, Participate, Step, Task, Train, WorkerView
from cerebro_db.decide import dispatch, strategies
from cerebro_db.decide.strategies import STRATEGIES, parse_strategy
from cerebro_db.decide.strategies.hopper import Hopper
from cerebro_db.errors import InvalidArgument
from tests.decide.test_grouping import costly
from tests.runs.test_loop import Counting, run

PARTITIONS, CONFIGURATIONS, EPOCHS = 4, 5, 2


@dataclass(frozen=True, kw_only=True)
class InOrder(Hopper):
    """The smallest further strategy: whoever is free takes the first configuration that can go on."""

    name: ClassVar = "in_order"

    def _training(self, state: RunState, worker: WorkerView, held: Any) -> Task | None:
        alone = dispatch.next_alone(state, worker)
        ready = dispatch.ready_tracks(state, worker, held)
        hops = [alone] if alone else [track.waiting[0] for track in ready]
        return Train((min(hops),)) if hops else None


EVERY = {**STRATEGIES, InOrder.name: InOrder}
TEXTS = [(name, text) for name, one in EVERY.items() for text in sorted({"", one.example})]
of_each = pytest.mark.parametrize("name", EVERY)
of_each_text = pytest.mark.parametrize(("name", "text"), TEXTS)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "STRATEGIES", MappingProxyType(EVERY))


# -- parameters ----------------------------------------------------------------------------------
def arguments() -> Iterator[tuple[str, Argument]]:
    for name, one in EVERY.items():
        for argument in one.parameters():
            yield name, argument


def written(argument: Argument, value: Any) -> str:
    return f"{argument.name}={value!r}"


@of_each
def test_the_example_is_allowed_and_the_hint_is_a_call(name: str) -> None:
    one = EVERY[name]
    assert bool(one.example) == bool(one.parameters())
    assert bool(parse_strategy(name, one.example).text) == bool(one.parameters())
    assert f"strategy := {name!r}" in one.hint()
    assert f"strategy_params := {one.example!r}" in one.hint() or not one.example
    assert parse_strategy(name, one.deterministic_params).asynchrony.is_any is False


@of_each_text
def test_parameters_are_written_as_they_are_read(name: str, text: str) -> None:
    chosen = parse_strategy(name, text)
    assert chosen.name == name
    assert parse_strategy(name, chosen.text) == chosen
    assert parse_strategy(name, " ").text == ""
    assert parse_keywords(chosen.text, "x").keys() == parse_keywords(text, "x").keys()


@pytest.mark.parametrize(
    ("name", "argument"), list(arguments()), ids=lambda one: str(getattr(one, "name", one))
)
def test_values_out_of_bounds_are_refused_with_the_call(name: str, argument: Argument) -> None:
    for value in argument.refused():
        with pytest.raises(InvalidArgument, match=argument.name) as caught:
            parse_strategy(name, written(argument, value))
        assert caught.value.hint == EVERY[name].hint()


@of_each
def test_parameters_of_others_and_of_none_are_refused(name: str) -> None:
    own = [one.name for one in EVERY[name].parameters()]
    allowed = f"allowed: {', '.join(own) or 'none'}"
    for other, argument in arguments():
        if argument.name not in own:
            with pytest.raises(InvalidArgument, match=f"{allowed}. It belongs to .*'{other}'"):
                parse_strategy(name, f"{argument.name}=1")
    for one in own:
        with pytest.raises(InvalidArgument, match=f"{allowed}. Did you mean '{one}'?"):
            parse_strategy(name, f"{one}s_=1")
    with pytest.raises(InvalidArgument, match=allowed):
        parse_strategy(name, "xyzzy=1")


@of_each
def test_a_name_that_is_nearly_right_is_told(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"Did you mean '{name}'?"):
        parse_strategy(f"{name}_", None)


# -- workers -------------------------------------------------------------------------------------
@of_each_text
@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("configurations", [1, 3, 50])
def test_workers_are_enough_and_of_use(
    name: str, text: str, is_spread: bool, configurations: int
) -> None:
    chosen = parse_strategy(name, text)
    least = chosen.workers_at_once(PARTITIONS, is_spread=is_spread)
    most = chosen.most_workers(PARTITIONS, configurations, is_spread=is_spread)
    given = (PARTITIONS, configurations, 8)
    assert 1 <= least <= chosen.num_workers(None, *given, is_spread=is_spread) <= most
    assert chosen.num_workers(10**6, *given, is_spread=is_spread) == most
    assert chosen.num_workers(least, *given, is_spread=is_spread) == least
    assert (chosen.largest_group > 1 or chosen.is_side_by_side) == (least > 1)
    assert not is_spread or most <= max(PARTITIONS, configurations)


def settled(name: str, text: str, workers: int | None = None) -> RunSpec:
    """A run as it begins; without a number of workers, with as many as it has by default."""
    strategy = parse_strategy(name, text)
    spec = run_state({}, range(PARTITIONS), epochs=EPOCHS, frequency=1, strategy=strategy).spec
    given = Resources(cores=PARTITIONS, neighbours=PARTITIONS, num_workers=workers)
    spec = strategy.settled(spec, configurations(), given)
    count = spec.strategy.num_workers(
        workers, PARTITIONS, CONFIGURATIONS, PARTITIONS, is_spread=False
    )
    return structs.replace(spec, workers=Workers(count, most_hops=4))


def configurations() -> list[Configuration]:
    return [replace(costly(key), budget=EPOCHS) for key in range(1, CONFIGURATIONS + 1)]


class Noting(RunState):
    """A run that keeps what has happened to it."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec, configurations())
        self.noted: list[events.Event] = []

    def apply(self, event: events.Event) -> None:
        self.noted.append(event)
        super().apply(event)


@of_each_text
def test_no_worker_beyond_the_most_has_anything_to_train(name: str, text: str) -> None:
    spec = settled(name, text)
    most = spec.strategy.most_workers(PARTITIONS, CONFIGURATIONS, is_spread=False)
    state = RunState(structs.replace(spec, workers=Workers(most + 5)), configurations())
    state.apply(events.Planned(tuple(spec.strategy.plan(state))))
    taken = 0
    for worker in range(1 if spec.strategy.drives_segments else most + 5):
        task = spec.strategy.next(state, WorkerView(worker), 0.0)
        if task is not None:
            assert isinstance(task, Train | Step | Participate)
            state.apply(events.Submitted(worker, task))
            taken += 1
    assert 1 <= taken <= most


# -- plan ----------------------------------------------------------------------------------------
@of_each_text
def test_each_configuration_visits_each_partition_once_a_round(name: str, text: str) -> None:
    spec = settled(name, text)
    state = RunState(spec, configurations())
    hops = spec.strategy.plan(state)
    assert hops == spec.strategy.plan(RunState(spec, configurations()))
    every = Counter(dict.fromkeys(range(PARTITIONS), spec.strategy.rounds))
    for key in state.tracks:
        own = [hop for hop in hops if hop.mst_key == key]
        for epoch in {hop.epoch for hop in own}:
            of_epoch = [hop for hop in own if hop.epoch == epoch]
            assert Counter(hop.partition_key for hop in of_epoch) == every
            assert [hop.position for hop in of_epoch] == list(range(spec.hops_an_epoch))
            # Hops that begin with the same state are over different partitions.
            rounds = Counter((spec.base(hop), hop.partition_key) for hop in of_epoch)
            assert set(rounds.values()) == {1}


@of_each_text
def test_the_plan_does_not_depend_on_workers(name: str, text: str) -> None:
    spec = settled(name, text)
    more = structs.replace(spec, workers=Workers(spec.workers.count + 3))
    plans = [one.strategy.plan(RunState(one, configurations())) for one in (spec, more)]
    assert plans[0] == plans[1]


# -- whole runs ----------------------------------------------------------------------------------
def numbers_of_workers(name: str) -> list[int | None]:
    """Numbers of workers that a run may have."""
    return [None] if EVERY[name].drives_segments else [None, PARTITIONS, PARTITIONS + 2, 1]


def specs(name: str, text: str) -> Iterator[RunSpec]:
    for workers in numbers_of_workers(name):
        spec = settled(name, text, workers)
        if spec.workers.count >= spec.strategy.workers_at_once(PARTITIONS, is_spread=False):
            yield spec


def made(executor: Counting) -> dict[int, list[tuple[int, int]]]:
    return {key: sorted(hops) for key, hops in executor.made.items()}


@of_each_text
def test_every_hop_is_made_once_whoever_works_how_fast(name: str, text: str) -> None:
    losses = None
    for seed, spec in enumerate(specs(name, text)):
        executor = Counting(spec.workers.count, seed)
        _, catalog, state = run(0, 0, state=Noting(spec), executor=executor)
        every = [(epoch, key) for epoch in range(1, EPOCHS + 1) for key in range(PARTITIONS)]
        hops = sorted(every * spec.strategy.rounds)
        assert made(executor) == dict.fromkeys(range(1, CONFIGURATIONS + 1), hops)
        assert state.is_complete
        assert not catalog.ended_
        losses = losses or catalog.losses
        assert catalog.losses == losses
        assert len(losses) == CONFIGURATIONS * EPOCHS
    assert losses is not None


@of_each_text
def test_hops_begin_in_their_order(name: str, text: str) -> None:
    """No hop begins before the round ahead of it has left its state."""
    for seed, spec in enumerate(specs(name, text)):
        state = Noting(spec)
        run(0, 0, state=state, executor=Counting(spec.workers.count, seed))
        done: Counter[int] = Counter()
        for event in state.noted:
            match event:
                case events.Submitted(_, Train(hops) | Step(hops)):
                    for hop in hops:
                        assert spec.base(hop) <= done[hop.mst_key]
                case events.HopDone(hop):
                    done[hop.mst_key] += 1


@of_each_text
def test_who_fails_leaves_the_others_alone(name: str, text: str) -> None:
    spec = next(iter(specs(name, text)))
    _, undisturbed, _ = run(0, 0, state=Noting(spec), executor=Counting(spec.workers.count, 1))
    executor = Counting(spec.workers.count, 2, fails=2)
    _, catalog, state = run(0, 0, state=Noting(spec), executor=executor)
    assert set(executor.made) == set(range(1, CONFIGURATIONS + 1)) - {2}
    assert list(catalog.ended_) == list(state.ended) == [2]
    assert catalog.ended_[2].startswith("division by zero (epoch 1, hop ")
    kept = {key: loss for key, loss in undisturbed.losses.items() if key[0] != 2}
    assert catalog.losses == kept


class Crash(Exception):
    """The driver is gone."""


class Crashing(Counting):
    """Workers whose driver goes after so many outcomes."""

    def __init__(self, count: int, seed: int, after: int) -> None:
        super().__init__(count, seed)
        self._after = after

    def poll(self) -> Iterator[Outcome]:
        if not self._after:
            raise Crash
        self._after -= 1
        return super().poll()


def stored(before: Noting) -> RunState:
    """A run as a later driver finds it: what is half done is forgotten."""
    state = RunState(before.spec, configurations())
    hops: set[Hop] = set()
    for event in before.noted:
        match event:
            case events.Planned(planned):
                hops |= set(planned)
            case Measures(key, epoch) if epoch in before.tracks[key].scored:
                state.apply(event)
            case events.Scored():
                state.apply(event)
    for key, track in before.tracks.items():
        planned_epochs = max((hop.epoch for hop in hops if hop.mst_key == key), default=0)
        versions = frozenset({track.done, *(-1 - part for part in track.parts)})
        state.apply(events.Restored(key, track.done, planned_epochs, versions))
    over = min(track.done for track in state.tracks.values()) // state.spec.hops_an_epoch
    state.apply(events.Planned(tuple(sorted(hop for hop in hops if hop.epoch > over))))
    return state


@of_each_text
def test_a_run_goes_on_from_anywhere(name: str, text: str) -> None:
    spec = next(iter(specs(name, text)))
    whole = Counting(spec.workers.count, 1)
    _, first, _ = run(0, 0, state=Noting(spec), executor=whole)
    for after in range(0, 1000, 13):
        state, executor = Noting(spec), Crashing(spec.workers.count, 1, after)
        try:
            run(0, 0, state=state, executor=executor)
        except Crash:
            resumed, rest = stored(state), Counting(spec.workers.count, after)
            _, second, found = run(0, 0, state=resumed, executor=rest)
            assert found.is_complete
            again = Counter({key: len(hops) for key, hops in rest.made.items()})
            for key, track in found.tracks.items():
                kept = state.tracks[key]
                left = EPOCHS * spec.hops_an_epoch - kept.done - len(kept.parts)
                assert again[key] == left
                assert track.scored == set(range(1, EPOCHS + 1))
            assert second.losses.items() <= first.losses.items()
        else:
            assert after > CONFIGURATIONS
            return
    raise AssertionError("it has no end")


# -- traits --------------------------------------------------------------------------------------
@of_each_text
def test_traits_fit_together(name: str, text: str) -> None:
    one = parse_strategy(name, text)
    assert one.has_rounds or not (one.averages or one.is_side_by_side or one.has_weight_server)
    assert not (one.averages and one.is_side_by_side)
    assert one.is_side_by_side or not one.has_weight_server
    assert one.has_weight_server or not one.asynchrony.is_any
    assert one.rounds == 1 or one.has_rounds
    assert bool(one.deterministic_params) == one.has_weight_server
    assert not (one.may_join_hops() and one.takes_joining_workers)
    assert not (one.takes_folds and (one.has_rounds or one.chooses_groups))
    shares = one.shares(256, 3)
    assert sum(shares) == (256 if one.chooses_groups else 3 * 256)
    notice = one.notice(PARTITIONS)
    assert notice is None or notice.startswith(f"strategy {name}: ")
    assert isinstance(one, Strategy)
    assert set(RunState(settled(name, text), configurations()).spec.partitions) == {TRAINING}
