"""Runs workloads with all their sides, one after another, on one server."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import database, export, floor, hops, machine, packing, predict, search, steps
from benchmarks.meter import Cost
from benchmarks.plan import cores, make_plan
from benchmarks.server import Server, server
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

PACKING, PREDICT, SEARCH = "packing", "predict", "search"
NAMES = (*WORKLOADS, PACKING, PREDICT, SEARCH)
_SEARCHED = ("tabular", "images")
SEEDS = search.SEEDS

_log = logging.getLogger(__name__)
_WORKERS = 2
_PACKING_ROWS, _PACKING_COLUMNS, _PACKING_REPEATS = 200_000, 64, 5


def run(
    names: Iterable[str],
    scale: float,
    workers: int | None,
    keep: Callable[[dict[str, Any]], None],
    dsn: str | None = None,
    exports: bool = True,
    seeds: int = SEEDS,
) -> dict[str, Any]:
    """Measure; returns what the report is made from, as plain values.

    Args:
        names: of workloads.
        scale: of each of them.
        workers: of every side, and processors; None for as many as segments, or 2.
        keep: gets what there is after each workload.
        dsn: of a server that runs already, whose processors are all that the machine has.
        exports: whether the side that reads the rows out is measured as well, which takes longest.
        seeds: how many searches of each method.
    """
    if dsn is None:
        workers = workers or _WORKERS
        machine.pin(workers)
    with server(dsn) as running:
        workers = workers or running.segments or _WORKERS
        results: dict[str, Any] = {"scale": scale, "workers": workers, "workloads": {}}
        results["segments"] = running.segments
        results["machine"] = machine.describe(running.version())
        for name in names:
            _log.info("%s", name)
            if name == PACKING:
                results[PACKING] = _packing(running, scale)
            elif name == PREDICT:
                results[PREDICT] = predict.measure(running, WORKLOADS["tabular"](scale), workers)
            elif name == SEARCH:
                for found in _searches(running, scale, workers, seeds):
                    results[SEARCH] = found
                    keep(results)
            else:
                with tempfile.TemporaryDirectory(prefix="cerebro-bench-") as folder:
                    workload = _placed(WORKLOADS[name](scale), running)
                    measured = _measure(running, workload, workers, Path(folder), exports)
                    results["workloads"][name] = measured
            keep(results)
    return results


def _searches(running: Server, scale: float, workers: int, seeds: int) -> Iterator[dict[str, Any]]:
    """What was measured so far, after each workload."""
    found: dict[str, Any] = {}
    for name in _SEARCHED:
        _log.info("  %s", name)
        with tempfile.TemporaryDirectory(prefix="cerebro-bench-") as folder:
            workload = WORKLOADS[name](scale)
            found[name] = search.measure(running, workload, workers, Path(folder), seeds)
            yield found


def _placed(workload: Workload, running: Server) -> Workload:
    """A workload with a partition for each segment, where there are any."""
    return replace(workload, partitions=running.segments or workload.partitions)


def _measure(
    running: Server, workload: Workload, workers: int, folder: Path, exports: bool
) -> dict[str, Any]:
    tables = database.load(running, workload)
    _log.info("  Cerebro-DB")
    packed = database.pack(running, tables, workload)
    runs = database.train(running, tables, workload, workers, 2 if workload.again else 1)
    plan = make_plan(running.dsn, database.request(tables, workload, workers, cores()), folder)
    cold = runs[0]
    sides = {
        "cerebro": _side(cold.cost, cold.accuracies),
        "cerebro with packing": _side(packed + cold.cost, cold.accuracies),
    }
    if workload.again:
        sides["cerebro, second run"] = _side(runs[1].cost, runs[1].accuracies)
    rotation = _rotation(running, tables, workload)
    if rotation is not None:
        sides["cerebro, rotation"] = _side(rotation.cost, rotation.accuracies)
    _log.info("  floor")
    cost, accuracies = floor.run(running, plan, workers, folder)
    sides["floor"] = _side(cost, accuracies)
    figures = _figures(runs, steps.measure(plan, folder) if workload.again else {})
    if rotation is not None:
        figures["rotation_hops_seconds"] = round(hops.span(rotation.hops), 2)
        figures["rotation_idle_share"] = round(hops.idle_share(rotation.hops), 4)
        figures["rotation_differs_by"] = _difference(cold.accuracies, rotation.accuracies)
        runs.append(rotation)
    figures["failed"] = {key: text for trained in runs for key, text in trained.errors.items()}
    for key, text in figures["failed"].items():
        _log.warning("  configuration %s failed, the figures mean nothing: %s", key, text)
    figures["floor_differs_by"] = _difference(cold.accuracies, accuracies)
    for side, onednn in (("export", False), ("export, oneDNN on", True)):
        if not exports or (onednn and not _convolves(workload)):
            continue
        _log.info("  %s", side)
        exported = export.run(running, tables.source, workload, plan.jobs, workers, folder, onednn)
        sides[side] = _side(exported.read + exported.train, exported.accuracies)
        figures[f"{side}: reading"] = exported.read.to_json()
    figures["pack"] = packed.to_json()
    figures["packed_mb"] = round(database.packed_bytes(running, tables) / 1e6, 1)
    figures["rows_mb"] = round((workload.features.nbytes + workload.labels.nbytes) / 1e6, 1)
    database.drop(running, tables)
    facts = workload.facts() | {"threads": plan.threads, "jit": any(job.jit for job in plan.jobs)}
    return {"facts": facts, "sides": sides, "figures": figures}


def _rotation(
    running: Server, tables: database.Tables, workload: Workload
) -> database.Trained | None:
    """The same in steps, where that can be and is asked for."""
    if not (running.segments and workload.in_steps):
        return None
    _log.info("  Cerebro-DB, rotation")
    return database.train(running, tables, workload, None, 1, "rotation")[0]


def _figures(runs: list[database.Trained], seconds: Mapping[int, float]) -> dict[str, Any]:
    cold = runs[0].hops
    found: dict[str, Any] = {
        "hops": len(cold),
        "idle_share": round(hops.idle_share(cold), 4),
        "hops_seconds": round(hops.span(cold), 2),
        "longest_to_shortest": round(hops.longest(cold), 1),
    }
    if seconds:
        warm = runs[-1].hops
        mean = sum(seconds[hop.mst_key] for hop in warm) / len(warm)
        found["hop_steps_ms"] = round(1000 * mean, 2)
        found["hop_overhead_ms"] = round(1000 * hops.overhead(warm, seconds), 2)
        found["hop_overhead_between_ms"] = round(1000 * hops.overhead_between(warm, seconds), 2)
    return found


def _side(cost: Cost, accuracies: Mapping[int, float]) -> dict[str, Any]:
    best = round(max(accuracies.values()), 4) if accuracies else None
    return cost.to_json() | {"accuracy": best, "trained": len(accuracies)}


def _difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The largest difference in accuracy of a configuration: zero where the weights are the same."""
    both = ours.keys() & theirs.keys()
    return max((abs(ours[key] - theirs[key]) for key in both), default=None)


def _convolves(workload: Workload) -> bool:
    return any("Conv2D" in architecture for architecture in workload.architectures)


def _packing(running: Server, scale: float) -> dict[str, Any]:
    rows = max(1000, round(_PACKING_ROWS * scale))
    costs = packing.measure(running.dsn, rows, _PACKING_COLUMNS, _PACKING_REPEATS)
    medians = {
        name: {"wall": _median([c.wall for c in listed]), "cpu": _median([c.cpu for c in listed])}
        for name, listed in costs.items()
    }
    return {"rows": rows, "columns": _PACKING_COLUMNS, "costs": medians}


def _median(values: list[float]) -> float:
    return round(sorted(values)[len(values) // 2], 3)
