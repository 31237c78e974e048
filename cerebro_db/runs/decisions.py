"""Decisions of a run: checked, stored, and then applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cerebro_db.configs.messages import check_range
from cerebro_db.core.decisions import (
    ADD,
    CLONE,
    NOBODY,
    PROMOTE,
    STOP,
    AddTrials,
    Answer,
    Change,
    CloneTrial,
    Decision,
    Request,
)
from cerebro_db.core.events import Allowance, Decided
from cerebro_db.core.ports import Decider
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
from cerebro_db.postgres.catalog.records import add_decision
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.catalog.states import StateStore
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.requests.fitting import MAX_ITERATIONS
from cerebro_db.runs.configurations import Maker
from cerebro_db.wire import encode

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

    @property
    def waits(self) -> bool:
        """True while the run waits for configurations of others."""
        return self.decider.waits

    def take(self, state: RunState) -> list[Decided]:
        """Store and apply the next decisions; returns them.

        Raises:
            InvalidArgument: one of them cannot be.
        """
        return self._taken(state, self.decider.decide(state), None)

    def check(self, state: RunState, request: Request) -> None:
        """Check that a request can be followed.

        Raises:
            InvalidArgument: why not; or others of ``REFUSALS``.
        """
        self._check_trainable(state, request)
        self.decider.check(state, request)

    def follow(self, state: RunState, request: Request) -> list[Decided]:
        """Store and apply what somebody asks for, which was checked; the first decision answers it."""
        return self._taken(state, self.decider.follow(state, request), request)

    def _taken(
        self, state: RunState, made: Iterable[Decision | Allowance], request: Request | None
    ) -> list[Decided]:
        found: list[Decided] = []
        for decision in made:
            if isinstance(decision, Allowance):
                state.apply(decision)
                continue
            answered = request if not found else None
            try:
                found.append(self._stored(state, decision, answered))
            except REFUSALS as error:
                if not self.decider.gives_up(error) or answered is not None:
                    raise
                return [*found, *self.take(state)]  # which ends the search
            state.apply(found[-1])
        if found:
            self.store.expect(len(state.tracks))
        return found

    def _check_trainable(self, state: RunState, request: Request) -> None:
        """Check that the workers of the run can train configurations that somebody asks for."""
        wanted, found = request.wanted, []
        if isinstance(wanted, AddTrials):
            found = [Change(NOBODY, one.epochs or 1, one.text) for one in wanted.rows]
        elif isinstance(wanted, CloneTrial) and request.mst_key in state.tracks:
            row = wanted.row_of(state.tracks[request.mst_key].configuration.row)
            found = [Change(NOBODY, wanted.epochs or 1, row)]
        for one in found:
            check_range("num_iterations", one.epochs, 1, MAX_ITERATIONS)
            fault = self.maker.fault(one.text, self.architectures)
            if fault is not None:
                raise InvalidArgument(fault)
        self.admit(self.maker.make(found, self.architectures, goal=self._goal(state)))

    def _stored(self, state: RunState, decision: Decision, request: Request | None) -> Decided:
        """The decision, checked and stored: all that it leaves in the database, or nothing."""
        number, forgotten = state.decisions + 1, self._check(state, decision)
        made = self._made(state, decision, number) if decision.action in (ADD, CLONE) else ()
        answer: tuple[int, str | None] | None = None
        if request is not None and request.request_id:
            keys = tuple(one.mst_key for one in decision.changes) or (NOBODY,)
            text = encode(Answer(keys))
            answer = request.request_id, text if request.is_awaited else None
        with transaction(self.catalog.session):
            add_decision(self.catalog, self.run_id, number, decision, made, answer, forgotten)
            if decision.action == CLONE:
                self._copy_state(state, decision.only, made[0], number)
        return Decided(decision, made)

    def _check(self, state: RunState, decision: Decision) -> list[tuple[int, int]]:
        """Check that a decision can be; returns the configurations and epochs whose results count no more."""
        if decision.action == CLONE:
            source, epoch = decision.only.origin
            _check_state(state, _known(state, source), epoch)
        elif decision.action == STOP:
            mst_key, epoch = decision.only.mst_key, decision.only.epochs
            track = _stoppable(state, mst_key)
            if epoch:
                _check_state(state, track, epoch)
            return [(mst_key, one) for one in track.measured_after(epoch)]
        elif decision.action == PROMOTE:
            track = _promotable(state, decision.only.mst_key)
            _check_budget(decision.only, track.budget + 1)
        return []

    def _copy_state(
        self, state: RunState, change: Change, made: Configuration, number: int
    ) -> None:
        """Put the state with which a clone begins where its first hop is."""
        source, epoch = change.origin
        costs, partitions = {made.mst_key: made.hop_seconds}, state.spec.partitions[TRAINING]
        first = plan_epoch(costs, partitions, state.spec.seed, 1, number)[0]
        copied = source, epoch * state.spec.hops_an_epoch
        self.store.clone(copied, made.mst_key, self.maker.packed, first.partition_key)

    def _made(self, state: RunState, decision: Decision, number: int) -> tuple[Configuration, ...]:
        """The configurations that join the run."""
        for one in decision.changes:
            if one.mst_key in state.tracks:
                raise InvalidArgument(
                    f"mst_key: got {one.mst_key}; allowed: one that the run has not had"
                )
            if one.text.model_id not in self.architectures:
                raise InvalidArgument(
                    f"model_id: got {one.text.model_id}; allowed: "
                    f"{', '.join(map(str, sorted(self.architectures)))}, the models of the run"
                )
            _check_budget(one, 1)
        return self.maker.make(
            decision.changes,
            self.architectures,
            goal=self._goal(state),
            cohort=number,
            is_warm=decision.action == CLONE,
        )

    def _goal(self, state: RunState) -> str:
        return self.goal or next(iter(state.tracks.values())).configuration.goal


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


def _check_budget(one: Change, least: int) -> None:
    if not least <= one.epochs <= MAX_ITERATIONS:
        raise InvalidArgument(
            f"epochs of configuration {one.mst_key}: got {one.epochs}; allowed: {least} to {MAX_ITERATIONS}"
        )
