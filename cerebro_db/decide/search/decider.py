"""The course of a search in virtual time: whoever decides sees results in an order that depends on the
plan alone, however many workers there are and however fast.

A search has so many places. A trial that has one is trained in it, an epoch in its estimated cost; at the
end of its budget the place is free, and the method says what is done with it. Results are taken note of
in the order in which they come in this virtual time, each as soon as it and all before it are known. The
workers meanwhile train whatever has a place.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from cerebro_db.configs.functions.callbacks import monitors_of
from cerebro_db.configs.grids.model_selection import checked_model_ids
from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import (
    CLONE,
    PROMOTE,
    STOP,
    AddedRow,
    AddTrials,
    Change,
    CloneTrial,
    Decision,
    Ending,
    Extension,
    Request,
    StopTrial,
    add,
    clone,
    note,
    promote,
    stop,
)
from cerebro_db.core.decisions import FAILED as FAILED_RESULT
from cerebro_db.core.events import Allowance
from cerebro_db.core.ports import Outlook
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.core.spec import TRAINING, Space
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.statuses import FAILED, STOPPED, WAITING
from cerebro_db.decide import callbacks
from cerebro_db.decide.search import stopping
from cerebro_db.decide.search.methods import checked_more, method_of, total_epochs
from cerebro_db.decide.search.ranking import Values, ranked
from cerebro_db.decide.search.sampling import Distinct, Fault
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.timeline import Timeline
from cerebro_db.decide.search.trials import RUNNING, Continue, End, Start, Trial
from cerebro_db.errors import InvalidArgument, InvalidData
from cerebro_db.wire import as_json

_Made = Decision | Allowance


class SearchDecider:
    """Decides a search in virtual time; resumed, it decides the same from the scores of the run.

    Args:
        spec: of the search.
        fault: tells what cannot be trained.
        stored: decisions that earlier drivers have made.
    """

    is_open = True

    def __init__(self, spec: SearchSpec, fault: Fault, stored: Sequence[Decision] = ()) -> None:
        self._spec, self._method = spec, method_of(spec)
        self._sampler = Distinct(functools.partial(self._method.sampler, spec), spec.space, fault)
        self._fault = fault
        self._stored = deque(enumerate(stored, 1))
        self._known_results: deque[tuple[int, int]] = deque()
        self.trials: dict[int, Trial] = {}
        # Kept beside the trials, so that a decision costs the same with any number of these.
        self._running: dict[int, Trial] = {}
        self._failed_keys: set[int] = set()
        self._timeline = Timeline()
        self._costs: dict[int, float] = {}
        self._results: list[tuple[int, int]] = []
        # News of the run, when what they lead to was decided last.
        self._seen = -1
        self._unfinished: Iterator[_Made] = iter(())
        # The stored decision that is made again at present, and its number.
        self._expected: Decision | None = None
        self._number = 0
        self._epochs = 0
        self._max_epochs = spec.budget.max_epochs
        self._max_trials = self._method.most_trials = spec.budget.max_configurations
        self._is_over = False
        # Why the search has ended before its method had nothing left to do.
        self._over_for = ""
        # Whether trials were wanted that max_configs does not allow.
        self._is_limited = False
        # Whether the target ends the search, which it does once.
        self._is_aimed = spec.early_stopping.has_target
        # The trial that has reached it at its budget, which the method hears of when the search goes on.
        self._unheard = 0
        # Trials that the end of the search has stopped, and the epochs whose states they have.
        self._given_up: dict[int, int] = {}
        self._monitors: dict[str, Mapping[str, str]] = {}
        self._most_configurations = Explorer(spec.space).size
        # Epochs of all trials together, about.
        self._total = total_epochs(spec)

    # -- decisions -------------------------------------------------------------------------------
    def decide(self, state: RunState) -> Iterator[_Made]:
        """Decisions that follow from the results that are known."""
        if self._stored:
            yield from self._catch_up(state)
        elif self._seen == state.news:
            return
        yield from self._unfinished
        self._unfinished = self._advance(state)
        yield from self._unfinished
        self._seen = state.news

    def follow(self, state: RunState, request: Request) -> Iterator[_Made]:
        """Decisions that follow from a request of another session, or of the clock, which was checked."""
        self._seen = -1
        yield from self._answer(state, request)

    def _catch_up(self, state: RunState) -> Iterator[Allowance]:
        """Repeat the decisions of earlier drivers; yields the allowances that hold after them."""
        found: dict[int, Allowance] = {}
        while self._stored:
            self._number, self._expected = self._stored.popleft()
            self._known_results.extend(self._expected.results)
            for one in self._restore(state, self._expected):
                found[one.mst_key] = one
        self._expected = None
        yield from (one for key, one in found.items() if self.trials[key].status == RUNNING)

    def _restore(self, state: RunState, one: Decision) -> Iterator[Allowance]:
        """Make a stored decision once more; yields what is allowed by it."""
        if one.who:
            yield from self._until(one, self._unfinished, None)
            yield from self._until(one, self._advance(state), None)
            self._unfinished = self._answer(state, one.as_request())
            yield from self._until(one, self._unfinished, one)
            return
        found = yield from self._until(one, self._unfinished, one)
        if not found:
            self._unfinished = self._advance(state)
            found = yield from self._until(one, self._unfinished, one)
        if not found:
            _check_same(self._number, one, None)

    def _until(
        self, one: Decision, made: Iterator[_Made], wanted: Decision | None
    ) -> Generator[Allowance, None, bool]:
        """Go on until a decision comes; whether one came, which must be the wanted one.

        Before what somebody had asked for, nothing else was decided.
        """
        for each in made:
            if isinstance(each, Allowance):
                yield each
                continue
            _check_same(self._number, wanted or structs.replace(one, action=""), each)
            return True
        return False

    # -- the course ------------------------------------------------------------------------------
    def _advance(self, state: RunState) -> Iterator[_Made]:
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

    @property
    def _places(self) -> int:
        """Number of free places; what others have proposed has places of its own."""
        taken = sum(not one.is_adopted for one in self._running.values())
        return self._spec.concurrency - taken

    def _set(self, trial: Trial, status: str) -> None:
        """A trial has another status."""
        trial.status = status
        if status == RUNNING:
            self._running[trial.mst_key] = trial
        else:
            self._running.pop(trial.mst_key, None)
        if status == FAILED:
            self._failed_keys.add(trial.mst_key)

    def _join(self, trial: Trial) -> None:
        """A trial is there, and runs."""
        self.trials[trial.mst_key] = trial
        self._set(trial, RUNNING)

    def _fill(self, state: RunState) -> Iterator[_Made]:
        """Give free places to what the method wants, new trials together."""
        together: list[Trial] = []
        free = self._places
        while free > 0 and (wanted := self._wanted(state)) is not None:
            if isinstance(wanted, Continue):
                yield from self._promote(state, wanted)
            else:
                trial = self._started(wanted)
                if trial is None:
                    for end in self._method.exhausted(self.trials):
                        yield from self._end(state, end)
                    continue
                if wanted.source is None:
                    together.append(trial)
                else:
                    yield self._made(clone(_change(trial), wanted.source, wanted.reason))
                    yield from self._begin(state, trial)
            free -= 1
        if together:
            yield self._made(add(map(_change, together), _reason(together)))
            for trial in together:
                yield from self._begin(state, trial)
        yield from self._fill_up(state)

    def _fill_up(self, state: RunState) -> Iterator[_Made]:
        """Let trials go on beside the last ones where workers would idle: fewer run than there are partitions.

        Only as far as they end before those that run, and never of a limited budget, which the method's own
        promotions may need.
        """
        if self._is_over or self._max_epochs < UNLIMITED:
            return
        running = self._running
        free = min(len(state.spec.partitions[TRAINING]), self._spec.concurrency) - len(running)
        if not running or free <= 0:
            return
        last = max(map(self._due, running.values()))

        def fits(wanted: Continue) -> bool:
            if not self._may_continue(wanted):
                return False
            seconds = state.tracks[wanted.mst_key].configuration.hop_seconds
            epochs = wanted.budget - self.trials[wanted.mst_key].done
            return self._timeline.now + seconds * epochs <= last

        for _ in range(free):
            wanted = self._method.beside(self.trials, fits)
            if wanted is None:
                return
            yield from self._promote(state, wanted)

    def _due(self, trial: Trial) -> float:
        """Virtual seconds at which a trial comes to its budget."""
        event = self._timeline.of(trial.mst_key)
        assert event is not None
        moment, _, epoch = event
        seconds = self._costs[trial.mst_key] * self._method.pace(trial)
        return moment + seconds * (trial.budget - epoch)

    def _wanted(self, state: RunState) -> Start | Continue | None:
        """Wish of the method that the budget is enough for, if the search goes on."""
        while not self._is_over:
            wanted = self._method.next(self.trials, self._affords)
            if wanted is None:
                return None
            if isinstance(wanted, Continue) and not self._may_continue(wanted):
                continue  # it was stopped, or went further, since the method wanted it
            source = wanted.source if isinstance(wanted, Start) else None
            if source is None or self._has_state(state, *source):
                return wanted
        return None

    def _may_continue(self, wanted: Continue) -> bool:
        trial = self.trials[wanted.mst_key]
        return trial.status == WAITING and trial.budget < wanted.budget

    def _affords(self, wanted: Start | Continue) -> bool:
        """True if the epochs of the search are enough; and its trials, for one that takes a state over."""
        if isinstance(wanted, Start):
            epochs = wanted.budget
            if wanted.source is not None and len(self.trials) >= self._max_trials:
                return False
        else:
            epochs = wanted.budget - self.trials[wanted.mst_key].budget
        return self._epochs + epochs <= self._max_epochs

    # -- the way to the last epochs --------------------------------------------------------------
    @property
    def _is_idle(self) -> bool:
        """True if no trial runs."""
        self._timeline.forget(lambda key: self.trials[key].status != RUNNING)
        return not any(self._timeline.first())

    @property
    def _has_come_to_end(self) -> bool:
        """True if a trial was to be trained to the last epochs, and has not failed."""
        end = self._method.end
        return any(
            one.offset + one.goal >= end for one in self.trials.values() if one.status != FAILED
        )

    def _last_wish(self, state: RunState) -> Continue | None:
        """The best trial that can go on to the last epochs, where nothing else is left to do and none has."""
        if self._is_over or not self._is_idle or self._has_come_to_end:
            return None
        wishes = map(self._method.last_wish, self._finalists(state))
        return next(filter(self._affords, wishes), None)

    def _finalists(self, state: RunState) -> Iterator[Trial]:
        """Trials that may go on to the last epochs, the best first."""
        values = {
            key: one.latest
            for key, one in self.trials.items()
            if one.latest is not None and self._method.may_be_last(one)
        }
        for key in ranked(values):
            if self._expected is not None:
                one = self._expected
                if one.action == PROMOTE and one.only.mst_key == key:
                    yield self.trials[key]
            elif key not in state.gone:
                yield self.trials[key]

    def _bring_to_end(self, state: RunState, wanted: Continue) -> Iterator[_Made]:
        self._method.goes_to_end(self.trials[wanted.mst_key])
        yield from self._promote(state, wanted)

    def gives_up(self, error: Exception) -> bool:
        """False: who drives the search decides what an error ends."""
        return False

    def shortfall(self, state: RunState) -> str | None:
        """Reason that no trial has come to the last epochs; None where one has."""
        end = self._method.end
        there = [one for one in self.trials.values() if one.status != FAILED]
        if any(one.offset + one.done >= end for one in there):
            return None
        return f"no trial was trained for {end} epochs: {self._why_short(there)}"

    def _why_short(self, there: Sequence[Trial]) -> str:
        """Reason that none of the trials that have not failed has come to the last epochs."""
        if self._over_for:
            return self._over_for
        if not there:
            return "all trials have failed"
        if any(map(self._method.may_be_last, there)) and not self._has_come_to_end:
            left = self._max_epochs - self._epochs
            is_used = f"leave {left}, and the best needs more" if left else "are used up"
            return f"max_epochs := {self._max_epochs} {is_used}"
        return "trials were stopped before"

    def outlook(self) -> Outlook:
        """Size that the search will have: trials that are wanted, as far as there are any."""
        there = len(self.trials)
        room = min(self._most_configurations, self._max_trials) - there
        wanted = 0 if self._is_over else max(0, min(self._method.trials(), room))
        return Outlook(there + int(wanted), min(self._total, self._max_epochs))

    def _has_state(self, state: RunState, source: int, epoch: int) -> bool:
        """True if a state is there: that of the last epoch that was taken note of.

        It stays when its configuration fails in a later one, of which nothing is heard yet; who has
        cancelled a configuration takes it away.
        """
        if self._expected is not None:
            one = self._expected
            return one.action == CLONE and one.only.source == source
        trial, track = self.trials[source], state.tracks[source]
        is_newest = trial.done == epoch and trial.status != FAILED
        return is_newest and epoch * state.spec.hops_an_epoch in track.states

    def _may_stop(self, state: RunState, mst_key: int, epoch: int) -> bool:
        """True if the model of a configuration can be that after an epoch, whatever came of it since."""
        if self._expected is not None:
            one = self._expected
            return one.action == STOP and one.only.mst_key == mst_key
        track = state.tracks[mst_key]
        if track.is_alive:
            return True
        has_failed = track.ended is not None and track.ended[0] == "failed"
        return has_failed and (not epoch or epoch * state.spec.hops_an_epoch in track.states)

    def _started(self, wanted: Start) -> Trial | None:
        if len(self.trials) >= self._max_trials:
            self._is_limited = True
            return None
        key = len(self.trials) + 1
        if wanted.row is None:
            found = self._sampler.propose(key)
            if found is None:
                return None
            parameters, row = found
        else:
            row = self._trainable(wanted.row, wanted.source)
            parameters = self._sampler.adopt(key, row)
        place = {**wanted.place, "reason": wanted.reason}
        trial = Trial(key, row, parameters, wanted.budget, place)
        self._join(trial)
        if wanted.source is not None:
            source = self.trials[wanted.source[0]]
            trial.offset = source.offset + wanted.source[1]
        trial.goal = trial.budget
        self._method.started(trial)
        self._epochs += trial.budget
        return trial

    def _trainable(
        self, row: ConfigurationText, source: tuple[int, int] | None
    ) -> ConfigurationText:
        """A changed configuration; that of the source where it could not be trained."""
        is_wrong = source is not None and self._fault(row) is not None
        return self.trials[source[0]].row if source is not None and is_wrong else row

    def _promote(self, state: RunState, wanted: Continue) -> Iterator[_Made]:
        trial = self.trials[wanted.mst_key]
        self._epochs += wanted.budget - trial.budget
        trial.budget = wanted.budget
        self._set(trial, RUNNING)
        trial.goal, trial.is_outranked = max(trial.goal, trial.budget), False
        trial.place.update(wanted.place)
        yield self._made(promote(trial.mst_key, trial.budget, wanted.reason, wanted.place))
        yield from self._begin(state, trial)

    def _begin(self, state: RunState, trial: Trial) -> Iterator[Allowance]:
        """A trial is trained from now on; when its next result comes."""
        key = trial.mst_key
        self._costs[key] = state.tracks[key].configuration.hop_seconds
        yield from self._expect(trial)

    def _expect(self, trial: Trial) -> Iterator[Allowance]:
        watches = self._spec.early_stopping.watches
        epoch = min(trial.done + 1, trial.budget) if watches else trial.budget
        pace = self._method.pace(trial)
        seconds = self._costs[trial.mst_key] * pace
        self._timeline.expect(trial.mst_key, epoch, seconds * (epoch - trial.done))
        kept = frozenset({trial.done} if self._looks_back and trial.done else ())
        since = self._timeline.now, trial.done
        yield Allowance(trial.mst_key, epoch if watches else None, kept, since, pace)

    @property
    def _looks_back(self) -> bool:
        """True if a decision may go back to the state of an epoch that was taken note of."""
        return self._method.looks_back or self._spec.early_stopping.has_target

    # -- results ---------------------------------------------------------------------------------
    def _next_result(self, state: RunState) -> tuple[int, int] | None:
        """The next result that is known: of which trial, after which epoch, or that it has failed."""
        if self._known_results:
            return self._take_known(*self._known_results.popleft())
        if self._expected is not None:  # an earlier driver knew no more here
            return None
        for key in sorted(state.gone - self._failed_keys):
            if self.trials[key].status == WAITING:
                return key, FAILED_RESULT
        self._timeline.forget(lambda key: self.trials[key].status != RUNNING)
        is_strict = self._spec.deterministic
        for event in self._timeline.first() if is_strict else self._timeline.all():
            _, key, epoch = event
            found = self._known(state.tracks[key], epoch)
            if found is not None and self.trials[key].status == RUNNING:
                self._timeline.take(event)
                return key, found
        return None

    def _take_known(self, key: int, epoch: int) -> tuple[int, int]:
        """A result that an earlier driver took note of."""
        event = self._timeline.of(key) if self.trials[key].status == RUNNING else None
        if event is not None:
            self._timeline.take(event)
        return key, epoch

    def _known(self, track: Track, epoch: int) -> int | None:
        """The epoch of a result, or that there will be none; None where that is not known."""
        if epoch in track.scored:
            return epoch
        last = track.verdict.stopped_epoch  # by a callback of its own
        if last is not None and last < epoch:
            return last if last in track.scored else None
        return FAILED_RESULT if track.ended else None

    def _take(self, state: RunState, key: int, epoch: int) -> Iterator[_Made]:
        """Take note of a result, and do what follows from it."""
        self._results.append((key, epoch))
        trial, track = self.trials[key], state.tracks[key]
        if epoch == FAILED_RESULT:
            yield from self._failed(state, trial)
            return
        trial.done = epoch
        trial.values[epoch] = self._values(track, epoch)
        if self._reaches_target(trial):
            self._set(trial, WAITING if epoch >= trial.budget else RUNNING)
            self._unheard = key if trial.status == WAITING else 0
            self._tell(trial)
            yield from self._finish(state, Ending(f"the target is reached by {key}"))
            return
        yield from self._judged(trial, track)
        if trial.status == RUNNING:
            yield from self._expect(trial)
        else:
            self._return(trial, epoch)
            self._tell(trial)
            yield from self._observed(state, trial)

    def _failed(self, state: RunState, trial: Trial) -> Iterator[_Made]:
        """Mark a trial as failed, and let its states go."""
        self._set(trial, FAILED)
        self._sampler.failed(trial.mst_key)
        if self._looks_back:
            yield Allowance(trial.mst_key, None)
        yield from self._observed(state, trial)

    def _judged(self, trial: Trial, track: Track) -> Iterator[Decision]:
        """Status of a trial after an epoch: it runs, waits at its budget, or is stopped early."""
        if self._was_stopped(track, trial.done):
            self._set(trial, STOPPED)
        elif trial.done < self._method.full:
            rule, full = self._spec.early_stopping, self._method.full
            reason = stopping.fault(rule, trial, self.trials.values(), full)
            if reason is not None:
                self._set(trial, STOPPED)
                yield self._made(stop(trial.mst_key, trial.done, reason, detail=_rung_of(trial)))
        if trial.status == RUNNING and trial.done >= trial.budget:
            self._set(trial, WAITING)

    def _return(self, trial: Trial, epoch: int) -> None:
        """Epochs that a trial has no use for are free for others."""
        self._epochs -= trial.budget - epoch
        trial.budget = epoch

    def _was_stopped(self, track: Track, epoch: int) -> bool:
        """True if a callback of the configuration's own ends it with an epoch."""
        one = track.configuration
        if not callbacks.watches(one.fit_params):
            return False
        history = [pair for pair in track.history if pair[0] <= epoch]
        return callbacks.decide(one.monitored, one.fit_params, history).stopped_epoch is not None

    def _observed(self, state: RunState, trial: Trial) -> Iterator[_Made]:
        for end in self._method.observed(trial, self.trials):
            yield from self._end(state, end)

    def _end(self, state: RunState, end: End) -> Iterator[_Made]:
        trial = self.trials[end.mst_key]
        self._set(trial, STOPPED)
        trial.is_outranked = True
        if self._may_stop(state, end.mst_key, trial.done):
            yield self._made(stop(trial.mst_key, trial.done, end.reason, detail=_rung_of(trial)))

    def _tell(self, trial: Trial) -> None:
        """Tell the sampler of a trial that has come to its budget, or was stopped."""
        if not trial.offset:
            is_full = trial.done >= self._method.full
            values = tuple(min(value, _WORST) for value in trial.values[trial.done])
            self._sampler.observed(trial.mst_key, trial.done, values, is_full=is_full)

    def _reaches_target(self, trial: Trial) -> bool:
        if not self._is_aimed or trial.done not in trial.values:
            return False
        value = trial.values[trial.done][0]
        maximised = self._spec.objectives[0].maximise
        return stopping.has_reached(self._spec.early_stopping, value, maximised=maximised)

    def _values(self, track: Track, epoch: int) -> Values:
        """Values of the objectives after an epoch, so that less is better."""
        found = []
        for objective in self._spec.objectives:
            logs = track.measured[epoch][objective.dataset]
            value = logs[self._logged(track, objective.monitor)]
            value = -value if objective.maximise else value
            found.append(math.inf if math.isnan(value) else value)
        return tuple(found)

    def _logged(self, track: Track, monitor: str) -> str:
        """The name in the logs of a configuration that a monitor stands for."""
        text = track.configuration.compile_text
        if text not in self._monitors:
            metrics = track.configuration.monitored.metrics
            pairs = [(metric.name, metric.label) for metric in metrics]
            self._monitors[text] = monitors_of(pairs, validated=True)
        return self._monitors[text][monitor]

    # -- what others ask -------------------------------------------------------------------------
    def check(self, state: RunState, request: Request) -> None:
        """Check that a request can be followed.

        Raises:
            InvalidArgument: why not.
        """
        key, wanted = request.mst_key, request.wanted
        match wanted:
            case StopTrial():
                self._check_open(key, has_ended=self._has_ended(state, key))
            case CloneTrial():
                self._check_clone(state, key, wanted)
            case AddTrials(rows):
                for row in rows:
                    self._check_row(row.text)
            case Space():
                self._check_space(wanted)
            case Extension():
                self._check_extension(state, wanted)

    def _has_ended(self, state: RunState, key: int) -> bool:
        """True if nothing more comes of a trial, or there is none."""
        return key not in self.trials or not (
            state.tracks[key].is_alive and self.trials[key].is_open
        )

    def _check_open(self, key: int, *, has_ended: bool) -> None:
        if has_ended:
            going_on = [str(one) for one, found in self.trials.items() if found.is_open]
            raise InvalidArgument(
                f"mst_key: got {key}; allowed: a configuration that has not ended, which are "
                f"{', '.join(going_on[:20]) or 'none'}",
                hint="cerebro.trials shows them",
            )

    def _check_clone(self, state: RunState, key: int, wanted: CloneTrial) -> None:
        self._check_open(key, has_ended=key not in self.trials or key in state.gone)
        self._check_row(wanted.row_of(self.trials[key].row))
        if not _newest(state, key):
            raise InvalidArgument(
                f"mst_key: got {key}, of which no epoch is done; allowed: one that has a state",
                hint="cerebro.progress shows how far each is",
            )

    def _check_extension(self, state: RunState, wanted: Extension) -> None:
        checked_more(self._spec.method, self._spec.params, wanted.params)
        hops, tracks = state.spec.hops_an_epoch, state.tracks
        if any(one and tracks[key].done != one * hops for key, one in self._given_up.items()):
            raise InvalidArgument(
                "run_id: got a search that has ended and not made its tables yet",
                hint="cerebro.cerebro_resume makes them, and cerebro.cerebro_extend goes on then",
            )

    def _check_space(self, space: Space) -> None:
        """Check that all of a space can be trained, and explored by the method."""
        checked_model_ids(space.model_ids)
        known = self._spec.space.model_ids
        if wrong := [one for one in space.model_ids if one not in known]:
            raise InvalidArgument(
                f"model_id_list: got {wrong[0]}; allowed: those that the search began with, "
                f"{', '.join(map(str, known))}"
            )
        for row in Explorer(space).probes():
            self._check_row(row)
        self._method.check_space(self._spec, Explorer(space))

    def _check_row(self, row: ConfigurationText) -> None:
        fault = self._fault(row)
        if fault is not None:
            raise InvalidArgument(fault)

    def _answer(self, state: RunState, request: Request) -> Iterator[_Made]:
        """Only the first decision bears a name; others follow from it."""
        who, key = request.who, request.mst_key
        match request.wanted:
            case AddTrials(rows):
                yield from self._add(state, rows, who)
            case StopTrial(epoch):
                yield from self._stop(state, self.trials[key], epoch, who)
            case CloneTrial() as wanted:
                yield from self._clone(state, key, wanted, who)
            case Ending() as wanted:
                if not self._is_over:  # an earlier driver has ended it
                    yield from self._finish(state, wanted, who)
            case Space() as space:
                yield self._made(note(space, f"asked for by {who}", who))
                self._sampler.narrow(space)
                self._method.narrow(space)
            case Extension() as wanted:
                yield self._made(note(wanted, f"asked for by {who}", who))
                yield from self._extend(state, wanted)
            case _:
                raise InvalidArgument(f"action: got {request.action!r}, which no search follows")

    def _add(self, state: RunState, rows: Sequence[AddedRow], who: str) -> Iterator[_Made]:
        trials = [self._adopted(one.text, one.epochs) for one in rows]
        yield self._made(add(map(_change, trials), f"asked for by {who}", who))
        for trial in trials:
            yield from self._begin(state, trial)

    def _adopted(self, row: ConfigurationText, epochs: int | None, offset: int = 0) -> Trial:
        key = len(self.trials) + 1
        trial = Trial(key, row, self._sampler.adopt(key, row), 1, offset=offset, is_adopted=True)
        self._method.adopted(trial)
        if epochs is not None:
            trial.budget = epochs
        trial.goal = trial.budget
        self._join(trial)
        return trial

    def _stop(self, state: RunState, trial: Trial, epoch: int | None, who: str) -> Iterator[_Made]:
        key = trial.mst_key
        after = _newest(state, key) if epoch is None else epoch
        self._set(trial, STOPPED)
        if after not in trial.values:
            self._sampler.failed(key)
        yield self._made(stop(key, after, f"asked for by {who}", who, _rung_of(trial)))
        yield from self._observed(state, trial)

    def _clone(self, state: RunState, key: int, wanted: CloneTrial, who: str) -> Iterator[_Made]:
        epoch = wanted.epoch or _newest(state, key)
        offset = self.trials[key].offset + epoch
        row = wanted.row_of(self.trials[key].row)
        trial = self._adopted(row, wanted.epochs, offset)
        yield self._made(clone(_change(trial), (key, epoch), f"asked for by {who}", who))
        yield from self._begin(state, trial)

    def _extend(self, state: RunState, wanted: Extension) -> Iterator[_Made]:
        """Go on with more; those that the end of the search has stopped go on where they were."""
        self._is_over, given_up, self._given_up = False, self._given_up, {}
        self._over_for = ""
        self._is_aimed = not any(map(self._reaches_target, self.trials.values()))
        self._method.extend(wanted.params)
        self._total = self._epochs + self._method.total(self._most_configurations)
        self._max_epochs += wanted.max_epochs or 0
        self._max_trials += wanted.max_configurations or 0
        self._method.most_trials = self._max_trials
        if self._is_limited and len(self.trials) < self._max_trials:
            self._is_limited = False
            self._method.reopen()
        if self._unheard:
            key, self._unheard = self._unheard, 0
            yield from self._observed(state, self.trials[key])
        for key, epoch in given_up.items():
            trial = self.trials[key]
            if not epoch:
                yield from self._failed(state, trial)
            elif epoch < trial.budget:
                reason = f"goes on after epoch {epoch}"
                yield from self._promote(state, Continue(key, trial.budget, {}, reason))
            else:  # its last result is not taken note of yet
                self._set(trial, RUNNING)
                yield from self._begin(state, trial)

    def _finish(self, state: RunState, wanted: Ending, who: str = "") -> Iterator[_Made]:
        """Begin nothing any more; what runs is stopped where it is.

        By itself, after the last epoch that it took note of; asked, after the last one that is done.
        """
        self._is_over, self._over_for = True, wanted.reason
        reason, running = wanted.reason, sorted(self._running.values(), key=lambda one: one.mst_key)
        stopped = wanted.stopped
        if not who:
            stopped = {one.mst_key: one.done for one in running}
        elif stopped is None:
            alive = [one.mst_key for one in running if state.tracks[one.mst_key].is_alive]
            stopped = {key: _newest(state, key) for key in alive}
        yield self._made(note(Ending(reason, stopped if who else None), reason, who))
        self._timeline.drop(self._running.keys())
        for trial in running:
            self._set(trial, STOPPED)
            key, epoch = trial.mst_key, stopped.get(trial.mst_key)
            if epoch is not None and self._may_stop(state, key, epoch):
                self._given_up[key] = epoch
                yield self._made(stop(key, epoch, reason))
            else:
                self._given_up[key] = 0
                yield Allowance(key, None)

    def _made(self, decision: Decision) -> Decision:
        """A decision, with the results that were taken note of since the one before."""
        results, self._results = tuple(self._results), []
        return structs.replace(decision, results=results)


def _check_same(number: int, one: Decision, made: Decision | None) -> None:
    """Check that a decision comes out as it was stored.

    Raises:
        InvalidData: it does not.
    """
    if made is None or one.core != made.core:
        raise InvalidData(
            f"decision {number} of the run: got {_shown(one)}; the same results lead to "
            f"{'none' if made is None else _shown(made)}",
            hint="another version of Optuna or Cerebro-DB decides otherwise; "
            "cerebro.cerebro_replay(run_id) repeats decisions as they are recorded",
        )


def _shown(one: Decision) -> str:
    keys = ", ".join(str(change.mst_key) for change in one.changes[:5])
    return f"{one.action} of {keys or 'the search'}"


_WORST = 1e300


def _newest(state: RunState, mst_key: int) -> int:
    """The last epoch whose state is there; 0 for none."""
    track, hops = state.tracks[mst_key], state.spec.hops_an_epoch
    return max((one // hops for one in track.states if one and one % hops == 0), default=0)


def _change(trial: Trial) -> Change:
    place = {key: value for key, value in trial.place.items() if key != "reason"}
    detail = {"parameters": as_json(dict(trial.parameters)), **place}
    reason = str(trial.place.get("reason", ""))
    return Change(trial.mst_key, trial.budget, trial.row, detail=detail, reason=reason)


def _rung_of(trial: Trial) -> dict[str, Any]:
    return {name: trial.place[name] for name in ("bracket", "rung") if name in trial.place}


def _reason(trials: Iterable[Trial]) -> str:
    """Reason of trials that are added together."""
    return "; ".join(dict.fromkeys(str(one.place["reason"]) for one in trials))
