"""Runs as values, read through the catalog's views over any connection."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from cerebro_db.core.statuses import GOING_ON
from cerebro_db.errors import InvalidArgument, UndefinedRun

TRAINING, VALIDATION = "training", "validation"
LOSS = "loss"
MOST_RUNS = 1000


class Source(Protocol):
    """Runner of statements: a session, or a connection of a user."""

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement, whose parameters are ``%s``."""


class RunFacts(NamedTuple):
    """Request and standing of a run: a row of ``cerebro.runs``, and what is internal of it.

    Attributes:
        manifest: versions and numbers of what computes.
        active: seconds that earlier drivers spent on it.
        schedule: the strategy.
        search: the spec of a search, as JSON; None of a run with a table of configurations.
        folds: of cross-validation; None where there are none.
    """

    run_id: int
    owner: str
    name: str | None
    description: str | None
    status: str
    error: str | None
    source_table: str
    validation_table: str | None
    model_output_table: str
    model_selection_table: str | None
    model_arch_table: str | None
    num_iterations: int
    metrics_compute_frequency: int
    warm_start: bool
    seed: int
    num_partitions: int
    num_workers: int
    threads: int
    use_gpus: bool | None
    use_caching: bool | None
    durability: str | None
    schedule: str
    strategy_params: str
    cerebro_version: str | None
    manifest: Mapping[str, Any]
    search: Mapping[str, Any] | None
    folds: int | None
    active: float
    created: datetime
    started: datetime | None
    resumed: datetime | None
    finished: datetime | None

    @property
    def goes_on(self) -> bool:
        """True while somebody drives it."""
        return self.status in GOING_ON

    @property
    def title(self) -> str:
        """Title for people."""
        return f"run {self.run_id}" + (f" {self.name}" if self.name else "")


class Standing(NamedTuple):
    """A row of ``cerebro.leaderboard``.

    Attributes:
        rank: from 1; those that failed or were cancelled come last.
        epoch: after which it was last measured; None before.
    """

    mst_key: int
    rank: int
    model_id: int
    compile_params: str
    fit_params: str
    status: str
    epoch: int | None
    names: tuple[str, ...]
    validation_metrics: tuple[float, ...]
    validation_loss: float | None
    training_metrics: tuple[float, ...]
    training_loss: float | None
    error: str | None

    def results(self) -> dict[str, float]:
        """Loss and metrics by name; those of the validation table begin with ``val_``."""
        found: dict[str, float] = {}
        of_sets = (
            ("", self.training_loss, self.training_metrics),
            ("val_", self.validation_loss, self.validation_metrics),
        )
        for prefix, loss, metrics in of_sets:
            if loss is not None:
                found[prefix + LOSS] = loss
                found |= {prefix + n: v for n, v in zip(self.names, metrics, strict=False)}
        return found


class Measured(NamedTuple):
    """A row of ``cerebro.metrics``.

    Attributes:
        elapsed: seconds since the run began, when it was measured.
    """

    mst_key: int
    epoch: int
    dataset: str
    loss: float
    names: tuple[str, ...]
    metrics: tuple[float, ...]
    elapsed: float

    def values(self) -> dict[str, float]:
        """Loss and metrics by name."""
        return {LOSS: self.loss, **dict(zip(self.names, self.metrics, strict=False))}

    def results(self) -> dict[str, float]:
        """Loss and metrics by name; those of the validation table begin with ``val_``."""
        prefix = "" if self.dataset == TRAINING else "val_"
        return {prefix + name: value for name, value in self.values().items()}


class Pace(NamedTuple):
    """Progress of a run, as ``cerebro._pace`` has it.

    Attributes:
        planned: hops of all epochs of the configurations that have not failed.
        rows: trained so far.
        seconds: in which somebody drove it, up to the last hop.
        last: when the last hop ended.
        share: of the planned hops that are done, from 0 to 1.
        rows_per_second: of all configurations together; None before the first hop.
        seconds_left: if hops go on at this pace; None before there is any.
        waits: whether it waits for configurations of others.
    """

    configurations: int
    failed: int
    done: int
    planned: int
    rows: int
    seconds: float
    last: datetime | None
    share: float
    rows_per_second: float | None
    seconds_left: float | None
    waits: bool


class Hopped(NamedTuple):
    """A hop: who made it, on what, and when, in seconds since 1970.

    Attributes:
        waited: seconds that the worker had nothing to do before.
    """

    mst_key: int
    epoch: int
    partition_key: int
    worker: int
    started: float
    finished: float
    waited: float
    rows: int
    memory_mb: int


def run_facts(source: Source, run_id: int | None = None) -> RunFacts:
    """A run; by default the newest one that goes on, or else the newest one.

    Raises:
        UndefinedRun: the caller has no such run, or none at all.
    """
    where = _NEWEST if run_id is None else "r.run_id = %s"
    rows = source.run(_RUNS.format(where), () if run_id is None else (run_id,))
    if not rows:
        raise UndefinedRun(
            "got no run; you have none"
            if run_id is None
            else f"run_id: got {run_id}; you have no run of that number"
        )
    return _run(rows[0])


def runs_facts(source: Source, limit: int = 20) -> list[RunFacts]:
    """The newest runs that the caller may see, the newest first."""
    if not 1 <= limit <= MOST_RUNS:
        raise InvalidArgument(f"limit: got {limit}; allowed: 1 to {MOST_RUNS}")
    return [_run(row) for row in source.run(_RUNS.format("true") + " LIMIT %s", (limit,))]


def goes_on(source: Source, run_id: int) -> bool:
    """True while somebody drives a run."""
    rows = source.run("SELECT r.status FROM cerebro.runs r WHERE r.run_id = %s", (run_id,))
    return bool(rows) and rows[0][0] in GOING_ON


def columns(kind: Any, **sources: str) -> str:
    """Columns of a query for rows of a type: those of its fields, or what stands for them."""
    return ", ".join(
        f"{sources[name]} AS {name}" if name in sources else name for name in kind._fields
    )


# Whoever owns a run may have written anything.
_COUNT = "i.spec -> 'folds' ->> 'count'"
_FOLDS = f"CASE WHEN ({_COUNT}) ~ '^[1-9][0-9]?[0-9]?$' THEN ({_COUNT})::integer END"
_INTERNAL = ("model_arch_table", "use_gpus", "use_caching", "cerebro_version", "active")
_RUNS = f"""
SELECT {columns(RunFacts, owner="owner::text", manifest="manifest::text", search="search::text")}
  FROM (SELECT r.*, i.spec -> 'search' AS search, {_FOLDS} AS folds,
               {", ".join(f"i.{name}" for name in _INTERNAL)}
          FROM cerebro.runs r JOIN cerebro._runs i ON i.run_id = r.run_id) r
 WHERE {{}} ORDER BY run_id DESC
"""
_NEWEST = f"""r.run_id = coalesce(
    (SELECT max(g.run_id) FROM cerebro.runs g WHERE g.status IN {GOING_ON}),
    (SELECT max(n.run_id) FROM cerebro._runs n))"""


def _run(row: tuple[Any, ...]) -> RunFacts:
    found = RunFacts._make(row)
    manifest = json.loads(row[RunFacts._fields.index("manifest")] or "{}")
    search = row[RunFacts._fields.index("search")]
    return found._replace(
        manifest=manifest if isinstance(manifest, dict) else {},
        search=None if search is None else json.loads(search),
    )


def standings(source: Source, run_id: int) -> list[Standing]:
    """The leaderboard of a run, the best configuration first."""
    return [_standing(Standing._make(row)) for row in source.run(_BOARD, (run_id,))]


def _standing(one: Standing) -> Standing:
    return one._replace(
        names=_texts(one.names),
        validation_metrics=_numbers(one.validation_metrics),
        training_metrics=_numbers(one.training_metrics),
    )


_BOARD = f"""
SELECT {columns(Standing, names="metric_names")} FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank, mst_key
"""


def measures(source: Source, run_id: int) -> list[Measured]:
    """The losses and metrics of a run, by configuration, data set and epoch."""
    found = map(Measured._make, source.run(_MEASURES, (run_id,)))
    return [one._replace(names=_texts(one.names), metrics=_numbers(one.metrics)) for one in found]


_MEASURES = f"""
SELECT {columns(Measured, names="metric_names")} FROM cerebro.metrics WHERE run_id = %s ORDER BY mst_key, dataset, epoch
"""


def hops(source: Source, run_id: int) -> list[Hopped]:
    """The hops of a run, in the order in which they began."""
    return [Hopped._make(row) for row in source.run(_HOPS, (run_id,))]


_HOPS = """
SELECT h.mst_key, h.epoch, h.partition_key, h.worker, extract(epoch FROM h.started)::double precision,
       extract(epoch FROM h.finished)::double precision, h.waited, h.rows, h.memory_mb
  FROM cerebro.hops h WHERE h.run_id = %s ORDER BY h.started, h.mst_key
"""


def worker_times(source: Source, run_id: int) -> dict[int, tuple[float, float]]:
    """Shares of the time of each worker with nothing to do, and in scans and the like, from 0 to 1."""
    return {worker: (idle, scoring) for worker, idle, scoring in source.run(_TIMES, (run_id,))}


_TIMES = """
SELECT worker, idle, scoring FROM cerebro._worker_times WHERE run_id = %s ORDER BY worker
"""


def pace(source: Source, run_id: int) -> Pace:
    """Progress of a run."""
    ((*row,),) = source.run(_PACE, (run_id,))
    found = Pace._make(row)
    return found._replace(rows=int(found.rows), seconds=float(found.seconds or 0))


_PACE = f"SELECT {columns(Pace)} FROM cerebro._pace WHERE run_id = %s"


class Lineage(NamedTuple):
    """A version of the registry that came from a run."""

    model: str
    version: int
    mst_key: int
    aliases: tuple[str, ...]
    registered: datetime


def lineage(source: Source, run_id: int) -> list[Lineage]:
    """The versions that were registered from a run."""
    found = map(Lineage._make, source.run(_LINEAGE, (run_id,)))
    return [one._replace(aliases=_texts(one.aliases)) for one in found]


_LINEAGE = f"""
SELECT {columns(Lineage, model="name")} FROM cerebro.registered_versions WHERE run_id = %s ORDER BY name, version
"""


class Drifted(NamedTuple):
    """A column of rows that were encoded by an earlier encoding, as ``cerebro.drift`` has it.

    Attributes:
        missing, unseen: shares of the rows.
        trained_missing, trained_unseen: the same in the training rows; None where that is not known.
        psi: of numbers; None where it is not known.
    """

    kind: str
    recorded: datetime
    encoding_of: str
    source_table: str
    output_table: str
    rows: int
    column: str
    missing: float | None
    trained_missing: float | None
    unseen: float | None
    trained_unseen: float | None
    psi: float | None


def drift(source: Source, facts: RunFacts) -> list[Drifted]:
    """How far the rows of the packed tables of a run, and those that its models predicted for, had moved.

    Of each table that was made that is the last time.
    """
    tables = [name for name in (facts.source_table, facts.validation_table) if name is not None]
    rows = source.run(_DRIFT, (tables, facts.model_output_table, MOST_DRIFT))
    return [Drifted(*row) for row in rows]


MOST_DRIFT = 2000
_DRIFT = """
SELECT d.kind, d.recorded, d.encoding_of, d.source_table, d.output_table, d.num_rows, d.column_name::text,
       d.missing, d.trained_missing, d.unseen, d.trained_unseen, d.psi
  FROM cerebro.drift d
  JOIN (SELECT max(n.drift_id) AS drift_id FROM cerebro.drift n
         WHERE n.output_table = ANY (%s::text[]) OR n.encoding_of = %s
         GROUP BY n.kind, n.encoding_of, n.output_table) l ON l.drift_id = d.drift_id
 ORDER BY d.drift_id, d.psi DESC NULLS LAST, d.unseen DESC, d.column_name LIMIT %s
"""


def goal_of(source: Source, run_id: int) -> str:
    """Value that configurations of a run are ranked by: ``max`` or ``min`` of the first metric, or ``loss``."""
    rows = source.run(
        "SELECT c.goal FROM cerebro._configurations c WHERE c.run_id = %s LIMIT 1", (run_id,)
    )
    return str(rows[0][0]) if rows else LOSS


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in values or ())


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(math.nan if one is None else float(one) for one in values or ())
