"""A search made again from its decisions, whatever they came from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cerebro_db.core.decisions import (
    FAILED,
    Add,
    Asked,
    Candidate,
    Clone,
    Decision,
    Note,
    Outlook,
    Promote,
    Stop,
)
from cerebro_db.core.events import Held
from cerebro_db.core.state import RunState
from cerebro_db.decide.search.recorded import ADD, CLONE, PROMOTE, STOP, Change, Recorded
from cerebro_db.errors import InvalidArgument


class Replay:
    """Makes recorded decisions, each as soon as the results are there that it was based on.

    Args:
        recorded: decisions in their order, from the first.
    """

    is_open = True

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self._recorded = recorded
        self._held: dict[int, int | None] = {}
        self._seen = -1

    def decide(self, state: RunState) -> Iterator[Decision | Held]:
        """The next decisions whose results are there."""
        if self._seen != state.decisions:
            yield from self._holding(state)
        while state.decisions < len(self._recorded):
            one = self._recorded[state.decisions]
            if not self._is_due(state, one):
                return
            yield _decision(one)
            yield from self._holding(state)

    def asked(self, state: RunState, request: Asked) -> Iterator[Decision | Held]:
        """Nothing."""
        yield from ()

    def gives_up(self, error: Exception) -> bool:
        """False: what was decided once can be."""
        return False

    def shortfall(self, state: RunState) -> str | None:
        """None: the search that it repeats has told."""
        return None

    def outlook(self) -> Outlook:
        """That of the search that it repeats."""
        budgets = {
            change.mst_key: change.epochs for one in self._recorded for change in one.changes
        }
        return Outlook(len(budgets), sum(budgets.values()))

    def check(self, state: RunState, request: Asked) -> None:
        """Refuses everything."""
        raise InvalidArgument(
            f"run_id: got a run that repeats the decisions of another one, asked for {request.action!r}; "
            "allowed: a search"
        )

    def _is_due(self, state: RunState, one: Recorded) -> bool:
        """True if its results are there, and the states that it goes back to."""
        for key, epoch in one.heard:
            track = state.tracks[key]
            if track.ended:
                continue
            if epoch == FAILED:  # by somebody, then: it is as far as it comes
                if track.done < track.budget * state.spec.hops_an_epoch:
                    return False
            elif epoch not in track.scored:
                return False
        hops = state.spec.hops_an_epoch
        return all(
            state.tracks[key].ended or not epoch or epoch * hops in state.tracks[key].states
            for key, epoch in _wanted(one)
        )

    def _holding(self, state: RunState) -> Iterator[Held]:
        """No configuration goes beyond an epoch that a later decision goes back to."""
        self._seen = state.decisions
        wanted: dict[int, list[int]] = defaultdict(list)
        for one in self._recorded[state.decisions :]:
            for key, epoch in _wanted(one):
                wanted[key].append(epoch)
        for key in state.tracks:
            after = min(wanted[key]) if key in wanted else None
            if self._held.get(key, -1) != after:
                self._held[key] = after
                kept = frozenset() if after is None else frozenset({after})
                yield Held(key, after, kept)


def _wanted(one: Recorded) -> Iterator[tuple[int, int]]:
    """Configurations and epochs whose states a decision needs."""
    for change in one.changes:
        if one.action == STOP:
            yield change.mst_key, change.epochs
        elif one.action == CLONE:
            assert change.source is not None
            assert change.source_epoch is not None
            yield change.source, change.source_epoch


def _decision(one: Recorded) -> Decision:
    """A decision as it was."""
    more: dict[str, Any] = {"who": one.who, "heard": one.heard}
    if one.action == ADD:
        return Add(tuple(map(_candidate, one.changes)), one.reason, **more)
    if one.action not in (CLONE, STOP, PROMOTE):
        return Note(one.action, one.reason, detail=one.detail, **more)
    (change,) = one.changes
    if one.action == STOP:
        return Stop(change.mst_key, change.epochs, one.reason, detail=change.detail, **more)
    if one.action == PROMOTE:
        return Promote(change.mst_key, change.epochs, one.reason, detail=change.detail, **more)
    assert change.source is not None
    assert change.source_epoch is not None
    return Clone(change.source, change.source_epoch, _candidate(change), one.reason, **more)


def _candidate(change: Change) -> Candidate:
    assert change.row is not None
    return Candidate(change.mst_key, *change.row, change.epochs, change.detail, change.reason)


def to_json(one: Recorded) -> Mapping[str, Any]:
    """A recorded decision as a value of JSON."""
    changes = [
        [*(getattr(each, name) for name in _CHANGE), dict(each.detail), each.reason]
        for each in one.changes
    ]
    return {
        "action": one.action,
        "who": one.who,
        "heard": [list(pair) for pair in one.heard],
        "changes": changes,
        "reason": one.reason,
        "detail": dict(one.detail),
    }


_CHANGE = ("mst_key", "epochs", "source", "source_epoch", "row")


def from_json(values: Sequence[Mapping[str, Any]]) -> tuple[Recorded, ...]:
    """Recorded decisions that ``to_json`` has made values of."""
    return tuple(
        Recorded(
            number,
            one["action"],
            one["who"],
            tuple((key, epoch) for key, epoch in one["heard"]),
            tuple(_change(*each) for each in one["changes"]),
            one["reason"],
            one["detail"],
        )
        for number, one in enumerate(values, 1)
    )


def _change(
    mst_key: int,
    epochs: int,
    source: int | None,
    source_epoch: int | None,
    row: Sequence[Any] | None,
    detail: Mapping[str, Any],
    reason: str,
) -> Change:
    texts = None if row is None else (row[0], row[1], row[2])
    return Change(mst_key, epochs, source, source_epoch, texts, detail, reason)
