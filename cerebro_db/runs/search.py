"""A search from its request: what it explores is checked, then it is a run like others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.core.search import Aim, Budget, EarlyStopping, Space
from cerebro_db.core.spec import EVERY_HOP, HOPPER
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.relations import CallerPath
from cerebro_db.postgres.sessions import SessionPool, Tick, no_tick
from cerebro_db.runs.driver import no_notice


@dataclass(frozen=True)
class SearchRequest:
    """What a caller asks of a search; texts are parsed already, tables not looked at yet.

    Attributes:
        model_selection_table: a table that gets the configurations; None for none.
        method, params: of ``configs.search_methods``; params are validated, all of them there.
        objective: parts of it; none for the validation loss, or the loss where there is no validation.
        concurrency: trials at the same time; None for the default of the method and the partitions.
        warm_start_run: an earlier run whose trials are learnt from.
    """

    source_table: str | None
    model_output_table: str | None
    model_arch_table: str | None
    space: Space
    method: str
    params: Mapping[str, Any]
    model_selection_table: str | None = None
    objective: tuple[Aim, ...] = ()
    early_stopping: EarlyStopping = field(default_factory=EarlyStopping)
    budget: Budget = field(default_factory=Budget)
    deterministic: bool = True
    concurrency: int | None = None
    warm_start_run: int | None = None
    use_gpus: bool | None = False
    validation_table: str | None = None
    metrics_compute_frequency: int | None = None
    name: str | None = None
    description: str | None = None
    use_caching: bool | None = True
    seed: int | None = 0
    num_workers: int | None = None
    durability: str | None = EVERY_HOP
    schedule: str | None = HOPPER
    replace: bool | None = False
    search_path: CallerPath | None = None
    cores: int = 1


def search(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: SearchRequest,
    tick: Tick = no_tick,
    notify: Callable[[str], None] = no_notice,
    registered: Callable[[int], None] = lambda run_id: None,
) -> int:
    """Search for the best configurations; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: what to search.
        tick: called while waiting; raises to cancel.
        notify: gets a line an epoch.
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, and nothing was started; or the run stopped, and can
            be resumed.
    """
    raise NotImplementedError
