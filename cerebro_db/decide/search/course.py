"""The course of a search in virtual time: whoever decides sees results in an order that depends on the
plan alone, however many workers there are and however fast.

A search has so many places. A trial that has one is trained in it, an epoch in its estimated cost; at the
end of its budget the place is free, and the method says what is done with it. Results are taken note of
in the order in which they come in this virtual time, each as soon as it and all before it are known. The
workers meanwhile train whatever has a place.
"""

from __future__ import annotations

import functools
import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from msgspec import structs

from cerebro_db.configs.grids.model_selection import Frameworks
from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import (
    CLONE,
    PROMOTE,
    STOP,
    Change,
    Decision,
    Ending,
    add,
    clone,
    note,
    promote,
    stop,
)
from cerebro_db.core.decisions import FAILED as FAILED_RESULT
from cerebro_db.core.events import Allowance
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.core.spec import TRAINING
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.statuses import FAILED, STOPPED, WAITING
from cerebro_db.decide.search.ledger import Ledger
from cerebro_db.decide.search.methods import method_of
from cerebro_db.decide.search.ranking import ranked
from cerebro_db.decide.search.results import Results
from cerebro_db.decide.search.sampling import Distinct, Fault
from cerebro_db.decide.search.trials import RUNNING, Continue, End, Start, Trial
from cerebro_db.wire import as_json

Made = Decision | Allowance
Event = tuple[float, int, int]
"""When, which trial, after which epoch."""


class Timeline:
    """The next result of each trial that runs, in the order in which they come."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[Event] = []

    def expect(self, key: int, epoch: int, seconds: float) -> None:
        """A trial comes to an epoch after so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, key, epoch))

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Leave out trials that run no more, as far as they come first."""
        while self._events and is_gone(self._events[0][1]):
            heapq.heappop(self._events)

    def drop(self, keys: Collection[int]) -> None:
        """Remove trials that do not run at present."""
        self._events = [one for one in self._events if one[1] not in keys]
        heapq.heapify(self._events)

    def first(self) -> Iterator[Event]:
        """The next result, if there is any."""
        return iter(self._events[:1])

    def all(self) -> Iterator[Event]:
        """All expected results, in their order."""
        return iter(sorted(self._events))

    def of(self, key: int) -> Event | None:
        """The next result of a trial."""
        return next((one for one in self._events if one[1] == key), None)

    def take(self, event: Event) -> None:
        """A result is there."""
        if self._events[0] == event:
            heapq.heappop(self._events)
        else:
            self._events.remove(event)
            heapq.heapify(self._events)
        self.now = max(self.now, event[0])


class Course:
    """Trials in virtual time, and the decisions about them.

    Attributes:
        fault: tells what cannot be trained.
        expected: the stored decision that is made again at present.
        known_results: that earlier drivers took note of, and this one has not yet.
        is_aimed: whether the target ends the search, which it does once.
        unobserved: the trial that has reached it at its budget, which the method observes when the search goes on.
        given_up: trials that the end of the search has stopped, and the epochs whose states they have.
    """

    def __init__(self, spec: SearchSpec, fault: Fault, frameworks: Frameworks) -> None:
        self.spec, self.fault, self.method = spec, fault, method_of(spec)
        make = functools.partial(self.method.sampler, spec)
        self.sampler = Distinct(make, spec.space, fault, frameworks)
        self.ledger = Ledger(spec, self.method)
        self._read = Results(spec)
        self._timeline = Timeline()
        self._costs: dict[int, float] = {}
        self._results: list[tuple[int, int]] = []
        self.expected: Decision | None = None
        self.known_results: deque[tuple[int, int]] = deque()
        self.is_aimed = spec.early_stopping.has_target
        self.unobserved = 0
        self.given_up: dict[int, int] = {}

    def advance(self, state: RunState) -> Iterator[Made]:
        """Fill free places, and take note of results, until one is not known."""
        while True:
            yield from self._fill(state)
            found = self._next_result(state)
            if found is not None:
                yield from self._take(state, *found)
            elif (last := self._last_wish(state)) is not None:
                yield from self._bring_to_end(state, last)
            else:
                return

    def _fill(self, state: RunState) -> Iterator[Made]:
        """Give free places to what the method wants, new trials together."""
        together: list[Trial] = []
        taken = sum(not one.is_adopted for one in self.ledger.running.values())
        free = self.spec.concurrency - taken  # what others have proposed has places of its own
        while free > 0 and (wanted := self._wanted(state)) is not None:
            if isinstance(wanted, Continue):
                yield from self.promote(state, wanted)
            else:
                trial = self._started(wanted)
                if trial is None:
                    for end in self.method.exhausted(self.ledger.trials):
                        yield from self._end(state, end)
                    continue
                if wanted.source is None:
                    together.append(trial)
                else:
                    yield self.made(clone(change_of(trial), wanted.source, wanted.reason))
                    yield from self.begin(state, trial)
            free -= 1
        if together:
            yield self.made(add(map(change_of, together), _reason(together)))
            for trial in together:
                yield from self.begin(state, trial)
        yield from self._fill_up(state)

    def _fill_up(self, state: RunState) -> Iterator[Made]:
        """Let trials go on beside the last ones where workers would idle: fewer run than there are partitions.

        Only as far as they end before those that run, and never of a limited budget, which the method's own
        promotions may need.
        """
        if self.ledger.ending is not None or self.ledger.most_epochs < UNLIMITED:
            return
        running = self.ledger.running
        free = min(len(state.spec.partitions[TRAINING]), self.spec.concurrency) - len(running)
        if not running or free <= 0:
            return
        last = max(map(self._due, running.values()))

        def fits(wanted: Continue) -> bool:
            if not self.ledger.may_continue(wanted):
                return False
            seconds = state.tracks[wanted.mst_key].configuration.hop_seconds
            epochs = wanted.budget - self.ledger.trials[wanted.mst_key].done
            return self._timeline.now + seconds * epochs <= last

        for _ in range(free):
            wanted = self.method.beside(self.ledger.trials, fits)
            if wanted is None:
                return
            yield from self.promote(state, wanted)

    def _due(self, trial: Trial) -> float:
        """Virtual seconds at which a trial comes to its budget."""
        event = self._timeline.of(trial.mst_key)
        assert event is not None
        moment, _, epoch = event
        seconds = self._costs[trial.mst_key] * self.method.pace(trial)
        return moment + seconds * (trial.budget - epoch)

    def _wanted(self, state: RunState) -> Start | Continue | None:
        """Wish of the method that the budget is enough for, if the search goes on."""
        while self.ledger.ending is None:
            wanted = self.method.next(self.ledger.trials, self.ledger.affords)
            if wanted is None:
                return None
            if isinstance(wanted, Continue) and not self.ledger.may_continue(wanted):
                continue  # it was stopped, or went further, since the method wanted it
            source = wanted.source if isinstance(wanted, Start) else None
            if source is None or self._has_state(state, *source):
                return wanted
        return None

    @property
    def _is_idle(self) -> bool:
        """True if no trial runs."""
        self._timeline.forget(lambda key: self.ledger.trials[key].status != RUNNING)
        return not any(self._timeline.first())

    def _last_wish(self, state: RunState) -> Continue | None:
        """The best trial that can go on to the last epochs, where nothing else is left to do and none has."""
        if self.ledger.ending is not None or not self._is_idle or self.ledger.has_come_to_end:
            return None
        wishes = map(self.method.last_wish, self._finalists(state))
        return next(filter(self.ledger.affords, wishes), None)

    def _finalists(self, state: RunState) -> Iterator[Trial]:
        """Trials that may go on to the last epochs, the best first."""
        values = {
            key: one.latest
            for key, one in self.ledger.trials.items()
            if one.latest is not None and self.method.may_be_last(one)
        }
        for key in ranked(values):
            if self.expected is not None:
                one = self.expected
                if one.action == PROMOTE and one.only.mst_key == key:
                    yield self.ledger.trials[key]
            elif key not in state.gone:
                yield self.ledger.trials[key]

    def _bring_to_end(self, state: RunState, wanted: Continue) -> Iterator[Made]:
        self.method.goes_to_end(self.ledger.trials[wanted.mst_key])
        yield from self.promote(state, wanted)

    def _has_state(self, state: RunState, source: int, epoch: int) -> bool:
        """True if a state is there: that of the last epoch that was taken note of.

        It stays when its configuration fails in a later one, which nobody knows of yet; who has
        cancelled a configuration takes it away.
        """
        if self.expected is not None:
            one = self.expected
            return one.action == CLONE and one.only.source == source
        trial, track = self.ledger.trials[source], state.tracks[source]
        is_newest = trial.done == epoch and trial.status != FAILED
        return is_newest and epoch * state.spec.hops_an_epoch in track.states

    def _may_stop(self, state: RunState, mst_key: int, epoch: int) -> bool:
        """True if the model of a configuration can be that after an epoch, whatever came of it since."""
        if self.expected is not None:
            one = self.expected
            return one.action == STOP and one.only.mst_key == mst_key
        track = state.tracks[mst_key]
        if track.is_alive:
            return True
        has_failed = track.ended is not None and track.ended[0] == "failed"
        return has_failed and (not epoch or epoch * state.spec.hops_an_epoch in track.states)

    def _started(self, wanted: Start) -> Trial | None:
        if len(self.ledger.trials) >= self.ledger.most_trials:
            self.ledger.is_limited = True
            return None
        key = len(self.ledger.trials) + 1
        if wanted.row is None:
            found = self.sampler.propose(key)
            if found is None:
                return None
            parameters, row = found
        else:
            row = self._trainable(wanted.row, wanted.source)
            parameters = self.sampler.adopt(key, row)
        place = {**wanted.place, "reason": wanted.reason}
        trial = Trial(key, row, parameters, wanted.budget, place)
        self.ledger.join(trial)
        if wanted.source is not None:
            source = self.ledger.trials[wanted.source[0]]
            trial.offset = source.offset + wanted.source[1]
        trial.goal = trial.budget
        self.method.started(trial)
        self.ledger.epochs += trial.budget
        return trial

    def _trainable(
        self, row: ConfigurationText, source: tuple[int, int] | None
    ) -> ConfigurationText:
        """A changed configuration; that of the source where it could not be trained."""
        is_wrong = source is not None and self.fault(row) is not None
        return self.ledger.trials[source[0]].row if source is not None and is_wrong else row

    def promote(self, state: RunState, wanted: Continue) -> Iterator[Made]:
        trial = self.ledger.trials[wanted.mst_key]
        self.ledger.epochs += wanted.budget - trial.budget
        trial.budget = wanted.budget
        self.ledger.set(trial, RUNNING)
        trial.goal, trial.is_outranked = max(trial.goal, trial.budget), False
        trial.place.update(wanted.place)
        yield self.made(promote(trial.mst_key, trial.budget, wanted.reason, wanted.place))
        yield from self.begin(state, trial)

    def begin(self, state: RunState, trial: Trial) -> Iterator[Allowance]:
        """A trial is trained from now on; when its next result comes."""
        key = trial.mst_key
        self._costs[key] = state.tracks[key].configuration.hop_seconds
        yield from self.expect(trial)

    def expect(self, trial: Trial) -> Iterator[Allowance]:
        watches = self.spec.early_stopping.watches
        epoch = min(trial.done + 1, trial.budget) if watches else trial.budget
        pace = self.method.pace(trial)
        seconds = self._costs[trial.mst_key] * pace
        self._timeline.expect(trial.mst_key, epoch, seconds * (epoch - trial.done))
        kept = frozenset({trial.done} if self._looks_back and trial.done else ())
        since = self._timeline.now, trial.done
        yield Allowance(trial.mst_key, epoch if watches else None, kept, since, pace)

    @property
    def _looks_back(self) -> bool:
        """True if a decision may go back to the state of an epoch that was taken note of."""
        return self.method.looks_back or self.spec.early_stopping.has_target

    def _next_result(self, state: RunState) -> tuple[int, int] | None:
        """The next result that is known: of which trial, after which epoch, or that it has failed."""
        if self.known_results:
            return self._take_known(*self.known_results.popleft())
        if self.expected is not None:  # an earlier driver knew no more here
            return None
        for key in sorted(state.gone - self.ledger.failed):
            if self.ledger.trials[key].status == WAITING:
                return key, FAILED_RESULT
        self._timeline.forget(lambda key: self.ledger.trials[key].status != RUNNING)
        is_strict = self.spec.deterministic
        for event in self._timeline.first() if is_strict else self._timeline.all():
            _, key, epoch = event
            found = self._read.known(state.tracks[key], epoch)
            if found is not None and self.ledger.trials[key].status == RUNNING:
                self._timeline.take(event)
                return key, found
        return None

    def _take_known(self, key: int, epoch: int) -> tuple[int, int]:
        """A result that an earlier driver took note of."""
        event = self._timeline.of(key) if self.ledger.trials[key].status == RUNNING else None
        if event is not None:
            self._timeline.take(event)
        return key, epoch

    def _take(self, state: RunState, key: int, epoch: int) -> Iterator[Made]:
        """Take note of a result, and do what follows from it."""
        self._results.append((key, epoch))
        trial, track = self.ledger.trials[key], state.tracks[key]
        if epoch == FAILED_RESULT:
            yield from self.failed(state, trial)
            return
        trial.done = epoch
        trial.values[epoch] = self._read.values(track, epoch)
        if self.is_aimed and self._read.reaches_target(trial):
            self.ledger.set(trial, WAITING if epoch >= trial.budget else RUNNING)
            self.unobserved = key if trial.status == WAITING else 0
            self._inform_sampler(trial)
            yield from self.finish(state, Ending(f"the target is reached by {key}"))
            return
        yield from self._judged(trial, track)
        if trial.status == RUNNING:
            yield from self.expect(trial)
        else:
            self.ledger.give_back(trial, epoch)
            self._inform_sampler(trial)
            yield from self.observed(state, trial)

    def failed(self, state: RunState, trial: Trial) -> Iterator[Made]:
        """Mark a trial as failed, and let its states go."""
        self.ledger.set(trial, FAILED)
        self.sampler.failed(trial.mst_key)
        if self._looks_back:
            yield Allowance(trial.mst_key, None)
        yield from self.observed(state, trial)

    def _judged(self, trial: Trial, track: Track) -> Iterator[Decision]:
        """Status of a trial after an epoch: it runs, waits at its budget, or is stopped early."""
        if self._read.was_stopped(track, trial.done):
            self.ledger.set(trial, STOPPED)
        elif trial.done < self.method.full:
            full = self.method.full
            reason = self._read.fault(trial, self.ledger.trials.values(), full)
            if reason is not None:
                self.ledger.set(trial, STOPPED)
                yield self.made(stop(trial.mst_key, trial.done, reason, detail=rung_of(trial)))
        if trial.status == RUNNING and trial.done >= trial.budget:
            self.ledger.set(trial, WAITING)

    def observed(self, state: RunState, trial: Trial) -> Iterator[Made]:
        for end in self.method.observed(trial, self.ledger.trials):
            yield from self._end(state, end)

    def _end(self, state: RunState, end: End) -> Iterator[Made]:
        trial = self.ledger.trials[end.mst_key]
        self.ledger.set(trial, STOPPED)
        trial.is_outranked = True
        if self._may_stop(state, end.mst_key, trial.done):
            yield self.made(stop(trial.mst_key, trial.done, end.reason, detail=rung_of(trial)))

    def _inform_sampler(self, trial: Trial) -> None:
        """Inform the sampler of a trial that has come to its budget, or was stopped."""
        if not trial.offset:
            is_full = trial.done >= self.method.full
            values = tuple(min(value, _WORST) for value in trial.values[trial.done])
            self.sampler.observed(trial.mst_key, trial.done, values, is_full=is_full)

    def aim_again(self) -> None:
        """The search goes on: a target that is reached already does not end it."""
        reached = any(map(self._read.reaches_target, self.ledger.trials.values()))
        self.is_aimed = not (self.is_aimed and reached)

    def finish(self, state: RunState, wanted: Ending, who: str = "") -> Iterator[Made]:
        """Begin nothing any more; what runs is stopped where it is.

        By itself, after the last epoch that it took note of; by request, after the last one that is done.
        """
        self.ledger.ending = wanted
        reason, running = (
            wanted.reason,
            sorted(self.ledger.running.values(), key=lambda one: one.mst_key),
        )
        stopped = wanted.stopped
        if not who:
            stopped = {one.mst_key: one.done for one in running}
        elif stopped is None:
            alive = [one.mst_key for one in running if state.tracks[one.mst_key].is_alive]
            stopped = {key: newest(state, key) for key in alive}
        yield self.made(note(Ending(reason, stopped if who else None), reason, who))
        self._timeline.drop(self.ledger.running.keys())
        for trial in running:
            self.ledger.set(trial, STOPPED)
            key, epoch = trial.mst_key, stopped.get(trial.mst_key)
            if epoch is not None and self._may_stop(state, key, epoch):
                self.given_up[key] = epoch
                yield self.made(stop(key, epoch, reason))
            else:
                self.given_up[key] = 0
                yield Allowance(key, None)

    def made(self, decision: Decision) -> Decision:
        """A decision, with the results that were taken note of since the one before."""
        results, self._results = tuple(self._results), []
        return structs.replace(decision, results=results)


_WORST = 1e300


def newest(state: RunState, mst_key: int) -> int:
    """The last epoch whose state is there; 0 for none."""
    track, hops = state.tracks[mst_key], state.spec.hops_an_epoch
    return max((one // hops for one in track.states if one and one % hops == 0), default=0)


def change_of(trial: Trial) -> Change:
    place = {key: value for key, value in trial.place.items() if key != "reason"}
    detail = {"parameters": as_json(dict(trial.parameters)), **place}
    reason = str(trial.place.get("reason", ""))
    return Change(trial.mst_key, trial.budget, trial.row, detail=detail, reason=reason)


def rung_of(trial: Trial) -> dict[str, Any]:
    return {name: trial.place[name] for name in ("bracket", "rung") if name in trial.place}


def _reason(trials: Iterable[Trial]) -> str:
    """Reason of trials that are added together."""
    return "; ".join(dict.fromkeys(str(one.place["reason"]) for one in trials))
