"""Limits of a process that computes: what it may allocate, enforced by the kernel."""

from __future__ import annotations

import resource

from cerebro_db.configs.memory import worker_limit_mb
from cerebro_db.configs.settings import Settings
from cerebro_db.relay.machine import cores, memory_mb
from cerebro_db.training.environment import configured

# Native code may end the process where it gets no memory for something small, such as a library that
# is loaded: the estimate refuses what does not fit into less.
_LEAST_MB = 1024


def limit_memory(settings: Settings) -> int | None:
    """Bound the memory that this process may allocate from now on; returns the limit in megabytes.

    There is none for a process with GPUs, whose drivers map far more than they use.

    TensorFlow tells of a tensor that gets no memory as an error. The bound counts what is allocated,
    not what is shared with other processes, such as libraries and the buffers of the server.
    """
    if configured().get("use_gpus"):
        return None
    limit = worker_limit_mb(settings.max_worker_mb, memory_mb(), cores())
    # The soft limit, which can be raised again; the hard one stays.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = max(limit, _LEAST_MB) * 2**20
    resource.setrlimit(
        resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    return limit
