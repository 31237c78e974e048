"""Limits of a process that computes: memory, processors and sockets, enforced by the kernel."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from cerebro_db.configs.architectures.memory import worker_limit_mb
from cerebro_db.configs.settings import Settings, processors
from cerebro_db.errors import InvalidArgument, TrainerBound
from cerebro_db.relay.machine import cores, memory_mb
from cerebro_db.server import network
from cerebro_db.training.environment import allocated, configured

# Native code may end the process where it gets no memory for something small, such as a library that
# is loaded: the estimate refuses what does not fit into less.
_LEAST_MB = 1024
# As the process began: what it has set for itself is not taken for the server's.
_CPUS, _CORES = os.sched_getaffinity(0), cores()
_NICE = os.getpriority(os.PRIO_PROCESS, 0)
_MEMORY = resource.getrlimit(resource.RLIMIT_DATA)[1]
_LEAST_URGENT = 19


def bind(settings: Settings, *, connects: bool = False, has_peers: bool = False) -> int | None:
    """Give this process the limits that administrators have set; returns that of its memory in megabytes.

    Args:
        settings: of the database.
        connects: whether it has to reach the server over a network itself.
        has_peers: whether it exchanges gradients with trainers of other hosts, by TCP.

    Raises:
        TrainerBound: it has limits that are narrower, and cannot be widened again.
        InvalidArgument: ``trainer_cpus`` has no processor of this host.
    """
    uses_gpus = bool(configured().get("use_gpus"))
    _give_way(settings.trainer_nice)
    _stay_on(settings.trainer_cpus)
    if settings.trainer_network == "on" or connects:
        network.require()
    elif not uses_gpus:  # whose drivers may start programs with rights of their own
        if has_peers:
            network.require(only_tcp=True)
        network.refuse(but_tcp=has_peers)
    return None if uses_gpus else limit_memory(settings)


def limit_memory(settings: Settings) -> int:
    """Bound the memory that this process may allocate from now on; returns the limit in megabytes.

    There is none for a process with GPUs, whose drivers map far more than they use.

    TensorFlow tells of a tensor that gets no memory as an error. The bound counts what is allocated,
    not what is shared with other processes, such as libraries and the buffers of the server. Nothing
    in the process can raise it again.

    Raises:
        TrainerBound: there is a narrower bound already, or the process has more than that from calls before.
    """
    limit = worker_limit_mb(settings.max_worker_mb, memory_mb(), _CORES)
    most = max(limit, _LEAST_MB) * 2**20
    if _MEMORY != resource.RLIM_INFINITY:  # the server's own
        most = min(most, _MEMORY)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY and most > hard:
        raise TrainerBound("max_worker_mb")
    was_bound = hard not in (resource.RLIM_INFINITY, _MEMORY)
    if was_bound and allocated() > most:  # by calls before; a new process has less
        raise TrainerBound("max_worker_mb", has_more=True)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return limit


def _give_way(nice: int) -> None:
    """Be less urgent than the server by so much."""
    wanted = min(_NICE + nice, _LEAST_URGENT)
    found = os.getpriority(os.PRIO_PROCESS, 0)
    if wanted < found:
        raise TrainerBound("trainer_nice")
    if wanted > found:
        for thread in _threads():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread, wanted)


def _stay_on(listed: str) -> None:
    """Use these processors, and no others."""
    wanted = _CPUS & processors(listed) if listed else _CPUS
    if not wanted:
        found = ",".join(map(str, sorted(_CPUS)))
        raise InvalidArgument(
            f"setting trainer_cpus: got {listed}; allowed on host {os.uname().nodename}: {found}",
            hint="an administrator can set others: SELECT cerebro.cerebro_set('trainer_cpus', '...')",
        )
    if wanted != os.sched_getaffinity(0):
        for thread in _threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, wanted)


def _threads() -> list[int]:
    """Of this process; those that they begin later are as they are."""
    return [int(number) for number in os.listdir("/proc/self/task")]
