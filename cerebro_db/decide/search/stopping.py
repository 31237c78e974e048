"""Early stopping of trials by their values and those of others, and which were trained to the last epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from cerebro_db.core.decisions import ADD, CLONE, EXTEND, STOP, Decision
from cerebro_db.core.search import EarlyStopping, SearchSpec
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide.search.methods import METHODS
from cerebro_db.decide.search.trials import Trial


def has_reached(rule: EarlyStopping, value: float, *, maximised: bool) -> bool:
    """True if a value, less of which is better, is as good as the target."""
    if rule.target is None:
        return False
    return value <= (-rule.target if maximised else rule.target)


def fault(rule: EarlyStopping, trial: Trial, trials: Iterable[Trial], full: int) -> str | None:
    """Reason to stop a trial after its last epoch; None where it may go on.

    By the first objective. Patience is that of EarlyStopping in Keras: the epochs since the value was
    last better than the best before by more than the least improvement. The median is that of Optuna's
    MedianPruner: of the values after the same epoch of trials that have come to their end, with which
    the best value of the trial is compared.

    Args:
        rule: to stop by.
        trial: whose last epoch was taken note of.
        trials: of the search.
        full: epochs that no trial is trained beyond.
    """
    if trial.done < rule.first_epoch:
        return None
    if rule.patience and _since_best(rule, trial) >= rule.patience:
        return f"no improvement for {rule.patience} epochs"
    if rule.median_after:
        complete = [one for one in trials if one.status == WAITING and one.done >= full]
        return _below_median(rule, trial, complete)
    return None


def _since_best(rule: EarlyStopping, trial: Trial) -> int:
    best, since = None, 0
    for _, (value, *_rest) in sorted(trial.values.items()):
        if best is None or value < best - rule.least_improvement:
            best, since = value, 0
        else:
            since += 1
    return since


def _below_median(rule: EarlyStopping, trial: Trial, complete: Iterable[Trial]) -> str | None:
    others = [one.values[trial.done][0] for one in complete if trial.done in one.values]
    # Values that are no numbers are infinite here; the median is of those that are.
    numbers = [value for value in others if math.isfinite(value)]
    if len(others) < rule.median_after:
        return None
    best = min(values[0] for values in trial.values.values())
    if math.isfinite(best) and (not numbers or best <= median(numbers)):
        return None
    return f"worse than the median of {len(others)} complete trials after epoch {trial.done}"


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
