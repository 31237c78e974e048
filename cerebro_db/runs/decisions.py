"""Decisions of a run: checked, stored, and then applied."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.configs.messages import check_range
from cerebro_db.core import events
from cerebro_db.core.decisions import (
    NOBODY,
    Add,
    Asked,
    Candidate,
    Clone,
    Decider,
    Decision,
    Note,
    Promote,
    Stop,
)
from cerebro_db.core.events import Decided, Held
from cerebro_db.core.spec import TRAINING, Architecture, Configuration
from cerebro_db.core.state import RunState, Track
from cerebro_db.decide.plan import plan_epoch
from cerebro_db.errors import (
    ConfigurationFailed,
    InvalidArchitecture,
    InvalidArgument,
    MissingLibrary,
    MissingPackage,
    NotSupported,
    OutOfMemory,
)
from cerebro_db.postgres import records as rows
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.control import transaction
from cerebro_db.postgres.records import DecisionRow, add_decision
from cerebro_db.postgres.states import StateStore
from cerebro_db.requests.fitting import MAX_ITERATIONS
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.stored import configuration_row

REFUSALS = (
    ConfigurationFailed, InvalidArchitecture, InvalidArgument, MissingLibrary, MissingPackage,
    NotSupported, OutOfMemory,
)  # fmt: skip
"""Errors that are the fault of a request, and not of the run."""


@dataclass(frozen=True)
class Decisions:
    """Decisions of a decider, stored before they take effect.

    Attributes:
        decider: of the run.
        catalog: of the driver.
        run_id: which run.
        maker: of configurations.
        architectures: of the run, by model_id.
        store: of states.
        goal: by which configurations are ranked; None for that of those that there are.
        admit: refuses configurations that somebody asks for and that workers cannot train.
    """

    decider: Decider
    catalog: Catalog
    run_id: int
    maker: Maker
    architectures: Mapping[int, Architecture]
    store: StateStore
    goal: str | None = None
    admit: Callable[[Sequence[Configuration]], None] = lambda configurations: None

    def take(self, state: RunState) -> list[Decided]:
        """Store and apply the next decisions; returns them.

        Raises:
            InvalidArgument: one of them cannot be.
        """
        return self._taken(state, self.decider.decide(state), None)

    def check(self, state: RunState, request: Asked) -> None:
        """Check that a request can be followed.

        Raises:
            InvalidArgument: why not; or others of ``REFUSALS``.
        """
        self._check(state, request)
        self.decider.check(state, request)

    def follow(self, state: RunState, request: Asked) -> list[Decided]:
        """Store and apply what somebody asks for, which was checked; the first decision answers it."""
        return self._taken(state, self.decider.asked(state, request), request)

    def _taken(
        self, state: RunState, made: Iterable[Decision | Held], request: Asked | None
    ) -> list[Decided]:
        found: list[Decided] = []
        for decision in made:
            if isinstance(decision, Held):
                state.apply(decision)
                continue
            answered = request if not found else None
            try:
                found.append(self._stored(state, decision, state.decisions + 1, answered))
            except REFUSALS as error:
                if not self.decider.gives_up(error) or answered is not None:
                    raise
                return [*found, *self.take(state)]  # which ends the search
            state.apply(found[-1])
        if found:
            self.store.expect(len(state.tracks))
        return found

    def _check(self, state: RunState, request: Asked) -> None:
        """Check that the workers of the run can train configurations that somebody asks for."""
        asked = [
            Candidate(NOBODY, model_id, compile_params, fit_params, epochs or 1)
            for model_id, compile_params, fit_params, epochs in request.detail.get("rows", ())
        ]
        if request.action == "clone" and request.mst_key in state.tracks:
            one, given = state.tracks[request.mst_key].configuration, request.detail.get
            compile_params, fit_params = given("compile_params"), given("fit_params")
            asked = [
                Candidate(
                    NOBODY,
                    one.architecture.model_id,
                    one.compile_text if compile_params is None else compile_params,
                    one.fit_text if fit_params is None else fit_params,
                    given("epochs") or 1,
                )
            ]
        for candidate in asked:
            check_range("num_iterations", candidate.budget, 1, MAX_ITERATIONS)
            fault = self.maker.fault(candidate, self.architectures)
            if fault is not None:
                raise InvalidArgument(fault)
        self.admit(self.maker.make(asked, self.architectures, goal=self._goal(state)))

    def _stored(
        self, state: RunState, decision: Decision, number: int, request: Asked | None
    ) -> Decided:
        match decision:
            case Add(candidates):
                return self._add(state, decision, candidates, number, request)
            case Clone():
                return self._clone(state, decision, number, request)
            case Stop(mst_key, epoch, reason):
                track = _stoppable(state, mst_key)
                if epoch:
                    _check_state(state, track, epoch)
                later = [(mst_key, one) for one in track.measured_after(epoch)]
                row = _row(decision, number, mst_key, rows.STOP, epoch)
                self._store([row], request=request, forgotten=later)
                return events.Stopped(mst_key, epoch, reason)
            case Promote(mst_key, budget):
                track = _promotable(state, mst_key)
                _check_budget(mst_key, budget, track.budget + 1)
                self._store([_row(decision, number, mst_key, rows.PROMOTE, budget)])
                return events.Promoted(mst_key, budget)
            case Note(action):
                self._store([_row(decision, number, NOBODY, action, 0)], request=request)
                return events.Noted()

    def _add(
        self,
        state: RunState,
        decision: Add,
        candidates: Sequence[Candidate],
        number: int,
        request: Asked | None,
    ) -> Decided:
        made = self._made(state, candidates, number, is_warm=False)
        # What the decision is based on is in its first row, that of the lowest mst_key.
        first, bare = min(one.mst_key for one in candidates), replace(decision, heard=())
        found = [
            replace(
                _row(
                    decision if one.mst_key == first else bare,
                    number, one.mst_key, rows.ADD, one.budget, one.detail,
                ),
                reason=one.reason or decision.reason,
            )
            for one in candidates
        ]  # fmt: skip
        self._store(found, made, request=request)
        return events.Added(made)

    def _clone(
        self, state: RunState, decision: Clone, number: int, request: Asked | None
    ) -> Decided:
        source = _known(state, decision.source)
        version = _check_state(state, source, decision.epoch)
        made = self._made(state, [decision.candidate], number, is_warm=True)
        (one,) = made
        row = _row(
            decision, number, one.mst_key, rows.CLONE, one.budget, decision.candidate.detail,
            (decision.source, decision.epoch),
        )  # fmt: skip
        costs, partitions = {one.mst_key: one.hop_seconds}, state.spec.partitions[TRAINING]
        first = plan_epoch(costs, partitions, state.spec.seed, 1, number)[0]
        copied = (decision.source, version), one.mst_key, first.partition_key
        self._store([row], made, copied, request)
        return events.Cloned(one, decision.source, decision.epoch)

    def _made(
        self, state: RunState, candidates: Sequence[Candidate], number: int, *, is_warm: bool
    ) -> tuple[Configuration, ...]:
        for one in candidates:
            if one.mst_key in state.tracks:
                raise InvalidArgument(
                    f"mst_key: got {one.mst_key}; allowed: one that the run has not had"
                )
            if one.model_id not in self.architectures:
                raise InvalidArgument(
                    f"model_id: got {one.model_id}; allowed: "
                    f"{', '.join(map(str, sorted(self.architectures)))}, the models of the run"
                )
            _check_budget(one.mst_key, one.budget, 1)
        return self.maker.make(
            candidates, self.architectures, goal=self._goal(state), cohort=number, is_warm=is_warm
        )

    def _goal(self, state: RunState) -> str:
        return self.goal or next(iter(state.tracks.values())).configuration.goal

    def _store(
        self,
        decided: Sequence[DecisionRow],
        configurations: Sequence[Configuration] = (),
        copied: tuple[tuple[int, int], int, int] | None = None,
        request: Asked | None = None,
        forgotten: Sequence[tuple[int, int]] = (),
    ) -> None:
        """All that a decision leaves in the database, or nothing."""
        answer: tuple[int, str | None] | None = None
        if request is not None and request.request_id:
            text = json.dumps({"mst_keys": [one.mst_key for one in decided]})
            answer = request.request_id, text if request.is_awaited else None
        with transaction(self.catalog.session):
            added = [configuration_row(one) for one in configurations]
            add_decision(self.catalog, self.run_id, decided, added, answer, forgotten)
            if copied is not None:
                state, mst_key, partition_key = copied
                self.store.clone(state, mst_key, self.maker.packed, partition_key)


def _row(
    decision: Decision,
    number: int,
    mst_key: int,
    action: str,
    epochs: int,
    detail: Mapping[str, Any] | None = None,
    source: tuple[int | None, int | None] = (None, None),
) -> DecisionRow:
    """A row of a decision, with what that is based on."""
    text = json.dumps(dict(decision.detail if detail is None else detail))
    return DecisionRow(
        number, mst_key, action, epochs, *source, decision.reason, decision.who, text,
        json.dumps(decision.heard),
    )  # fmt: skip


def _known(state: RunState, mst_key: int) -> Track:
    if mst_key not in state.tracks:
        raise InvalidArgument(
            f"mst_key: got {mst_key}; allowed: {', '.join(map(str, list(state.tracks)[:20]))}"
        )
    return state.tracks[mst_key]


def _stoppable(state: RunState, mst_key: int) -> Track:
    """A configuration that goes on, or has failed after the epoch whose model it shall have."""
    track = _known(state, mst_key)
    if not (track.is_alive or (track.ended and track.ended[0] == "failed")):
        raise _has_ended(mst_key)
    return track


def _promotable(state: RunState, mst_key: int) -> Track:
    """A configuration that goes on, or was stopped and has its state."""
    track = _known(state, mst_key)
    if track.ended:
        raise _has_ended(mst_key)
    if track.verdict.stopped_epoch is not None:
        _check_state(state, track, track.verdict.stopped_epoch)
    return track


def _has_ended(mst_key: int) -> InvalidArgument:
    return InvalidArgument(f"mst_key: got {mst_key}; allowed: a configuration that has not ended")


def _check_state(state: RunState, track: Track, epoch: int) -> int:
    """The version of the state after an epoch, which must be there."""
    version = epoch * state.spec.hops_an_epoch
    if epoch < 1 or version not in track.states:
        hops = state.spec.hops_an_epoch
        there = sorted(one // hops for one in track.states if one > 0 and one % hops == 0)
        raise InvalidArgument(
            f"epoch of configuration {track.configuration.mst_key}: got {epoch}; allowed: one whose "
            f"state is there, which is {', '.join(map(str, there)) or 'none'}"
        )
    return version


def _check_budget(mst_key: int, budget: int, least: int) -> None:
    if not least <= budget <= MAX_ITERATIONS:
        raise InvalidArgument(
            f"epochs of configuration {mst_key}: got {budget}; allowed: {least} to {MAX_ITERATIONS}"
        )
