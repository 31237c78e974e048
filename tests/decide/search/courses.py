"""Searches over scripted learning curves: trials come to their epochs in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from run_states import configuration, run_state

from cerebro_db.configs.grids.model_selection import ConfigurationText
from cerebro_db.configs.grids.search_methods import find_method
from cerebro_db.core import events
from cerebro_db.core.decisions import Add, Asked, Candidate, Clone, Decision, Promote, Stop
from cerebro_db.core.search import Budget, EarlyStopping, Objective, SearchSpec, Space
from cerebro_db.core.state import RunState, Track
from cerebro_db.decide import retention
from cerebro_db.decide.search.recorded import Recorded, changes_of
from cerebro_db.decide.search.schedule import Schedule

LOSS = Objective("loss", "training", False)
SPACE = Space(
    (1,),
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log']}]}",
    "{'batch_size': [8]}",
)
Curve = Callable[[Track, int], Mapping[str, float]]


def spec(method: str, space: Space = SPACE, **given: Any) -> SearchSpec:
    """A search; what is no part of its spec is a parameter of the method."""
    own = {
        name: given.pop(name)
        for name in (
            "objectives",
            "early_stopping",
            "budget",
            "seed",
            "concurrency",
            "deterministic",
        )
        if name in given
    }
    params = find_method(method).validated(given)
    return SearchSpec(method, params, space, **{"objectives": (LOSS,), **own})


def rate(track: Track) -> float:
    """The learning rate of a configuration."""
    return float(track.configuration.compile_params.optimizer.all_arguments()["learning_rate"])


def by_rate(track: Track, epoch: int) -> dict[str, float]:
    """A loss that is least at a rate of 0.01, and falls with the epochs."""
    import math

    return {"loss": abs(math.log10(rate(track)) + 2) + 1 / epoch}


@dataclass
class Course:
    """One search from its beginning; what it has decided stays.

    Attributes:
        order: of the seed by which trials come to their epochs; None for that of virtual time.
        limit: decisions after which nothing more is done.
        epochs: that are trained before it rests.
    """

    spec: SearchSpec
    curve: Curve = by_rate
    order: int = 0
    cost: Callable[[Candidate], float] = lambda one: 1.0
    asks: Mapping[int, Asked] = field(default_factory=dict)
    fails: Mapping[int, int] = field(default_factory=dict)
    limit: int = 10**9
    epochs: int = 10**9

    def __post_init__(self) -> None:
        self.state = run_state({}, (0, 1), epochs=1, is_open=True)
        self.recorded: list[Recorded] = []
        self.schedule = self._schedule()
        self._random = random.Random(self.order)

    def _schedule(self) -> Schedule:
        return Schedule(self.spec, lambda row: None, tuple(self.recorded))

    # -- running ---------------------------------------------------------------------------------
    def run(self) -> Course:
        """To its end, or to the limit."""
        with suppress(StopIteration):
            self._go_on()
        return self

    def resume(self, limit: int = 10**9) -> Course:
        """Go on with a new schedule, after all that one knew was forgotten."""
        self.limit, self.asks = limit, {}
        for track in self.state.tracks.values():
            track.held_after, track.kept = None, frozenset()
        self.schedule = self._schedule()
        return self.run()

    def ask(self, asked: Asked) -> Course:
        """Go on, to the end, with what somebody asks for now; who was stopped has its model's state only."""
        self.epochs = 10**9
        if asked.action == "extend":
            for track in self.state.tracks.values():
                if track.is_stopped:
                    track.done = 2 * (track.verdict.stopped_epoch or 0)
                    track.states = {track.done}
        self.asks = {len(self.recorded): asked}
        return self.run()

    def _go_on(self) -> None:
        self._decide()
        while self.epochs and (ready := self._ready()):
            self.epochs -= 1
            self._train(self._random.choice(ready))
            self._decide()

    def _ready(self) -> list[Track]:
        hops = self.state.spec.hops_an_epoch
        return [
            track
            for track in self.state.tracks.values()
            if track.is_alive
            and not retention.is_held(self.state, track)
            and track.done < track.budget * hops
        ]

    def _train(self, track: Track) -> None:
        key, epoch = track.configuration.mst_key, track.done // 2 + 1
        if self.fails.get(key) == epoch:
            self.state.apply(events.Failed(key, "failed", "by script"))
            return
        track.done = 2 * epoch
        track.states.add(track.done)
        watched = self.spec.early_stopping.watches
        if watched or epoch in track.rungs:
            self.state.apply(events.Measured(key, epoch, "training", self.curve(track, epoch)))
            self.state.apply(events.Scored(epoch, (key,)))
        for _, version in retention.useless(self.state, [key]):
            track.states.discard(version)

    # -- decisions -------------------------------------------------------------------------------
    def _decide(self) -> None:
        while self._take(self.schedule.decide(self.state)):
            pass
        if self.asks and len(self.recorded) >= min(self.asks):
            number = min(self.asks)
            asked = self.asks[number]
            self.asks = {key: one for key, one in self.asks.items() if key != number}
            self.schedule.check(self.state, asked)
            self._take(self.schedule.asked(self.state, asked))
            self._decide()

    def _take(self, made: Iterable[Decision | events.Held]) -> int:
        count = 0
        for one in made:
            if isinstance(one, events.Held):
                self.state.apply(one)
                continue
            if len(self.recorded) >= self.limit:
                raise StopIteration
            count += 1
            self._record(one)
            self._apply(one)
        return count

    def _record(self, one: Decision) -> None:
        action, changes = changes_of(one)
        number = len(self.recorded) + 1
        self.recorded.append(
            Recorded(number, action, one.who, one.heard, changes, one.reason, one.detail)
        )

    def _apply(self, one: Decision) -> None:
        match one:
            case Add(candidates):
                self.state.apply(events.Added(tuple(map(self._configuration, candidates))))
            case Clone(source, epoch, candidate):
                assert 2 * epoch in self.state.tracks[source].states, "the state is gone"
                self.state.apply(
                    events.Cloned(self._configuration(candidate, is_warm=True), source, epoch)
                )
            case Stop(mst_key, epoch, reason):
                track = self.state.tracks[mst_key]
                assert track.is_alive or (track.ended or ("",))[0] == "failed"
                assert not epoch or 2 * epoch in track.states, "the state is gone"
                self.state.apply(events.Stopped(mst_key, epoch, reason))
            case Promote(mst_key, budget):
                track = self.state.tracks[mst_key]
                assert not track.ended
                assert budget > track.budget, "a promotion to fewer epochs"
                assert not track.is_stopped or track.done == 2 * (track.verdict.stopped_epoch or 0)
                self.state.apply(events.Promoted(mst_key, budget))
            case _:
                self.state.apply(events.Noted())

    def _configuration(self, one: Candidate, **more: Any) -> Any:
        made = configuration(
            one.mst_key, self.cost(one), one.budget, one.fit_params,
            compile_text=one.compile_params, cohort=len(self.recorded), **more,
        )  # fmt: skip
        return made

    # -- what came of it -------------------------------------------------------------------------
    @property
    def decided(self) -> list[tuple[Any, ...]]:
        """All decisions, but for what they were told of."""
        return [(one.number, one.action, one.changes, one.who) for one in self.recorded]

    @property
    def unheard(self) -> list[tuple[int, int]]:
        """Results after which nothing was decided any more."""
        return list(self.schedule._heard)

    @property
    def ends(self) -> dict[int, tuple[str, int | None]]:
        """What has become of each trial: why there is no model, or the epoch that it was stopped after."""
        return {
            key: ((one.ended or ("",))[0], one.verdict.stopped_epoch)
            for key, one in self.state.tracks.items()
        }

    def reached(self, epochs: int) -> list[int]:
        """Trials that were trained for so many epochs at least."""
        return [key for key, one in self.state.tracks.items() if one.done >= 2 * epochs]


def scripted(curves: Mapping[int, Sequence[float]], name: str = "loss") -> Curve:
    """Curves by mst_key."""
    return lambda track, epoch: {name: curves[track.configuration.mst_key][epoch - 1]}


__all__ = [
    "LOSS", "SPACE", "Asked", "Budget", "ConfigurationText", "Course", "EarlyStopping", "RunState",
    "by_rate", "rate", "scripted", "spec",
]  # fmt: skip
