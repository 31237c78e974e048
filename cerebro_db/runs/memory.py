"""Limits of workers and groups by the memory of the server."""

from __future__ import annotations

from cerebro_db.configs.architectures.memory import (
    Load,
    MemoryEstimate,
    check_worker_memory,
    usable_mb,
    worker_limit_mb,
    worker_memory,
)
from cerebro_db.configs.frameworks import framework_in
from cerebro_db.core.spec import Configuration
from cerebro_db.decide.strategies import DEFAULT
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.runs.setup import RunSetup

_MACHINE = "SELECT cerebro._memory_mb(), cerebro._cores()"


def memory_workers(session: Session, setup: RunSetup) -> int:
    """The most workers that the memory of the server is enough for.

    Raises:
        InvalidArgument: one of them may need more than it may use, with what the estimate is made of.
    """
    estimate, limit, memory_mb = _memory(session, setup)
    check_worker_memory(estimate, limit, "configurations")
    fitting = max(1, usable_mb(memory_mb) * 2**20 // estimate.total)
    if setup.spec.strategy.is_side_by_side and fitting < setup.at_once:
        total = setup.at_once * estimate.total // 2**20
        raise InvalidArgument(
            f"strategy: got {setup.spec.strategy.name!r}, for which {setup.at_once} workers may need {total} MB "
            f"at the same time (each {estimate}); allowed: {usable_mb(memory_mb)} MB, which all workers "
            "may use together",
            hint=f"strategy := {DEFAULT!r} has one replica of each configuration",
        )
    if setup.packed.is_spread:  # segments have processes of their own, whatever the workers are
        return setup.num_workers
    return fitting


def within_memory(session: Session, setup: RunSetup) -> RunSetup:
    """Setup of a new run with groups no larger than the memory of the server allows."""
    if not setup.spec.strategy.chooses_groups or setup.at_once == 1:
        return setup
    estimate, limit, memory_mb = _memory(session, setup)
    fitting = usable_mb(memory_mb) * 2**20 // estimate.total
    return setup.for_workers(fitting if estimate.total <= limit * 2**20 else 1)


def _memory(session: Session, setup: RunSetup) -> tuple[MemoryEstimate, int, int]:
    """The estimate of a worker, the megabytes that it may use, and those of the machine."""
    settings = Catalog(session).settings()
    loads = [_load(one, setup.at_once) for one in setup.possible]
    cache = settings.cache_mb * 2**20 if setup.spec.use_caching else 0
    decoded = setup.decoded_bytes
    memory_mb, cores = session.run(_MACHINE)[0]
    limit = worker_limit_mb(settings.max_worker_mb, memory_mb, cores)
    return worker_memory(loads, decoded, cache), limit, memory_mb


def _load(configuration: Configuration, at_once: int) -> Load:
    facts, params = configuration.architecture.facts, configuration.compile_params
    fit = configuration.fit_params
    return Load(
        configuration.program,
        facts.parameters,
        params.optimizer.name,
        configuration.jit,
        params.optimizer.keeps_averages,
        fit.batch_size,
        facts.row_bytes,
        facts.largest_bytes,
        facts.fixed_bytes,
        exchanges=at_once > 1,
        framework=framework_in(configuration.architecture.text).name,
    )
