"""Limits of a process that computes: what it may allocate, enforced by the kernel."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

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
    limit = memory_limit(settings)
    _bound(limit)
    return limit


def memory_limit(settings: Settings) -> int | None:
    """The megabytes that this process may allocate while it computes; None for any."""
    if configured().get("use_gpus"):
        return None
    return worker_limit_mb(settings.max_worker_mb, memory_mb(), cores())


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """The bound while this lasts, for a session of a caller, which does other work too."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    _bound(limit)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _bound(limit: int | None) -> None:
    """Set the soft limit, which can be raised again; the hard one stays."""
    if limit is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = max(limit, _LEAST_MB) * 2**20
    resource.setrlimit(
        resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
