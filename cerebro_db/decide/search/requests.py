"""Requests of other sessions to a search, and of its clock: their check, and the decisions that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerebro_db.configs.grids.model_selection import checked_model_ids
from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.decisions import (
    AddedRow,
    AddTrials,
    CloneTrial,
    Ending,
    Extension,
    Request,
    StopTrial,
    Wanted,
    add,
    clone,
    note,
    stop,
)
from cerebro_db.core.spec import Space
from cerebro_db.core.state import RunState
from cerebro_db.core.statuses import STOPPED
from cerebro_db.decide.search.course import Course, Made, change_of, newest, rung_of
from cerebro_db.decide.search.methods import checked_more
from cerebro_db.decide.search.space import Explorer
from cerebro_db.decide.search.trials import RUNNING, Continue, Trial
from cerebro_db.errors import InvalidArgument


class Requests:
    """Follower of requests, which change the course of a search."""

    def __init__(self, course: Course) -> None:
        self._course, self._ledger = course, course.ledger

    def check(self, state: RunState, request: Request) -> None:
        """Check that a request can be followed.

        Raises:
            InvalidArgument: why not.
        """
        key, wanted = request.mst_key, request.wanted
        trials = self._ledger.trials
        match wanted:
            case StopTrial():
                is_there = key in trials and state.tracks[key].is_alive and trials[key].is_open
                self._check_open(key, has_ended=not is_there)
            case CloneTrial():
                self._check_clone(state, key, wanted)
            case AddTrials(rows):
                self._check_room(len(rows))
                for row in rows:
                    self._check_row(row.text)
            case _ if request.request_id:  # not of the clock, which ends a search that goes on
                self._check_search(state, wanted)

    def _check_clone(self, state: RunState, key: int, wanted: CloneTrial) -> None:
        trials = self._ledger.trials
        self._check_open(key, has_ended=key not in trials or key in state.gone)
        self._check_room(1)
        self._check_row(wanted.row_of(trials[key].row))
        if not newest(state, key):
            raise InvalidArgument(
                f"mst_key: got {key}, of which no epoch is done; allowed: one that has a state",
                hint="cerebro.progress shows how far each is",
            )

    def _check_search(self, state: RunState, wanted: Wanted) -> None:
        """Check what somebody wants of the search as a whole."""
        match wanted:
            case Ending() if self._ledger.ending is not None:
                raise InvalidArgument(
                    f"run_id: got a search that has ended: {self._ledger.ending.reason}; allowed: one that goes on"
                )
            case Space():
                self._check_space(wanted)
            case Extension():
                self._check_extension(state, wanted)

    def _check_open(self, key: int, *, has_ended: bool) -> None:
        if has_ended:
            going_on = [str(one) for one, found in self._ledger.trials.items() if found.is_open]
            raise InvalidArgument(
                f"mst_key: got {key}; allowed: a configuration that has not ended, which are "
                f"{', '.join(going_on[:20]) or 'none'}",
                hint="cerebro.trials shows them",
            )

    def _check_room(self, more: int) -> None:
        """Check that a search whose trials are all of others may have more of them."""
        there, most = len(self._ledger.trials), self._ledger.most_trials
        if self._course.method.waits and there + more > most:
            raise InvalidArgument(
                f"got {more} configurations for a search that has {there} of max_configs := {most}; "
                f"allowed: {most - there} more",
                hint="cerebro.cerebro_extend, with max_configs, goes on with a search that has ended",
            )

    def _check_extension(self, state: RunState, wanted: Extension) -> None:
        spec, given_up = self._course.spec, self._course.given_up
        checked_more(spec.method, spec.params, wanted.params)
        hops, tracks = state.spec.hops_an_epoch, state.tracks
        if any(one and tracks[key].done != one * hops for key, one in given_up.items()):
            raise InvalidArgument(
                "run_id: got a search that has ended and not made its tables yet",
                hint="cerebro.cerebro_resume makes them, and cerebro.cerebro_extend goes on then",
            )

    def _check_space(self, space: Space) -> None:
        """Check that all of a space can be trained, and explored by the method."""
        checked_model_ids(space.model_ids)
        known = self._course.spec.space.model_ids
        if wrong := [one for one in space.model_ids if one not in known]:
            raise InvalidArgument(
                f"model_id_list: got {wrong[0]}; allowed: those that the search began with, "
                f"{', '.join(map(str, known))}"
            )
        for row in Explorer(space).probes():
            self._check_row(row)
        self._course.method.check_space(self._course.spec, Explorer(space))

    def _check_row(self, row: ConfigurationText) -> None:
        fault = self._course.fault(row)
        if fault is not None:
            raise InvalidArgument(fault)

    def follow(self, state: RunState, request: Request) -> Iterator[Made]:
        """Decisions that follow from a request that was checked; only the first one bears a name."""
        course, who, key = self._course, request.who, request.mst_key
        match request.wanted:
            case AddTrials(rows):
                yield from self._add(state, rows, who)
            case StopTrial(epoch):
                yield from self._stop(state, self._ledger.trials[key], epoch, who)
            case CloneTrial() as wanted:
                yield from self._clone(state, key, wanted, who)
            case Ending() as wanted:
                if self._ledger.ending is None:  # an earlier driver has ended it
                    yield from course.finish(state, wanted, who)
            case Space() as space:
                yield course.made(note(space, f"asked for by {who}", who))
                course.sampler.narrow(space)
                course.method.narrow(space)
            case Extension() as wanted:
                yield course.made(note(wanted, f"asked for by {who}", who))
                yield from self._extend(state, wanted)
            case _:
                raise InvalidArgument(f"action: got {request.action!r}, which no search follows")

    def _add(self, state: RunState, rows: Sequence[AddedRow], who: str) -> Iterator[Made]:
        trials = [self._adopted(one.text, one.epochs) for one in rows]
        yield self._course.made(add(map(change_of, trials), f"asked for by {who}", who))
        for trial in trials:
            yield from self._course.begin(state, trial)

    def _adopted(self, row: ConfigurationText, epochs: int | None, offset: int = 0) -> Trial:
        key = len(self._ledger.trials) + 1
        parameters = self._course.sampler.adopt(key, row)
        trial = Trial(key, row, parameters, 1, offset=offset, is_adopted=True)
        self._course.method.adopted(trial)
        if epochs is not None:
            trial.budget = epochs
        trial.goal = trial.budget
        self._ledger.join(trial)
        return trial

    def _stop(self, state: RunState, trial: Trial, epoch: int | None, who: str) -> Iterator[Made]:
        key = trial.mst_key
        after = newest(state, key) if epoch is None else epoch
        self._ledger.set(trial, STOPPED)
        if after not in trial.values:
            self._course.sampler.failed(key)
        yield self._course.made(stop(key, after, f"asked for by {who}", who, rung_of(trial)))
        yield from self._course.observed(state, trial)

    def _clone(self, state: RunState, key: int, wanted: CloneTrial, who: str) -> Iterator[Made]:
        epoch = wanted.epoch or newest(state, key)
        source = self._ledger.trials[key]
        trial = self._adopted(wanted.row_of(source.row), wanted.epochs, source.offset + epoch)
        made = clone(change_of(trial), (key, epoch), f"asked for by {who}", who)
        yield self._course.made(made)
        yield from self._course.begin(state, trial)

    def _extend(self, state: RunState, wanted: Extension) -> Iterator[Made]:
        """Go on with more; those that the end of the search has stopped go on where they were."""
        course, trials = self._course, self._ledger.trials
        given_up, course.given_up = course.given_up, {}
        course.aim_again()
        self._ledger.extend(wanted)
        if course.unobserved:
            key, course.unobserved = course.unobserved, 0
            yield from course.observed(state, trials[key])
        for key, epoch in given_up.items():
            trial = trials[key]
            if not epoch:
                yield from course.failed(state, trial)
            elif epoch < trial.budget:
                reason = f"goes on after epoch {epoch}"
                yield from course.promote(state, Continue(key, trial.budget, {}, reason))
            else:  # its last result is not taken note of yet
                self._ledger.set(trial, RUNNING)
                yield from course.begin(state, trial)
