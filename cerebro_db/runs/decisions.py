"""Decisions of a run: checked, stored, and then applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_db.core import events
from cerebro_db.core.decisions import Add, Candidate, Clone, Decider, Decision, Promote, Stop
from cerebro_db.core.events import Decided
from cerebro_db.core.spec import TRAINING, Architecture, Configuration
from cerebro_db.core.state import RunState, Track
from cerebro_db.decide.plan import plan_epoch
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres import records as rows
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.control import transaction
from cerebro_db.postgres.records import DecisionRow, add_decision
from cerebro_db.postgres.states import StateStore
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.request import MAX_ITERATIONS
from cerebro_db.runs.stored import configuration_row


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
    """

    decider: Decider
    catalog: Catalog
    run_id: int
    maker: Maker
    architectures: Mapping[int, Architecture]
    store: StateStore

    def take(self, state: RunState) -> list[Decided]:
        """Store and apply the next decisions; returns them.

        Raises:
            InvalidArgument: one of them cannot be.
        """
        found = []
        for decision in self.decider.decide(state):
            found.append(self._stored(state, decision, state.decisions + 1))
            state.apply(found[-1])
        return found

    def _stored(self, state: RunState, decision: Decision, number: int) -> Decided:
        match decision:
            case Add(candidates):
                return self._add(state, decision, candidates, number)
            case Clone():
                return self._clone(state, decision, number)
            case Stop(mst_key, epoch):
                track = _going_on(state, mst_key)
                _check_state(state, track, epoch)
                self._store(
                    [DecisionRow(number, mst_key, rows.STOP, epoch, None, None, decision.reason)]
                )
                return events.Stopped(mst_key, epoch)
            case Promote(mst_key, budget):
                track = _going_on(state, mst_key)
                _check_budget(mst_key, budget, track.budget + 1)
                row = DecisionRow(
                    number, mst_key, rows.PROMOTE, budget, None, None, decision.reason
                )
                self._store([row])
                return events.Promoted(mst_key, budget)

    def _add(
        self, state: RunState, decision: Add, candidates: Sequence[Candidate], number: int
    ) -> Decided:
        made = self._made(state, candidates, number, is_warm=False)
        self._store(
            [
                DecisionRow(number, one.mst_key, rows.ADD, one.budget, None, None, decision.reason)
                for one in candidates
            ],
            made,
        )
        return events.Added(made)

    def _clone(self, state: RunState, decision: Clone, number: int) -> Decided:
        source = _known(state, decision.source)
        version = _check_state(state, source, decision.epoch)
        made = self._made(state, [decision.candidate], number, is_warm=True)
        (one,) = made
        row = DecisionRow(
            number, one.mst_key, rows.CLONE, one.budget, decision.source, decision.epoch,
            decision.reason,
        )  # fmt: skip
        costs, partitions = {one.mst_key: one.hop_seconds}, state.spec.partitions[TRAINING]
        first = plan_epoch(costs, partitions, state.spec.seed, 1, number)[0]
        copied = (decision.source, version), one.mst_key, first.partition_key
        self._store([row], made, copied)
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
        goal = next(iter(state.tracks.values())).configuration.goal
        return self.maker.make(
            candidates, self.architectures, goal=goal, cohort=number, is_warm=is_warm
        )

    def _store(
        self,
        decided: Sequence[DecisionRow],
        configurations: Sequence[Configuration] = (),
        copied: tuple[tuple[int, int], int, int] | None = None,
    ) -> None:
        """All that a decision leaves in the database, or nothing."""
        with transaction(self.catalog.session):
            added = [configuration_row(one) for one in configurations]
            add_decision(self.catalog, self.run_id, decided, added)
            if copied is not None:
                state, mst_key, partition_key = copied
                self.store.clone(state, mst_key, self.maker.packed, partition_key)


def _known(state: RunState, mst_key: int) -> Track:
    if mst_key not in state.tracks:
        raise InvalidArgument(
            f"mst_key: got {mst_key}; allowed: {', '.join(map(str, list(state.tracks)[:20]))}"
        )
    return state.tracks[mst_key]


def _going_on(state: RunState, mst_key: int) -> Track:
    track = _known(state, mst_key)
    if not track.is_alive:
        raise InvalidArgument(
            f"mst_key: got {mst_key}; allowed: a configuration that has not ended"
        )
    return track


def _check_state(state: RunState, track: Track, epoch: int) -> int:
    """The version of the state after an epoch, which must be there."""
    version = epoch * state.spec.hops_an_epoch
    if epoch < 1 or version not in track.states:
        hops = state.spec.hops_an_epoch
        there = sorted(one // hops for one in track.states if one and one % hops == 0)
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
