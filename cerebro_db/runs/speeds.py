"""Speed of the machine, measured by hops of earlier runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.core.strategies import FASTEST, SLOWEST, Speeds
from cerebro_db.decide.cost import step_seconds
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.catalog.past_hops import (
    PastConfiguration,
    past_configurations,
    trained_seconds,
)
from cerebro_db.postgres.sessions.session import Session

# By estimate. In shorter hops what is around the steps counts; shorter steps are never shared.
_LEAST_HOP_SECONDS = 0.5
_LEAST_STEP_SECONDS = 1e-3
_LEAST_HOPS = 16
# Speeds are rounded to these parts of a doubling, so that small differences of time change no choice.
_PARTS = 4


def measured_speeds(session: Session, threads: int) -> Speeds:
    """Speeds of the machine by the latest hops of the caller's runs.

    Args:
        session: of the caller.
        threads: of a worker, by which speeds differ.
    """
    found: dict[tuple[int, int], tuple[bool, float]] = {}
    counted = []
    for one in past_configurations(session, threads, _LEAST_HOP_SECONDS):
        facts = _counted(one)
        if facts is not None:
            counted.append(one)
            found[one.run_id, one.mst_key] = (facts.has_convolution, one.hop_seconds)
    if not found:
        return Speeds()
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for run_id, mst_key, trained in trained_seconds(session, counted):
        has_convolution, estimated = found[run_id, mst_key]
        ratios[has_convolution].append(estimated / trained)
    return speeds_of(ratios[True], ratios[False])


def speeds_of(convolution: Sequence[float], other: Sequence[float]) -> Speeds:
    """Speeds by ratios of estimated to measured seconds; none of a kind that has too few.

    Args:
        convolution: ratios of hops of nets with convolutions.
        other: those of all other nets.
    """
    used = [ratios for ratios in (convolution, other) if len(ratios) >= _LEAST_HOPS]
    return Speeds(_speed(convolution), _speed(other), sum(map(len, used)))


def _speed(ratios: Sequence[float]) -> float | None:
    """The median of some ratios, rounded, within what can be given."""
    if len(ratios) < _LEAST_HOPS:
        return None
    parts = round(_PARTS * math.log2(statistics.median(ratios)))
    return min(FASTEST, max(SLOWEST, float(f"{2 ** (parts / _PARTS):.3g}")))


def _counted(one: PastConfiguration) -> ArchitectureFacts | None:
    """The architecture of a configuration whose steps are so long that workers might share them; None of another."""
    try:
        batch = parse_fit_params(one.fit_params).batch_size
        facts = ArchitectureFacts.from_json(one.model_facts)
    except CerebroError:  # of a version that took other parameters
        return None
    return facts if step_seconds(facts, batch) >= _LEAST_STEP_SECONDS else None
