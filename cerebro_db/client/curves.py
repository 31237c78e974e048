"""Learning curves of a run, as other tools take them."""

from __future__ import annotations

import math

from cerebro_db.watching import reading
from cerebro_db.watching.reading import TRAINING, Source


def curves_of(source: Source, run_id: int) -> dict[int, dict[int, dict[str, float]]]:
    """Finite results by mst_key, epoch and name; names on the validation table begin with ``val_``."""
    curves: dict[int, dict[int, dict[str, float]]] = {}
    for one in reading.measures(source, run_id):
        prefix = "" if one.dataset == TRAINING else "val_"
        of_epoch = curves.setdefault(one.mst_key, {}).setdefault(one.epoch, {})
        of_epoch |= {prefix + n: v for n, v in one.values().items() if math.isfinite(v)}
    return curves
