"""Metrics of the runs of a database in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cerebro_db.core.statuses import DRIVEN, GOING_ON, RUNS
from cerebro_db.errors import CerebroError
from cerebro_db.watching import reading
from cerebro_db.watching.reading import Source

_OF_JOBS = (
    "queued", "running", "interrupted", "finished", "failed", "cancelled", "paused", "skipped",
)  # fmt: skip


class RunsCollector:
    """Collector that reads the catalog at each scrape; runs that the role may not see are not counted.

    Args:
        source: whose role counts.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Sequence[Metric]:
        """All metrics, of one moment."""
        return [
            self._runs(), *self._totals(), *self._going_on(), *self._workers(), *self._queue()
        ]  # fmt: skip

    def describe(self) -> Sequence[Metric]:
        """No metrics ahead of the first scrape: the catalog is not read for them."""
        return []

    def _runs(self) -> Metric:
        found = GaugeMetricFamily("cerebro_runs", "Runs by status", labels=["status"])
        self._count(found, "runs", RUNS)
        return found

    def _count(self, family: GaugeMetricFamily, view: str, known: Sequence[str]) -> None:
        """Rows of a view by status, those included of which there are none."""
        sql = f"SELECT status::text, count(*) FROM cerebro.{view} GROUP BY 1"
        counts = {str(status): int(count) for status, count in self._source.run(sql)}
        for status in sorted({*known, *counts}):
            family.add_metric([status], counts.get(status, 0))

    def _totals(self) -> list[Metric]:
        ((hops, rows, seconds),) = self._source.run(_TOTALS)
        return [
            CounterMetricFamily("cerebro_hops", "Hops committed, of all runs", value=hops),
            CounterMetricFamily("cerebro_rows", "Rows trained, of all runs", value=float(rows)),
            CounterMetricFamily("cerebro_training_seconds", "Seconds in hops", value=seconds),
        ]

    def _going_on(self) -> list[Metric]:
        labels = ["run_id", "name"]
        families = [
            GaugeMetricFamily(f"cerebro_run_{name}", text, labels=labels)
            for name, text in (
                ("hops_done", "Hops committed, of a run that goes on"),
                ("hops_planned", "Hops planned, of a run that goes on"),
                ("rows_per_second", "Rows trained a second, of a run that goes on"),
                ("configurations", "Configurations that have not failed"),
                ("configurations_failed", "Configurations that have failed or were cancelled"),
            )
        ]
        for run_id, name in self._source.run(_GOING_ON):
            pace = reading.pace(self._source, run_id)
            alive = pace.configurations - pace.failed
            values = (pace.done, pace.planned, pace.rows_per_second or 0, alive, pace.failed)
            for family, value in zip(families, values, strict=True):
                family.add_metric([str(run_id), name or ""], value)
        return list(families)

    def _workers(self) -> list[Metric]:
        labels = ["run_id"]
        idle = GaugeMetricFamily(
            "cerebro_run_idle_ratio",
            "Share of the time of its workers without a hop",
            labels=labels,
        )
        memory = GaugeMetricFamily(
            "cerebro_run_trainers_memory_bytes", "Largest memory of its trainers, added up",
            labels=labels,
        )  # fmt: skip
        count = GaugeMetricFamily("cerebro_run_workers", "Workers that have hopped", labels=labels)
        for run_id, workers, share, megabytes in self._source.run(_WORKERS):
            of_run = [str(run_id)]
            idle.add_metric(of_run, share)
            memory.add_metric(of_run, float(megabytes) * 2**20)
            count.add_metric(of_run, int(workers))
        return [idle, memory, count]

    def _queue(self) -> list[Metric]:
        """Jobs by status, where the installed version has a queue."""
        if self._source.run("SELECT to_regclass('cerebro.jobs')::text")[0][0] is None:
            return []
        found = GaugeMetricFamily("cerebro_jobs", "Jobs by status", labels=["status"])
        self._count(found, "jobs", _OF_JOBS)
        return [found]


_TOTALS = """
SELECT count(*), coalesce(sum(rows), 0), coalesce(sum(extract(epoch FROM finished - started)), 0)::double precision
  FROM cerebro.hops
"""
_GOING_ON = f"""
SELECT run_id, name FROM cerebro.runs WHERE status IN {GOING_ON} ORDER BY run_id
"""
_WORKERS = f"""
SELECT w.run_id, count(*), coalesce(sum(w.idle * w.seconds) / nullif(sum(w.seconds), 0), 0), sum(w.memory_mb)
  FROM cerebro._worker_times w JOIN cerebro.runs r ON r.run_id = w.run_id AND r.status IN {DRIVEN}
 GROUP BY w.run_id ORDER BY w.run_id
"""


def exposition(source: Source) -> str:
    """The text that Prometheus scrapes.

    Args:
        source: whose role counts; members of ``cerebro_admin`` see all runs.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunsCollector(source))
    return generate_latest(registry).decode()


class Opened(Source, Protocol):
    """A source that ends."""

    def close(self) -> None:
        """End it."""


class Scraped:
    """Collector that keeps one session for all scrapes, as a new one would begin with empty caches.

    Args:
        connect: makes a session.
    """

    def __init__(self, connect: Callable[[], Opened]) -> None:
        self._connect = connect
        self._source: Opened | None = None
        self._alone = threading.Lock()

    def collect(self) -> Sequence[Metric]:
        """All metrics; ``cerebro_up`` alone, with 0, where the database cannot be read."""
        with self._alone:
            had_session = self._source is not None
            found = self._found()
            if not found and had_session:  # which the server may have ended
                found = self._found()
        up = GaugeMetricFamily("cerebro_up", "Whether the database can be read", value=bool(found))
        return [up, *found]

    def _found(self) -> Sequence[Metric]:
        with suppress(CerebroError):
            try:
                self._source = self._source or self._connect()
                return RunsCollector(self._source).collect()
            except BaseException:
                self._close()
                raise
        return []

    def _close(self) -> None:
        """End the session, if there is one."""
        source, self._source = self._source, None
        if source is not None:
            with suppress(CerebroError):
                source.close()

    def describe(self) -> Sequence[Metric]:
        """No metrics ahead of the first scrape: the catalog is not read for them."""
        return []


def serve(connect: Callable[[], Opened], address: str, port: int) -> None:
    """Answer scrapes over HTTP, in threads that end with the process.

    Args:
        connect: makes a session.
        address: of this machine.
        port: of it.

    Raises:
        OSError: the port cannot be had.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Scraped(connect))
    start_http_server(port, address, registry)
