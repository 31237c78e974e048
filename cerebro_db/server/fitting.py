"""What cerebro_fit_multiple calls."""

from __future__ import annotations

import os
from typing import Any

from cerebro_db.driver.fit import fit_multiple
from cerebro_db.driver.fit_request import FitRequest
from cerebro_db.server.host import Host, entry


@entry
def fit(plpy: Any, gd: dict[str, Any], arguments: dict[str, Any]) -> int:
    """Train a grid; the arguments are those of the SQL function, by name."""
    host = Host.of(plpy, gd)
    cores = len(os.sched_getaffinity(0))
    request = FitRequest(**arguments, search_path=host.search_path, cores=cores)
    return fit_multiple(host.pool, host.dialect, request, host.tick, host.notice)
