"""Population based training: Jaderberg et al., 2017. The worst go on from the states of the best."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

from cerebro_db.configs.arguments import Argument, number, whole
from cerebro_db.configs.grids.grid import Choices, Dimension, Range
from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import Space
from cerebro_db.core.statuses import WAITING
from cerebro_db.decide.search.methods.full import MOST_EPOCHS, NUM_ITERATIONS
from cerebro_db.decide.search.ranking import ranked
from cerebro_db.decide.search.space import Drawing, Explorer, choose, holds, is_number
from cerebro_db.decide.search.trials import (
    Affords,
    Continue,
    End,
    Method,
    Start,
    Trial,
    affords_all,
)
from cerebro_db.errors import InvalidArgument

_FACTORS = (0.8, 1.2)


class Population(Method):
    """Members that are compared at the end of each interval."""

    name: ClassVar = "pbt"
    parameters: ClassVar[tuple[Argument, ...]] = (
        whole("population", 8, 2, high=1000),
        whole("interval", 1, 1, high=MOST_EPOCHS),
        NUM_ITERATIONS,
        number("quantile", 0.25, high=0.5, low_open=True),
        number("resample", 0.25, high=1.0),
    )
    adopts: ClassVar = True
    looks_back = True

    @classmethod
    def check_parameters(cls, found: Mapping[str, Any], what: str) -> None:
        """Refuse a population that is never compared, or no member of which is replaced."""
        if found["interval"] > found["num_iterations"]:
            raise InvalidArgument(
                f"{what}: got interval={found['interval']}; allowed: 1 to num_iterations, which is "
                f"{found['num_iterations']}"
            )
        if int(found["population"] * found["quantile"]) < 1:
            raise InvalidArgument(
                f"{what}: got population={found['population']} and quantile={found['quantile']}, by which "
                "no member is replaced; allowed: at least 1 for population * quantile"
            )

    def __init__(self, spec: SearchSpec) -> None:
        super().__init__(spec)
        params = spec.params
        self._seed, self._explorer = spec.seed, Explorer(spec.space)
        self._size: int = params["population"]
        self.left = self._size
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

    def next(
        self, trials: Mapping[int, Trial], affords: Affords = affords_all
    ) -> Start | Continue | None:
        """Consequences of the last comparisons, else a member that is missing."""
        found = next((one for one in self._todo if affords(one)), None)
        if found is not None:
            self._todo.remove(found)
            self._pending = found if isinstance(found, Start) else None
            return found
        if self._is_extended:
            self._is_extended = False
            waiting = {one.mst_key for one in self._todo if isinstance(one, Continue)}
            for trial in (trials[key] for key in self._members if key not in waiting):
                if trial.status == WAITING and trial.offset + trial.done < self.full:
                    self._go_on(trial)
            return self.next(trials, affords)
        self._pending = None
        start = Start(self._step(0), {}, "a member of the population")
        return start if self.left > 0 and affords(start) else None

    def _step(self, done: int) -> int:
        """Epochs until the next comparison; one at least for what somebody else begins at the end."""
        return max(1, min(self._interval, self.full - done))

    def started(self, trial: Trial) -> None:
        """Make a trial a member; one that began with the state of another takes the place of a third."""
        if self._pending is None:
            self.left -= 1
        self._members.append(trial.mst_key)

    def adopted(self, trial: Trial) -> None:
        """Make a trial one more member."""
        trial.budget = self._step(trial.offset)
        self._members.append(trial.mst_key)

    def observed(self, trial: Trial, trials: Mapping[int, Trial]) -> list[End]:
        """A bad member gives way to a changed copy of a good one; others go on."""
        if trial.status != WAITING:
            self._members = [key for key in self._members if key != trial.mst_key]
            return []
        trained = trial.offset + trial.done
        if trained >= self.full:
            return []
        values = {key: value for key in self._members if (value := trials[key].latest) is not None}
        order = ranked(values)
        count = int(len(order) * self._quantile)
        if count and trial.mst_key in order[-count:]:
            best = [trials[key] for key in order[:count]]
            sources = [one for one in best if self._explorer.has_model(one.row.model_id)]
            if sources and self._has_room(trials):
                return self._exploit(trial, sources, trained)
        self._go_on(trial)
        return []

    def _has_room(self, trials: Mapping[int, Trial]) -> bool:
        """True if the search may have one more trial, beside those that are to be started."""
        coming = sum(isinstance(one, Start) for one in self._todo)
        return len(trials) + coming < self.most_trials

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
        row = self._changed(source, drawing)
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

    def _changed(self, source: Trial, drawing: Drawing) -> ConfigurationText:
        """Parameters nearby: each is drawn anew, or moved a little. The architecture stays.

        What the space does not have, as it was narrowed or as somebody has added the source, is not taken.
        """
        changed = self._explorer.nearby(
            source.parameters,
            source.row,
            drawing,
            lambda name, one, value: self._moved(value, one, drawing, name),
        )
        return self._explorer.text(changed)

    def _moved(self, value: Any, dimension: Dimension, drawing: Drawing, name: str) -> Any:
        if drawing.suggest_float("resample", 0.0, 1.0) < self._resample:
            return choose(drawing, name, dimension)
        if isinstance(dimension, Choices):
            is_there = holds(dimension, value)
            return value if is_there else choose(drawing, name, dimension)
        if not is_number(value):
            return choose(drawing, name, dimension)
        return nudged(dimension, value, _FACTORS[drawing.suggest_int("factor", 0, 1)])

    def extend(self, params: Mapping[str, Any]) -> None:
        """Members go on where they have ended, and there may be more."""
        self.full = max(self.full, params.get("num_iterations", 0))
        self.left += params.get("population", 0)
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
