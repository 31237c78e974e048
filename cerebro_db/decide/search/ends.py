"""Trials of a search that were trained to its last epochs, by its stored decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_db.configs.grids.brackets import brackets
from cerebro_db.configs.grids.search_methods import ASHA, BOHB, HYPERBAND, PBT
from cerebro_db.core.decisions import ADD, CLONE, EXTEND, STOP, Decision
from cerebro_db.core.search import SearchSpec


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
    end = last_epochs(spec.method, spec.params)
    before: dict[int, int] = {}
    own: dict[int, int] = {}
    stopped: set[int] = set()
    for one in stored:
        if one.action == EXTEND:
            params = one.detail.get("params", {})
            end = max(end, last_epochs(spec.method, {**spec.params, **params}))
        for change in one.changes:
            key = change.mst_key
            stopped.discard(key)
            if one.action == STOP:
                stopped.add(key)
            if one.action == CLONE and change.source is not None:
                before[key] = before.get(change.source, 0) + (change.source_epoch or 0)
            # With these methods what others add takes part like any other.
            if one.who and one.action in (ADD, CLONE) and spec.method not in (ASHA, PBT):
                own[key] = change.epochs
    return {
        key
        for key, epochs in trained.items()
        if key in stopped or (before.get(key, 0) + epochs < end and epochs < own.get(key, end))
    }


def last_epochs(method: str, params: Mapping[str, Any]) -> int:
    """Epochs that the best trial comes to."""
    if method in (HYPERBAND, BOHB):
        found = brackets(params["R"], params["eta"], params["skip_last"])
        return max(one.rungs[-1].epochs for one in found)
    return int(params["R"] if "R" in params else params["num_iterations"])
