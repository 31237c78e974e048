"""Searches over scripted learning curves: trials come to their epochs in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs
from run_states import configuration, run_state

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core import events
from cerebro_db.core.decisions import (
    ADD,
    CLONE,
    FINISH,
    PROMOTE,
    STOP,
    Change,
    Decision,
    Ending,
    Request,
    read_request,
)
from cerebro_db.core.search import Budget, EarlyStopping, Objective, SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import Measures
from cerebro_db.decide import retention
from cerebro_db.decide.search.decider import SearchDecider
from cerebro_db.decide.search.methods import METHODS
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import InvalidArgument
from cerebro_db.wire import convert

LOSS = Objective("loss", "training", False)
SPACE = Space(
    (1,),
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']], "
    "'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log']}]}",
    "{'batch_size': [8]}",
)
LISTED = structs.replace(
    SPACE,
    compile_params_grid=SPACE.compile_params_grid.replace(
        "[0.0001, 0.1, 'log']", f"{[10 ** (-number / 4) for number in range(4, 17)]}"
    ),
)
"""The same with values in place of the range."""
_SMALL = {"num_configs": 12, "num_iterations": 3, "R": 9, "population": 6, "num_startup": 4}
Curve = Callable[[Track, int], Mapping[str, float]]


def request(
    request_id: int, action: str, mst_key: int, who: str, detail: Mapping[str, Any] | None = None
) -> Request:
    """A request of another session, or of the clock, as it comes from the catalog."""
    if action == FINISH:
        return Request(request_id, mst_key, who, convert(Ending, detail, action))
    return read_request(request_id, action, mst_key, who, json.dumps(detail or {}))


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
    params = METHODS[method].validated(given)
    return SearchSpec(method, params, space, **{"objectives": (LOSS,), **own})


def small(method: str, *spaces: Space, **given: Any) -> SearchSpec:
    """A small search by any method, over the first of some spaces that it can explore, SPACE or LISTED."""
    one = METHODS[method]
    params = {arg.name: _SMALL[arg.name] for arg in one.parameters if arg.name in _SMALL}
    given = ({"concurrency": 4} if one.is_staged else {}) | params | given
    for space in (*spaces, SPACE, LISTED):
        search = spec(method, space, **given)
        with suppress(InvalidArgument):
            one.check_space(search, Explorer(space))
            return search
    raise AssertionError(f"{method} can explore none of the spaces")


def rate(track: Track) -> float:
    """The learning rate of a configuration."""
    return float(track.configuration.compile_params.optimizer.all_arguments()["learning_rate"])


def by_rate(track: Track, epoch: int) -> dict[str, float]:
    """A loss that is least at a rate of 0.01, and falls with the epochs."""
    import math

    return {"loss": abs(math.log10(rate(track)) + 2) + 1 / epoch}


def uneven(one: Any) -> float:
    """Costs of trials."""
    return 1.0 + one.mst_key % 5


def noisy(track: Any, epoch: int) -> dict[str, float]:
    """Curves that rise and fall."""
    key = track.configuration.mst_key
    return {"loss": by_rate(track, epoch)["loss"] + ((key * 7 + epoch * 13) % 10) / 20}


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
    cost: Callable[[Change], float] = lambda one: 1.0
    asks: Mapping[int, Request] = field(default_factory=dict)
    fails: Mapping[int, int] = field(default_factory=dict)
    limit: int = 10**9
    epochs: int = 10**9

    def __post_init__(self) -> None:
        self.state = run_state({}, (0, 1), epochs=1, is_open=True)
        self.recorded: list[Decision] = []
        self.schedule = self._schedule()
        self._random = random.Random(self.order)

    def _schedule(self) -> SearchDecider:
        return SearchDecider(self.spec, lambda row: None, tuple(self.recorded))

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
            track.last_allowed, track.kept = None, frozenset()
        self.schedule = self._schedule()
        return self.run()

    def ask(self, asked: Request) -> Course:
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
            values = dict(self.curve(track, epoch))
            loss = values.pop("loss", 0.0)
            self.state.apply(
                Measures(key, epoch, "training", loss, tuple(values), tuple(values.values()))
            )
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
            self._take(self.schedule.follow(self.state, asked))
            self._decide()

    def _take(self, made: Iterable[Decision | events.Allowance]) -> int:
        count = 0
        for one in made:
            if isinstance(one, events.Allowance):
                self.state.apply(one)
                continue
            if len(self.recorded) >= self.limit:
                raise StopIteration
            count += 1
            self.recorded.append(one)
            self._apply(one)
        return count

    def _apply(self, one: Decision) -> None:
        made = one.changes if one.action in (ADD, CLONE) else ()
        is_warm = one.action == CLONE
        for key, epoch in one.origins:
            assert not epoch or 2 * epoch in self.state.tracks[key].states, "the state is gone"
        if one.action == STOP:
            track = self.state.tracks[one.only.mst_key]
            assert track.is_alive or (track.ended or ("",))[0] == "failed"
        elif one.action == PROMOTE:
            track = self.state.tracks[one.only.mst_key]
            assert not track.ended
            assert one.only.epochs > track.budget, "a promotion to fewer epochs"
            assert not track.is_stopped or track.done == 2 * (track.verdict.stopped_epoch or 0)
        configurations = tuple(self._configuration(change, is_warm=is_warm) for change in made)
        self.state.apply(events.Decided(one, configurations))

    def _configuration(self, one: Change, **more: Any) -> Any:
        made = configuration(
            one.mst_key, self.cost(one), one.epochs, one.text.fit_params,
            compile_text=one.text.compile_params, cohort=len(self.recorded), **more,
        )  # fmt: skip
        return made

    # -- what came of it -------------------------------------------------------------------------
    @property
    def decided(self) -> list[tuple[Any, ...]]:
        """All decisions, but for what they were told of."""
        return [(number, one.core, one.who) for number, one in enumerate(self.recorded, 1)]

    def numbers(self, is_wanted: Callable[[Decision], Any]) -> list[int]:
        """The numbers of some decisions, from 1."""
        return [number for number, one in enumerate(self.recorded, 1) if is_wanted(one)]

    @property
    def unheard(self) -> list[tuple[int, int]]:
        """Results after which nothing was decided any more."""
        return list(self.schedule._course._results)

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
    "LOSS", "SPACE", "Budget", "ConfigurationText", "Course", "EarlyStopping", "RunState",
    "by_rate", "noisy", "rate", "request", "scripted", "small", "spec", "uneven",
]  # fmt: skip
