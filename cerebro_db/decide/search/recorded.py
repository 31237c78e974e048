"""Decisions that an earlier driver of a search has stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.core.decisions import (
    NOBODY,
    Add,
    Asked,
    Clone,
    Decision,
    Heard,
    Note,
    Promote,
    Stop,
)
from cerebro_db.errors import InvalidData

ADD, CLONE, STOP, PROMOTE = "add", "clone", "stop", "promote"


@dataclass(frozen=True)
class Change:
    """Change of one configuration by a decision.

    Attributes:
        epochs: the budget; of stop, the epoch whose state is the model.
        source, source_epoch: of clone, whose state after which epoch.
        row: of add and clone, the configuration as in a table of configurations.
        detail: what a search knows of it.
        reason: why.
    """

    mst_key: int
    epochs: int
    source: int | None = None
    source_epoch: int | None = None
    row: tuple[int, str, str] | None = None
    detail: Mapping[str, Any] = field(default_factory=dict, compare=False)
    reason: str = field(default="", compare=False)


@dataclass(frozen=True)
class Recorded:
    """A decision.

    Attributes:
        who: the role that asked for it; empty for the search itself.
        heard: results on which it is based, beside those of earlier decisions.
        changes: by mst_key; none of a decision about the search as a whole.
        detail: what was asked for, or what is known of it.
    """

    number: int
    action: str
    who: str
    heard: Heard
    changes: tuple[Change, ...]
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_asked(self) -> Asked:
        """The request that it follows."""
        if self.action == ADD:
            rows = [[*(one.row or ()), one.epochs] for one in self.changes]
            return Asked(0, ADD, NOBODY, self.who, {"rows": rows})
        if self.action == CLONE:
            (one,) = self.changes
            _, compile_params, fit_params = one.row or (0, "", "")
            detail = {
                "compile_params": compile_params,
                "fit_params": fit_params,
                "epochs": one.epochs,
                "epoch": one.source_epoch,
            }
            return Asked(0, CLONE, one.source or NOBODY, self.who, detail)
        if self.action == STOP:
            (one,) = self.changes
            return Asked(0, STOP, one.mst_key, self.who, {"epoch": one.epochs})
        return Asked(0, self.action, NOBODY, self.who, self.detail)


def changes_of(decision: Decision) -> tuple[str, tuple[Change, ...]]:
    """The action of a decision, and what it changes."""
    match decision:
        case Add(candidates):
            found = [
                Change(
                    one.mst_key, one.budget, row=(one.model_id, one.compile_params, one.fit_params)
                )
                for one in candidates
            ]
            return ADD, tuple(sorted(found, key=lambda one: one.mst_key))
        case Clone(source, epoch, one):
            row = one.model_id, one.compile_params, one.fit_params
            return CLONE, (Change(one.mst_key, one.budget, source, epoch, row),)
        case Stop(mst_key, epoch):
            return STOP, (Change(mst_key, epoch),)
        case Promote(mst_key, budget):
            return PROMOTE, (Change(mst_key, budget),)
        case Note(action):
            return action, ()


def check_same(one: Recorded, made: Decision | None) -> None:
    """Check that a decision comes out as it was recorded.

    Raises:
        InvalidData: it does not.
    """
    if made is None or (one.action, one.changes) != changes_of(made):
        raise InvalidData(
            f"decision {one.number} of the run: got {one.action} of "
            f"{', '.join(str(change.mst_key) for change in one.changes[:5]) or 'the search'}; the same "
            f"results lead to {'none' if made is None else _shown(made)}",
            hint="another version of Optuna or Cerebro-DB decides otherwise; "
            "cerebro.cerebro_replay(run_id) repeats decisions as they are recorded",
        )


def _shown(decision: Decision) -> str:
    action, changes = changes_of(decision)
    return f"{action} of {', '.join(str(one.mst_key) for one in changes[:5]) or 'the search'}"
