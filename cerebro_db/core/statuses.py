"""Statuses of configurations and of runs: one set, which views, the command line, the client, reports and exports have.

The status of a configuration is that of ``cerebro._statuses``; nobody computes it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TRAINING, WAITING, FINISHED = "training", "waiting", "finished"
STOPPED, FAILED, CANCELLED = "stopped", "failed", "cancelled"

CONFIGURATIONS: Mapping[str, str] = MappingProxyType(
    {
        TRAINING: "it is trained, or is to be",
        WAITING: "for the workers, or at its budget for what is decided about it",
        FINISHED: "trained to its end",
        STOPPED: "trained no further, by a decision, as its search or its run has ended before",
        FAILED: "it has no model",
        CANCELLED: "it has no model, as somebody or a decision has stopped it",
    }
)
"""Statuses of configurations in the order in which they are counted, and what each means."""

WITH_MODEL = (FINISHED, STOPPED)
"""Statuses of configurations of a finished run that have a model."""

RUNS = (
    "queued", "starting", "running", "interrupted", "paused", "cancelled", "failed", "finished",
)  # fmt: skip
"""Statuses of runs, as ``cerebro.runs`` has them."""

QUEUED = "queued"
"""Status of a run that a driver without a session is to begin, or to go on with."""

DRIVEN = ("starting", "running")
"""Statuses of runs that have a driver, or had one until its session was gone."""

GOING_ON = (QUEUED, *DRIVEN)
"""Statuses of runs that have a driver, or wait for one."""
