"""All trials of the kill test, after a reference run."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_db.decide.strategies import DEFAULT
from chaos import outcome
from chaos.driving import CALL_SECONDS, Driving
from chaos.grid import Job
from chaos.moments import ENDING, IMPORTING, OVER, SETTING_UP, TRAINING
from chaos.outcome import Outcome
from chaos.server import Server, until
from chaos.trial import Plan, Report, Trial
from chaos.view import look

_SEARCHES = 3
_ORDER = (SETTING_UP, IMPORTING, TRAINING, ENDING, OVER)


class ReferenceFailed(Exception):
    """There is nothing to compare with."""


@dataclass(frozen=True)
class Reference:
    """Results of an undisturbed run, and of a search where there is one.

    Attributes:
        outcome: what it left.
        seconds: that its phases took.
        epochs: of the training.
        search: the same of a search.
        strategy: of the training.
    """

    outcome: Outcome
    seconds: dict[str, float]
    epochs: int
    search: Reference | None = None
    strategy: str = DEFAULT

    @classmethod
    def of(
        cls, server: Server, epochs: int, *, searches: bool = False, strategy: str = DEFAULT
    ) -> Reference:
        """Train, undisturbed.

        Raises:
            ReferenceFailed: that alone is not as it should be.
        """
        name = "calm_search" if searches else "calm"
        job = Job.on(server, name, epochs, searches=searches, strategy=strategy)
        driving = Driving.calling(server, [job.fit(), *job.predictions()])
        try:
            until(driving.connected, CALL_SECONDS, "the client connects")
            seconds = _watch(server, job, driving)
            if driving.wait() != 0:
                raise ReferenceFailed(driving.error())
        finally:
            driving.end()
        run_id = look(server, job).run_id
        assert run_id is not None
        outcome.await_no_sessions(server)
        if wrong := outcome.miscounted(server, job, run_id) + outcome.leftovers(server):
            raise ReferenceFailed("; ".join(wrong))
        found = outcome.outcome(server, job, run_id)
        return cls(found, seconds, epochs, strategy=strategy)


def plans(seed: int, kills: int, victims: Sequence[str]) -> list[Plan]:
    """Plans of all trials: the victims take turns."""
    return [Plan.of(seed, number, victims[number % len(victims)]) for number in range(kills)]


def trials(server: Server, reference: Reference, planned: Sequence[Plan]) -> Iterator[Report]:
    """Do it; every third run is a search."""
    for plan in planned:
        calm = reference
        if reference.search is not None and plan.number % _SEARCHES == 1:
            calm = reference.search
        searches = calm is not reference
        name = f"storm_{plan.number}"
        job = Job.on(server, name, calm.epochs, plan.durability, searches, calm.strategy)
        yield Trial(server, plan, job, calm.outcome, calm.seconds).run()


def summary(
    server: Server, reference: Reference, seed: int, reports: Sequence[Report]
) -> dict[str, Any]:
    """Results of the suite as plain values."""
    return {
        "seed": seed,
        **server.description(),
        "python": platform.python_version(),
        "strategy": reference.strategy,
        "configurations": Job("", 0, strategy=reference.strategy).configurations,
        "partitions": server.value("SELECT count(DISTINCT partition_key) FROM packed"),
        "epochs": reference.epochs,
        "reference_seconds": {k: round(v, 3) for k, v in reference.seconds.items()},
        "trials": [report.to_json() for report in reports],
    }


def _watch(server: Server, job: Job, driving: Driving) -> dict[str, float]:
    """Seconds of each phase, up to the end."""
    seen, last = {SETTING_UP: time.monotonic()}, SETTING_UP
    while last != OVER and not driving.over:
        phase = look(server, job).phase(job)
        # A phase may pass between two looks.
        for name in _ORDER[_ORDER.index(last) + 1 : _ORDER.index(phase) + 1]:
            seen[name] = time.monotonic()
            last = name
        time.sleep(0.005)
    ends = {name: seen.get(name, time.monotonic()) for name in _ORDER}
    return {now: ends[then] - ends[now] for now, then in itertools.pairwise(_ORDER)}
