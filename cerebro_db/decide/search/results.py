"""Results of trials: when they are known, their values, and which trials they stop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from cerebro_db.configs.functions.callbacks import monitors_of
from cerebro_db.core.decisions import ADD, CLONE, EXTEND, FAILED, STOP, Decision
from cerebro_db.core.search import EarlyStopping, SearchSpec
from cerebro_db.core.state import Track
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide import callbacks
from cerebro_db.decide.search.methods import METHODS
from cerebro_db.decide.search.ranking import Values
from cerebro_db.decide.search.trials import Trial


class Results:
    """Reader of the results of trials, by the objectives of a search and its rules of early stopping."""

    def __init__(self, spec: SearchSpec) -> None:
        self._objectives, self._rule = spec.objectives, spec.early_stopping
        self._monitors: dict[str, Mapping[str, str]] = {}

    def known(self, track: Track, epoch: int) -> int | None:
        """The epoch of a result, or that there will be none; None where that is not known."""
        if epoch in track.scored:
            return epoch
        last = track.verdict.stopped_epoch  # by a callback of its own
        if last is not None and last < epoch:
            return last if last in track.scored else None
        return FAILED if track.ended else None

    def was_stopped(self, track: Track, epoch: int) -> bool:
        """True if a callback of the configuration's own ends it with an epoch."""
        one = track.configuration
        if not callbacks.watches(one.fit_params):
            return False
        history = [pair for pair in track.history if pair[0] <= epoch]
        return callbacks.decide(one.monitored, one.fit_params, history).stopped_epoch is not None

    def reaches_target(self, trial: Trial) -> bool:
        """True if the first objective of a trial is as good as the target."""
        target = self._rule.target
        if target is None or trial.done not in trial.values:
            return False
        aimed = -target if self._objectives[0].maximise else target
        return trial.values[trial.done][0] <= aimed

    def values(self, track: Track, epoch: int) -> Values:
        """Values of the objectives after an epoch, so that less is better."""
        found = []
        for objective in self._objectives:
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

    def fault(self, trial: Trial, trials: Iterable[Trial], full: int) -> str | None:
        """Reason to stop a trial after its last epoch; None where it may go on.

        By the first objective. Patience is that of EarlyStopping in Keras: the epochs since the value was
        last better than the best before by more than the least improvement. The median is that of Optuna's
        MedianPruner: of the values after the same epoch of trials that have come to their end, with which
        the best value of the trial is compared.

        Args:
            trial: whose last epoch was taken note of.
            trials: of the search.
            full: epochs that no trial is trained beyond.
        """
        rule = self._rule
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
