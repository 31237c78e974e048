"""How often a run must measure for the callbacks of its configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cerebro_db.configs.parameters import FitParams
from cerebro_db.driver.fit_request import FitRequest
from cerebro_db.errors import InvalidArgument
from cerebro_db.planning.callbacks import watches


def measured_for(request: FitRequest, fits: Mapping[int, FitParams]) -> FitRequest:
    """A request that measures what its callbacks monitor: after every epoch, if nothing is asked.

    Raises:
        InvalidArgument: it asks for measures at the end only, when callbacks could do nothing.
    """
    watched = [mst_key for mst_key, fit in fits.items() if watches(fit)]
    if not watched:
        return request
    if request.metrics_compute_frequency is None:
        return replace(request, metrics_compute_frequency=1)
    last = request.num_iterations or 1
    if 1 < last == request.frequency:
        raise InvalidArgument(
            f"metrics_compute_frequency: got {request.frequency}, so that configuration {watched[0]}, "
            "whose callbacks act on what is measured, would be measured after the last epoch only; "
            f"allowed: 1 to {last - 1}",
            hint="leave it out: with such callbacks the default is 1",
        )
    return request
