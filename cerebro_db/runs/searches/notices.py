"""Notices of a search: how far it is, and at its end the winner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cerebro_db.configs.messages import duration
from cerebro_db.core.ports import Clock, Outlook
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.state import RunState, Track
from cerebro_db.core.tasks import Measures
from cerebro_db.models.best import best_trials, without_values
from cerebro_db.postgres.catalog.trials import TrialRow, trials_of
from cerebro_db.postgres.names import value_literal
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.runs.notices import RunNotices
from cerebro_db.runs.setup import RunSetup

# A line is sent when so many more trials are done, or after so many seconds; nobody looks more often.
_SHARE, _SECONDS, _SOONEST = 0.05, 60.0, 1.0
_MOST_KEYS = 20
_WAITS = (
    "the search waits for configurations: cerebro.cerebro_add_configs adds some, "
    "cerebro.cerebro_finish ends it"
)


class SearchNotices(RunNotices):
    """Lines about trials in place of those about epochs: trials come to the same epoch at any time.

    Args:
        state, notify, clock, seconds_before: as of other runs.
        search: what is looked for.
        outlook: tells how large the search will be.
    """

    def __init__(
        self,
        state: RunState,
        notify: Callable[[str], None],
        clock: Clock,
        seconds_before: float,
        search: SearchSpec,
        outlook: Callable[[], Outlook | None],
    ) -> None:
        super().__init__(state, notify, clock, seconds_before)
        self._aim, self._outlook = search.objectives[0], outlook
        self._has_waited = False
        self._done, self._since, self._looked = len(self._ended()), clock(), -math.inf

    def waits(self) -> None:
        """Send a line, the first time."""
        if not self._has_waited:
            self._has_waited = True
            self.notify(_WAITS)

    def scored(self, rows: Sequence[Measures]) -> None:
        """Results are there, which the state has."""

    def epochs(self) -> None:
        """Send a line about the progress of the search, when trials are done since the last one."""
        now = self._clock()
        if now < self._looked + _SOONEST:
            return
        self._looked, done = now, len(self._ended())
        more, found = done - self._done, self._outlook()
        if more < 1 or (
            more < _SHARE * (found.trials if found else 0) and now < self._since + _SECONDS
        ):
            return
        self._done, self._since = done, now
        self.notify(self._line(done, found))

    def _line(self, done: int, found: Outlook | None) -> str:
        count = max(len(self._state.tracks), found.trials if found else 0)
        return f"{done} of {count} trials done, {duration(self.elapsed)}{self._best_so_far()}{self._rest(found)}"

    def _ended(self) -> list[Track]:
        """Trials that are not trained at present: they have come to their budget, or have ended."""
        return [
            one
            for one in self._state.tracks.values()
            if one.ended or one.is_stopped or one.budget in one.scored
        ]

    def _best_so_far(self) -> str:
        found = [
            (-value if self._aim.maximise else value, key, epoch)
            for key, (epoch, value) in self._values().items()
            if math.isfinite(value)
        ]
        if not found:
            return ""
        value, key, epoch = min(found)
        value = -value if self._aim.maximise else value
        return f", best so far {self._aim.monitor} {value:.4g} (trial {key}, epoch {epoch})"

    def _values(self) -> dict[int, tuple[int, float]]:
        """The last value of the objective of each trial that has not failed, and its epoch."""
        found: dict[int, tuple[int, float]] = {}
        for key, track in self._state.tracks.items():
            if track.ended is None:
                for epoch, sets in track.measured.items():
                    value = sets.get(self._aim.dataset, {}).get(self._aim.monitor)
                    if value is not None and epoch >= found.get(key, (0, 0.0))[0]:
                        found[key] = epoch, value
        return found

    def _rest(self, found: Outlook | None) -> str:
        """The estimated rest, by the epochs that are done and those that there will be."""
        hops = self._state.spec.hops_an_epoch
        done = sum(track.done for track in self._state.tracks.values()) / hops
        if found is None or not done or found.epochs <= done:
            return ""
        return f", about {duration(self.elapsed * (found.epochs - done) / done)} left"


def last_line(session: Session, run_id: int, setup: RunSetup, shortfall: str | None) -> str:
    """The last line of a search: its winner, and a statement that uses it; why there is none, or none of all epochs.

    Args:
        session: of the driver.
        run_id: of the search, whose tables are made.
        setup: of the run.
        shortfall: why no trial has come to the last epochs; None where one has.
    """
    assert setup.spec.search is not None
    trials = trials_of(session, run_id)
    best = best_trials(setup.spec.search, trials)
    parts = [f"search of {len(trials)} trial{'s' if len(trials) != 1 else ''} has ended: "]
    parts.append(
        _winner(setup, setup.spec.search, best)
        if best
        else without_values(setup.spec.search, trials)
    )
    if shortfall:
        parts.append(f"; {shortfall}")
    return "".join(parts)


def _winner(setup: RunSetup, spec: SearchSpec, best: Sequence[TrialRow]) -> str:
    one, aims = best[0], spec.objectives
    values = ", ".join(
        f"{aim.monitor} {value:.4g}" for aim, value in zip(aims, one.objectives, strict=True)
    )
    text = "best is" if len(aims) == 1 else f"{_of_front(best)} of which the first is"
    return (
        f"{text} trial {one.mst_key} with {values} after epoch {one.epoch}: model_id {one.model_id}, "
        f"{one.compile_params}, {one.fit_params}. {_use(setup, one.mst_key)}"
    )


def _of_front(best: Sequence[TrialRow]) -> str:
    keys = ", ".join(str(one.mst_key) for one in best[:_MOST_KEYS])
    more = f" and {len(best) - _MOST_KEYS} more" if len(best) > _MOST_KEYS else ""
    return f"the Pareto set has the trials {keys}{more},"


def _use(setup: RunSetup, mst_key: int) -> str:
    """A call that predicts with a model, which can be run as it is."""
    output = setup.output_text
    packed = setup.packed if setup.validation is None else setup.validation
    is_class = all(one.is_class for one in packed.targets)
    made = setup.output.suffixed("_predicted")
    arguments = [
        value_literal(output), value_literal(str(packed.relation.name)), "NULL", "NULL", value_literal(str(made)),
        value_literal("prob" if is_class else "response"), f"mst_key := {mst_key}",
    ]  # fmt: skip
    return f"SELECT cerebro.cerebro_predict({', '.join(arguments)}) uses it"
