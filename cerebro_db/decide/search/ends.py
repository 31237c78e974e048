"""Trials of a search that were trained to its last epochs, by its stored decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cerebro_db.core.decisions import ADD, CLONE, EXTEND, STOP, Decision
from cerebro_db.core.search import SearchSpec
from cerebro_db.decide.search.methods import METHODS


def short_trials(
    spec: SearchSpec, stored: Sequence[Decision], trained: Mapping[int, int]
) -> set[int]:
    """Keys of trials that have a model and were trained no further, though not to the last epochs.

    Who has added a trial with epochs of its own has it trained to its end with these.

    Args:
        spec: of the search.
        stored: all of its decisions.
        trained: epochs of the trials that have not failed.
    """
    method = METHODS[spec.method]
    end = method.last_epochs(spec.params)
    before: dict[int, int] = {}
    own: dict[int, int] = {}
    stopped: set[int] = set()
    for one in stored:
        if one.action == EXTEND:
            params = one.detail.get("params", {})
            end = max(end, method.last_epochs({**spec.params, **params}))
        for change in one.changes:
            key = change.mst_key
            stopped.discard(key)
            if one.action == STOP:
                stopped.add(key)
            if one.action == CLONE and change.source is not None:
                before[key] = before.get(change.source, 0) + (change.source_epoch or 0)
            if one.who and one.action in (ADD, CLONE) and not method.adopts:
                own[key] = change.epochs
    return {
        key
        for key, epochs in trained.items()
        if key in stopped or (before.get(key, 0) + epochs < end and epochs < own.get(key, end))
    }
