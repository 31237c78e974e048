"""The catalog of runs: what is written while one goes on, each call one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cerebro_db.database.sessions import Session, Tick
from cerebro_db.errors import CerebroError


@dataclass(frozen=True)
class RunRow:
    """What is known of a run when it starts."""

    name: str | None
    description: str | None
    source_table: str
    validation_table: str | None
    model_output_table: str
    model_selection_table: str
    num_iterations: int
    metrics_compute_frequency: int
    warm_start: bool
    seed: int
    num_partitions: int
    num_workers: int
    threads: int


@dataclass(frozen=True)
class ConfigurationRow:
    """What is known of a configuration when its run starts."""

    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    hop_seconds: float
    initial_seed: int
    jit: bool
    steps_per_call: int
    goal: str


@dataclass(frozen=True)
class MetricRow:
    """Results of one configuration on one data set after one epoch."""

    mst_key: int
    epoch: int
    dataset: str
    loss: float
    names: list[str]
    metrics: list[float]
    elapsed: float


class Catalog:
    """Writes of one driver, through a session of its own.

    Args:
        session: nothing else uses it meanwhile.
        tick: called while waiting.
    """

    def __init__(self, session: Session, tick: Tick) -> None:
        self._session, self._tick = session, tick

    def settings(self) -> dict[str, str]:
        """What administrators have set."""
        return dict(self._run("SELECT name, value FROM cerebro.catalog_settings"))

    def new_run(self, row: RunRow, configurations: Sequence[ConfigurationRow]) -> int:
        """Register a run and its configurations; returns the run_id."""
        columns = list(vars(row))
        sql = (
            f"INSERT INTO cerebro.catalog_runs ({', '.join(columns)}, manifest, status, driver_pid) "
            f"VALUES ({', '.join(['%s'] * len(columns))}, '{{}}', 'starting', %s) RETURNING run_id"
        )
        run_id = int(self._run(sql, [*vars(row).values(), self._session.pid])[0][0])
        columns = list(vars(configurations[0]))
        values = f"(%s, 'waiting', {', '.join(['%s'] * len(columns))})"
        self._run(
            f"INSERT INTO cerebro.catalog_configurations (run_id, status, {', '.join(columns)}) "
            f"VALUES {', '.join([values] * len(configurations))}",
            [value for row in configurations for value in (run_id, *vars(row).values())],
        )
        return run_id

    def started(self, run_id: int, manifest: Mapping[str, Any]) -> None:
        """The workers are ready."""
        self._run(
            "UPDATE cerebro.catalog_runs SET status = 'running', started = clock_timestamp(), "
            "manifest = %s WHERE run_id = %s",
            [json.dumps(manifest, sort_keys=True), run_id],
        )
        self._run(
            "UPDATE cerebro.catalog_configurations SET status = 'training' WHERE run_id = %s",
            [run_id],
        )

    def add_plan(self, run_id: int, visits: Sequence[Any]) -> None:
        """Store what has been planned, before any of it is done."""
        fields = ("epoch", "mst_key", "position", "partition_key")
        columns = [[getattr(visit, field) for visit in visits] for field in fields]
        self._run(
            f"INSERT INTO cerebro.catalog_plan (run_id, {', '.join(fields)}) "
            "SELECT %s, t.* FROM unnest(%s::int[], %s::int[], %s::int[], %s::int[]) AS t",
            [run_id, *columns],
        )

    def add_metrics(self, run_id: int, rows: Sequence[MetricRow]) -> None:
        """Store results."""
        for row in rows:
            self._run(
                "INSERT INTO cerebro.catalog_metrics (run_id, mst_key, epoch, dataset, loss, "
                "metric_names, metrics, elapsed) "
                "VALUES (%s, %s, %s, %s, %s, %s::text[], %s::double precision[], %s)",
                [run_id, *vars(row).values()],
            )

    def configuration_ended(
        self, run_id: int, mst_key: int, status: str, error: str | None
    ) -> None:
        """A configuration is finished or failed."""
        self._run(
            "UPDATE cerebro.catalog_configurations SET status = %s, error = %s "
            "WHERE run_id = %s AND mst_key = %s",
            [status, error, run_id, mst_key],
        )

    def run_ended(self, run_id: int, status: str, error: str | None = None) -> None:
        """A run is finished, failed or cancelled."""
        self._run(
            "UPDATE cerebro.catalog_runs SET status = %s, error = %s, finished = clock_timestamp() "
            "WHERE run_id = %s",
            [status, error, run_id],
        )

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the dialect."""
        return self._run(sql, parameters)

    def execute_quietly(self, sql: str) -> None:
        """Run a statement of a clean-up, which must not hide what went wrong."""
        with suppress(CerebroError):
            if not self._session.busy and not self._session.closed:
                self._session.run(sql)

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._session.run(sql, parameters, self._tick)
