"""Runs workloads with all their sides, one after another, on one server."""

from __future__ import annotations

import logging
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import database, export, floor, hops, machine, packing, predict, search, steps
from benchmarks.meter import Cost
from benchmarks.plan import Plan, cores, make_plan
from benchmarks.server import Server, server
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

PACKING, PREDICT, SEARCH = "packing", "predict", "search"
NAMES = (*WORKLOADS, PACKING, PREDICT, SEARCH)
_SEARCHED = ("tabular", "images")
SEEDS = search.SEEDS

T = TypeVar("T")

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
    repeat: int = 1,
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
        repeat: times that Cerebro-DB and the floor are measured, one after the other; the median
            of each counts.
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
                    measured = _measure(running, workload, workers, Path(folder), exports, repeat)
                    results["workloads"][name] = measured
            keep(results)
    return results


def _searches(running: Server, scale: float, workers: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Figures that were measured so far, after each workload."""
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
    running: Server, workload: Workload, workers: int, folder: Path, exports: bool, repeat: int
) -> dict[str, Any]:
    tables = database.load(running, workload)
    _log.info("  Cerebro-DB")
    packed = database.pack(running, tables, workload)
    plan = make_plan(running.dsn, database.request(tables, workload, workers, cores()), folder)
    turns = [_turn(running, tables, workload, workers, plan, folder) for _ in range(repeat)]
    runs = _middle([turn.runs for turn in turns], lambda runs: runs[0].cost)
    cold = runs[0]
    sides, accuracies = _sides(turns, packed)
    rotation = _rotation(running, tables, workload)
    if rotation is not None:
        sides["cerebro, rotation"] = _side(rotation.cost, rotation.accuracies)
    figures = _figures(runs, steps.measure(plan, folder) if workload.again else {})
    figures["turns"] = [turn.seconds() for turn in turns]
    for ratio, values in ratios(figures["turns"]).items():
        figures[ratio] = round(statistics.median(values), 4)
    if rotation is not None:
        figures["rotation_hops_seconds"] = round(hops.span(rotation.hops), 2)
        figures["rotation_idle_share"] = round(hops.idle_share(rotation.hops), 4)
        figures["rotation_differs_by"] = _difference(cold.accuracies, rotation.accuracies)
        runs.append(rotation)
    figures["failed"] = {key: text for trained in runs for key, text in trained.errors.items()}
    for key, text in figures["failed"].items():
        _log.warning("  configuration %s failed, the figures mean nothing: %s", key, text)
    figures["floor_differs_by"] = _difference(cold.accuracies, accuracies)
    if exports:
        _export(running, tables, workload, plan, workers, folder, sides, figures)
    figures["pack"] = packed.to_json()
    figures["packed_mb"] = round(database.packed_bytes(running, tables) / 1e6, 1)
    figures["rows_mb"] = round((workload.features.nbytes + workload.labels.nbytes) / 1e6, 1)
    database.drop(running, tables)
    facts = workload.facts() | {"threads": plan.threads, "jit": any(job.jit for job in plan.jobs)}
    return {"facts": facts, "sides": sides, "figures": figures}


@dataclass(frozen=True)
class _Turn:
    """Cerebro-DB and the floor, one after the other."""

    runs: list[database.Trained]
    streamed: database.Trained | None
    floor: tuple[Cost, dict[int, float]]

    def seconds(self) -> dict[str, float]:
        """Wall seconds of each side."""
        found = {"cerebro": self.runs[0].cost.wall, "floor": self.floor[0].wall}
        if self.streamed is not None:
            found["streaming"] = self.streamed.cost.wall
        return {side: round(wall, 2) for side, wall in found.items()}


def _turn(
    running: Server,
    tables: database.Tables,
    workload: Workload,
    workers: int,
    plan: Plan,
    folder: Path,
) -> _Turn:
    runs = database.train(running, tables, workload, workers, 2 if workload.again else 1)
    streamed = None
    if workload.streams:
        _log.info("  Cerebro-DB, streaming")
        streamed = database.train(running, tables, workload, workers, 1, caching=False)[0]
    _log.info("  floor")
    return _Turn(runs, streamed, floor.run(running, plan, workers, folder))


def _sides(turns: list[_Turn], packed: Cost) -> tuple[dict[str, Any], dict[int, float]]:
    """The sides in the middle of all turns, and the floor's accuracies."""
    runs = _middle([turn.runs for turn in turns], lambda runs: runs[0].cost)
    sides = {
        "cerebro": _side(runs[0].cost, runs[0].accuracies),
        "cerebro with packing": _side(packed + runs[0].cost, runs[0].accuracies),
    }
    if len(runs) > 1:
        sides["cerebro, second run"] = _side(runs[1].cost, runs[1].accuracies)
    streamed = [turn.streamed for turn in turns if turn.streamed is not None]
    if streamed:
        middle = _middle(streamed, lambda run: run.cost)
        sides["cerebro, streaming"] = _side(middle.cost, middle.accuracies)
    cost, accuracies = _middle([turn.floor for turn in turns], lambda floor: floor[0])
    return sides | {"floor": _side(cost, accuracies)}, accuracies


def _export(
    running: Server,
    tables: database.Tables,
    workload: Workload,
    plan: Plan,
    workers: int,
    folder: Path,
    sides: dict[str, Any],
    figures: dict[str, Any],
) -> None:
    """The side that reads the rows out; adds to the sides and figures."""
    for side, onednn in (("export", False), ("export, oneDNN on", True)):
        if onednn and not _convolves(workload):
            continue
        _log.info("  %s", side)
        exported = export.run(running, tables.source, workload, plan.jobs, workers, folder, onednn)
        sides[side] = _side(exported.read + exported.train, exported.accuracies)
        figures[f"{side}: reading"] = exported.read.to_json()


def ratios(turns: list[dict[str, float]]) -> dict[str, list[float]]:
    """Wall seconds of Cerebro-DB to the floor's, and of streaming to memory, a value a turn."""
    found = {"to_floor": [turn["cerebro"] / turn["floor"] for turn in turns]}
    if all("streaming" in turn for turn in turns):
        found["streaming_to_memory"] = [turn["streaming"] / turn["cerebro"] for turn in turns]
    return found


def _middle(measured: list[T], cost: Callable[[T], Cost]) -> T:
    """The one whose wall seconds are in the middle."""
    return sorted(measured, key=lambda one: cost(one).wall)[(len(measured) - 1) // 2]


def _rotation(
    running: Server, tables: database.Tables, workload: Workload
) -> database.Trained | None:
    """The workload by rotation, on servers with segments."""
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
