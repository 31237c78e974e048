"""Decisions of callbacks after an epoch, from all that was measured before: nothing is remembered.

The rules, and how they round, are those of Keras 3.15: comparisons are made in float32.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cerebro_db.configs.functions.callbacks import (
    EARLY_STOPPING,
    MONITORING,
    PLATEAU,
    SETTING_RATES,
    CallbackSpec,
    Monitor,
    monitor_of,
)
from cerebro_db.configs.grids.parameters import CompileParams, FitParams
from cerebro_db.core.events import Judged, Verdict
from cerebro_db.core.state import RunState
from cerebro_db.errors import InvalidArgument

History = Sequence[tuple[int, Mapping[str, float]]]
"""Epochs from 1 in their order, and what was measured after each, by the names of monitors."""


def watches(fit: FitParams) -> bool:
    """True if a configuration must be measured before it goes on."""
    return any(callback.name in MONITORING for callback in fit.callbacks)


def restores(fit: FitParams) -> bool:
    """True if the state of an earlier epoch may become the result."""
    return any(callback.all_arguments().get("restore_best_weights") for callback in fit.callbacks)


def check(params: CompileParams, fit: FitParams, *, validated: bool) -> None:
    """Check that callbacks can act on a configuration.

    Args:
        params, fit: of the configuration.
        validated: whether there is a validation table.

    Raises:
        InvalidArgument: a monitor does not exist, or a schedule sets the learning rate already.
    """
    for callback in fit.callbacks:
        if callback.name in MONITORING:
            _monitor(callback, params, validated=validated)
        optimizer = params.optimizer
        if callback.name in SETTING_RATES and (optimizer.schedule or optimizer.parts):
            rate = optimizer.schedule or "that of each of its optimizers"
            raise InvalidArgument(
                f"{callback.name}: got the optimizer {optimizer.name} whose learning_rate is {rate}; "
                "allowed: a number, which the callback can change"
            )


def decide(params: CompileParams, fit: FitParams, history: History) -> Verdict:
    """Verdict of callbacks on the epochs of a configuration that were measured."""
    named = {callback.name: callback for callback in fit.callbacks}
    stopper = _Stopper(named[EARLY_STOPPING], params) if EARLY_STOPPING in named else None
    reducer = _Reducer(named[PLATEAU], params) if PLATEAU in named else None
    stopped = None
    for epoch, logs in history:
        if reducer is not None:
            reducer.see(logs)
        if stopper is not None and stopper.stops(epoch, logs):
            stopped = epoch
            break
    return Verdict(
        stopped_epoch=stopped,
        best_epoch=stopper.best_epoch if stopper else None,
        restored_epoch=stopper.best_epoch if stopper and stopper.restores else None,
        learning_rate=reducer.changed if reducer else None,
    )


def verdicts(state: RunState, mst_keys: Iterable[int]) -> list[Judged]:
    """The verdicts on configurations that have changed by what was measured."""
    found = []
    for mst_key in mst_keys:
        track = state.tracks[mst_key]
        one = track.configuration
        if track.is_alive and watches(one.fit_params):
            verdict = decide(one.monitored, one.fit_params, track.history)
            if verdict != track.verdict:
                found.append(Judged(mst_key, verdict))
    return found


class _Best:
    """The best value so far of a monitor."""

    def __init__(self, monitor: Monitor, min_delta: float) -> None:
        self._more = monitor.more_is_better
        self._delta = abs(min_delta) if self._more else -abs(min_delta)
        self.value: float | None = None

    def beats(self, value: float, reference: float | None) -> bool:
        """True if a value is so much better than another one that it counts."""
        if reference is None:
            return True
        ours, theirs = _float32(value - self._delta), _float32(reference)
        return ours > theirs if self._more else ours < theirs

    def improved(self, value: float) -> bool:
        """True if a value is the best one; it is remembered then."""
        improved = self.beats(value, self.value)
        if improved:
            self.value = value
        return improved


class _Stopper:
    """EarlyStopping."""

    def __init__(self, callback: CallbackSpec, params: CompileParams) -> None:
        given = callback.all_arguments()
        monitor = _monitor(callback, params, validated=True)
        self._name, self._best = monitor.name, _Best(monitor, given["min_delta"])
        self._patience: int = given["patience"]
        self._baseline: float | None = given["baseline"]
        self._first: int = given["start_from_epoch"]
        self.restores: bool = given["restore_best_weights"]
        self.best_epoch: int | None = None
        self._wait = 0

    def stops(self, epoch: int, logs: Mapping[str, float]) -> bool:
        """See an epoch; whether it is the last one."""
        if self._name not in logs or epoch <= self._first:
            return False
        value = logs[self._name]
        self._wait += 1
        if self._best.improved(value):
            self.best_epoch = epoch
            if self._baseline is None or self._best.beats(value, self._baseline):
                self._wait = 0
            return False
        return self._wait >= self._patience and epoch > 1


class _Reducer:
    """ReduceLROnPlateau."""

    def __init__(self, callback: CallbackSpec, params: CompileParams) -> None:
        given = callback.all_arguments()
        monitor = _monitor(callback, params, validated=True)
        self._name, self._best = monitor.name, _Best(monitor, given["min_delta"])
        self._factor: float = given["factor"]
        self._patience: int = given["patience"]
        self._cooldown: int = given["cooldown"]
        self._lowest: float = given["min_lr"]
        # As the variable of the optimizer has it.
        self._rate = _float32(params.optimizer.all_arguments()["learning_rate"])
        self.changed: float | None = None
        self._wait = self._cooling = 0

    def see(self, logs: Mapping[str, float]) -> None:
        """See an epoch."""
        if self._name not in logs:
            return
        if self._cooling > 0:
            self._cooling -= 1
            self._wait = 0
        if self._best.improved(logs[self._name]):
            self._wait = 0
        elif self._cooling <= 0:
            self._wait += 1
            if self._wait >= self._patience:
                self._reduce()

    def _reduce(self) -> None:
        if self._rate > _float32(self._lowest):
            self._rate = _float32(max(self._rate * self._factor, self._lowest))
            self.changed = self._rate
            self._cooling, self._wait = self._cooldown, 0


def _monitor(callback: CallbackSpec, params: CompileParams, *, validated: bool) -> Monitor:
    given: dict[str, Any] = callback.all_arguments()
    metrics = {metric.label: metric.name for metric in params.metrics}
    return monitor_of(
        given["monitor"], given["mode"], metrics, validated=validated, what=callback.name
    )


def _float32(value: float) -> float:
    """The nearest number in single precision: infinite beyond it."""
    return array("f", [value])[0]
