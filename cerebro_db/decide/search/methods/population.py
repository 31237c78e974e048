"""Population based training: Jaderberg et al., 2017. The worst go on from the states of the best."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cerebro_db.configs.grids.grid import Choices, Dimension, Range
from cerebro_db.core.search import SearchSpec, Space
from cerebro_db.decide.search.ranking import ranked
from cerebro_db.decide.search.space import Drawing, Explorer, Parameters
from cerebro_db.decide.search.trials import WAITING, Continue, End, Method, Start, Trial

_FACTORS = (0.8, 1.2)


class Population(Method):
    """Members that are compared at the end of each interval."""

    looks_back = True

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        params = spec.params
        self._seed, self._explorer = spec.seed, Explorer(spec.space)
        self._size: int = params["population"]
        self._missing = self._size
        self._interval: int = params["interval"]
        self._quantile: float = params["quantile"]
        self._resample: float = params["resample"]
        self.full = params["num_iterations"]
        self._members: list[int] = []
        self._todo: deque[Start | Continue] = deque()
        self._pending: Start | None = None
        self._is_extended = False

    def total(self, configurations: float) -> float:
        """Epochs of all members together."""
        return self._size * self.full

    def trials(self) -> float:
        """Number of trials that it starts."""
        return self._size

    def next(self, trials: Mapping[int, Trial]) -> Start | Continue | None:
        """Consequences of the last comparisons, else a member that is missing."""
        if self._todo:
            found = self._todo.popleft()
            self._pending = found if isinstance(found, Start) else None
            return found
        if self._is_extended:
            self._is_extended = False
            for trial in (trials[key] for key in self._members):
                if trial.status == WAITING and trial.offset + trial.done < self.full:
                    self._go_on(trial)
            return self.next(trials)
        if self._missing > 0:
            self._pending = None
            return Start(self._step(0), {}, "a member of the population")
        return None

    def _step(self, done: int) -> int:
        """Epochs until the next comparison."""
        return min(self._interval, self.full - done)

    def started(self, trial: Trial) -> None:
        """It is a member; where it began with the state of another one, in the place of a third."""
        if self._pending is None:
            self._missing -= 1
        self._members.append(trial.mst_key)

    def exhausted(self, trials: Mapping[int, Trial]) -> list[End]:
        """The population is as large as it is."""
        self._missing = 0
        return []

    def adopted(self, trial: Trial) -> None:
        """It is one more member."""
        trial.budget = self._step(trial.offset)
        self._members.append(trial.mst_key)

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> list[End]:
        """A bad member gives way to a changed copy of a good one; others go on."""
        if trial.status != WAITING:
            self._members.remove(trial.mst_key)
            return []
        trained = trial.offset + trial.done
        if trained >= self.full:
            return []
        values = {key: value for key in self._members if (value := trials[key].latest) is not None}
        order = ranked(values)
        count = int(len(order) * self._quantile)
        if count and trial.mst_key in order[-count:]:
            return self._exploit(trial, [trials[key] for key in order[:count]], trained)
        self._go_on(trial)
        return []

    def _go_on(self, trial: Trial) -> None:
        trained = trial.offset + trial.done
        budget = trial.done + self._step(trained)
        self._todo.append(Continue(trial.mst_key, budget, {}, f"goes on after epoch {trained}"))

    def _exploit(self, trial: Trial, best: list[Trial], trained: int) -> list[End]:
        drawing = Drawing([self._seed, trial.mst_key, trained])
        source = best[drawing.suggest_int("source", 0, len(best) - 1)]
        after = source.offset + source.done
        if source.done == 0 or after >= self.full:
            self._go_on(trial)
            return []
        changed = self._changed(source.parameters, drawing)
        row = replace(self._explorer.text(changed), model_id=source.row.model_id)
        self._members.remove(trial.mst_key)
        self._todo.append(
            Start(
                self._step(after),
                {"replaces": trial.mst_key},
                f"in place of {trial.mst_key}, from the state of {source.mst_key}",
                source=(source.mst_key, source.done),
                row=row,
            )
        )
        return [End(trial.mst_key, f"among the worst after epoch {trained}")]

    def _changed(self, parameters: Parameters, drawing: Drawing) -> Parameters:
        """Parameters nearby: each is drawn anew, or moved a little. The architecture stays."""
        return self._explorer.changed(
            parameters, lambda name, one: self._moved(parameters[name], one, drawing, name)
        )

    def _moved(self, value: Any, dimension: Dimension, drawing: Drawing, name: str) -> Any:
        if drawing.suggest_float("resample", 0.0, 1.0) < self._resample:
            return self._explorer.drawn(drawing, name, dimension)
        if isinstance(dimension, Choices):
            return value
        return nudged(dimension, value, _FACTORS[drawing.suggest_int("factor", 0, 1)])

    def extend(self, params: Mapping[str, Any]) -> None:
        """Members go on where they have ended, and there may be more."""
        self.full = max(self.full, params.get("num_iterations", 0))
        self._missing += params.get("population", 0)
        self._is_extended = True

    def narrow(self, space: Space) -> None:
        """Changes stay within the space."""
        self._explorer = Explorer(space)


def nudged(dimension: Range, value: float, factor: float) -> float:
    """A value times a factor, within its range; near one it is the distance from one."""
    if dimension.distribution == "log_near_one":
        moved = 1.0 - (1.0 - value) * factor
    else:
        moved = value * factor
    if dimension.step:
        moved = dimension.at(round((moved - dimension.low) / dimension.step))
    moved = min(max(moved, dimension.low), dimension.high)
    return round(moved) if dimension.whole else moved
