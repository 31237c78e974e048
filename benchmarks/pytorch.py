"""PyTorch models in the database, beside what a PyTorch user writes: rows copied out, DataLoaders, two processes.

    python -m benchmarks.pytorch [tabular images toy] [--scale 1] [--workers 2] [--repeat 1] [--json FILE]

All sides train the same modules from the same weights, by Adam, a processor each process. The side of Cerebro-DB has
packing in it; the peer has reading the rows in it. "in memory" is the loop of the peer without a DataLoader: batches are
rows of a tensor. ``toy`` compares with Keras instead: the first and the second run of a session, a hop, and memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import database, exchange
from benchmarks.crew import run_jobs
from benchmarks.machine import pin
from benchmarks.meter import Cost
from benchmarks.server import Server
from benchmarks.server import server as started
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

_SEED = 1
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_HOPS = """
SELECT avg(extract(epoch FROM finished - started) - trained), max(memory_mb)
  FROM cerebro.hops WHERE run_id = %s AND NOT compiled
"""


class Job(NamedTuple):
    """A configuration."""

    name: str
    learning_rate: float
    batch_size: int


def module(name: str) -> Any:
    """The net of a workload, with weights that are the same for all sides."""
    import torch
    from torch import nn

    torch.manual_seed(_SEED)
    if name == "images":
        return nn.Sequential(
            nn.Flatten(), nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip
    sizes = (64, 128, 128, 10) if name == "tabular" else (4, 10, 10, 3)
    layers = [
        one
        for before, after in itertools.pairwise(sizes)
        for one in (nn.Linear(before, after), nn.ReLU())
    ]
    return nn.Sequential(*layers[:-1])


def jobs(workload: Workload) -> list[Job]:
    """The configurations, the slowest ones first."""
    return [
        Job(workload.name, rate, size)
        for size in sorted(workload.batch_sizes)
        for rate in workload.learning_rates
    ]


# -- Cerebro-DB ---------------------------------------------------------------------------------
def load(server: Server, workload: Workload) -> None:
    """Rows and architectures, of PyTorch and of Keras; not measured."""
    import torch

    import cerebro_db

    database.load(server, workload)
    rows = torch.zeros(2, *workload.features.shape[1:])
    with cerebro_db.connect(server.dsn) as client:
        client.load_model(f"{workload.name}_nets", module(workload.name), example_inputs=(rows,))
    with server.session() as cursor:
        grid = (
            f"{{'loss': ['cross_entropy'], 'metrics': ['accuracy'], 'optimizer_params_list': "
            f"[{{'optimizer': ['Adam'], 'lr': {list(workload.learning_rates)}}}]}}"
        )
        cursor.execute(
            "SELECT cerebro_generate_configs(%s, %s, ARRAY[1], %s, %s)",
            (
                f"{workload.name}_nets", f"{workload.name}_torch", grid,
                f"{{'batch_size': {list(workload.batch_sizes)}}}",
            ),
        )  # fmt: skip


def cerebro(server: Server, workload: Workload, workers: int) -> tuple[Cost, float]:
    """Packing and training in a fresh session."""
    name = workload.name
    with server.session() as cursor:
        cursor.execute(
            f"DROP TABLE IF EXISTS {name}_packed, {name}_packed_summary, {name}_out, {name}_out_info, "
            f"{name}_out_summary, {name}_out_states"
        )
        with server.meter.measure() as cost:
            cursor.execute(
                "SELECT cerebro_pack(%s, %s, 'y', 'x', num_partitions := %s)",
                (f"{name}_source", f"{name}_packed", workload.partitions),
            )
            run_id = _fit(cursor, name, f"{name}_torch", workload.epochs, workers)
        cursor.execute(
            "SELECT max(training_metrics[1]) FROM cerebro.leaderboard WHERE run_id = %s", (run_id,)
        )
        return cost, float(cursor.fetchone()[0])


def _fit(cursor: Any, name: str, configurations: str, epochs: int, workers: int) -> int:
    cursor.execute(
        "SELECT cerebro_fit_multiple(%s, %s, %s, %s, num_workers := %s, replace := true)",
        (f"{name}_packed", f"{name}_out", configurations, epochs, workers),
    )
    return int(cursor.fetchone()[0])


# -- peers --------------------------------------------------------------------------------------
def exported(
    server: Server, workload: Workload, workers: int, folder: Path, kind: str
) -> tuple[Cost, float]:
    """The rows read out, then training in processes of their own."""
    with server.session() as cursor, server.meter.measure() as read:
        shape = workload.features.shape[1:]
        features, labels = exchange.read(cursor, f"{workload.name}_source", shape)
        np.save(folder / "x.npy", features)
        np.save(folder / "y.npy", labels)
    with server.meter.measure() as train:
        arguments = (str(folder), workload.epochs, kind)
        found = run_jobs(prepare, arguments, jobs(workload), workers, _ENVIRONMENT)
    return read + train, max(found)


def prepare(folder: str, epochs: int, kind: str) -> Callable[[Job], float]:
    """In each process: import PyTorch, load the rows; returns what trains a configuration."""
    import torch

    torch.set_num_threads(1)
    features = torch.from_numpy(np.load(f"{folder}/x.npy"))
    labels = torch.from_numpy(np.load(f"{folder}/y.npy")).long()
    batches = _loader if kind == "DataLoader" else _in_memory
    return lambda job: _train(torch, job, batches(torch, features, labels, job), epochs)


def _loader(torch: Any, features: Any, labels: Any, job: Job) -> Callable[[], Any]:
    rows = torch.utils.data.TensorDataset(features, labels)
    loader = torch.utils.data.DataLoader(rows, batch_size=job.batch_size, shuffle=True)
    return lambda: loader


def _in_memory(torch: Any, features: Any, labels: Any, job: Job) -> Callable[[], Any]:
    def batches() -> Any:
        order = torch.randperm(len(features))
        for start in range(0, len(order), job.batch_size):
            rows = order[start : start + job.batch_size]
            yield features[rows], labels[rows]

    return batches


def _train(torch: Any, job: Job, batches: Callable[[], Any], epochs: int) -> float:
    net = module(job.name).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=job.learning_rate)
    loss_of = torch.nn.CrossEntropyLoss()
    right = rows = 0
    for _ in range(epochs):
        right = rows = 0
        for features, labels in batches():
            optimizer.zero_grad()
            logits = net(features)
            loss_of(logits, labels).backward()
            optimizer.step()
            right += int((logits.argmax(1) == labels).sum())
            rows += len(labels)
    return right / rows


# -- measuring ----------------------------------------------------------------------------------
def measure(server: Server, workload: Workload, workers: int, repeat: int) -> dict[str, Any]:
    """Medians of the sides, and the ratios of their wall seconds to that of Cerebro-DB."""
    load(server, workload)
    turns: dict[str, list[tuple[Cost, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="cerebro-bench-") as folder:
        for _ in range(repeat):
            turns.setdefault("cerebro", []).append(cerebro(server, workload, workers))
            for kind in ("DataLoader", "in memory"):
                found = exported(server, workload, workers, Path(folder), kind)
                turns.setdefault(kind, []).append(found)
    sides = {
        side: {
            "wall": round(statistics.median(cost.wall for cost, _ in found), 2),
            "cpu": round(statistics.median(cost.cpu for cost, _ in found), 2),
            "others": round(max(cost.others for cost, _ in found), 2),
            "accuracy": round(found[-1][1], 4),
        }
        for side, found in turns.items()
    }
    ours = sides["cerebro"]["wall"]
    ratios = {side: round(one["wall"] / ours, 2) for side, one in sides.items()}
    return {"facts": workload.facts(), "sides": sides, "ratios": ratios}


def measure_toy(server: Server, workload: Workload, workers: int, repeat: int) -> dict[str, Any]:
    """Both frameworks: the first and second run of a session, a hop less its steps, memory of a trainer."""
    load(server, workload)
    with server.session() as cursor:
        cursor.execute(
            "SELECT cerebro_pack('toy_source', 'toy_packed', 'y', 'x', num_partitions := 2)"
        )
    found: dict[str, Any] = {}
    for framework, configurations in (("keras", "toy_configurations"), ("torch", "toy_torch")):
        rows = []
        for _ in range(repeat):
            with server.session() as cursor:
                with server.meter.measure() as first:
                    _fit(cursor, "toy", configurations, workload.epochs, workers)
                with server.meter.measure() as second:
                    run_id = _fit(cursor, "toy", configurations, workload.epochs, workers)
                cursor.execute(_HOPS, (run_id,))
                hop, memory = cursor.fetchone()
            rows.append((first.wall, second.wall, 1000 * float(hop), float(memory)))
        names = ("first_seconds", "second_seconds", "hop_ms", "trainer_mb")
        middle = [round(statistics.median(one), 2) for one in zip(*rows, strict=True)]
        found[framework] = dict(zip(names, middle, strict=True))
    return found


def main() -> None:
    """Measure, and print the figures of each workload."""
    arguments = _arguments()
    pin(arguments.workers)
    results: dict[str, Any] = {}
    with started() as running:
        for name in arguments.workloads or ("tabular", "images", "toy"):
            work = measure_toy if name == "toy" else measure
            workload = WORKLOADS[name](arguments.scale)
            results[name] = work(running, workload, arguments.workers, arguments.repeat)
            print(name, json.dumps(results[name]), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pytorch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ["tabular", "images", "toy", []]
    parser.add_argument("workloads", nargs="*", choices=names, metavar="WORKLOAD")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows (toy: epochs)")
    parser.add_argument("--workers", type=int, default=2, help="and processors, for every side")
    parser.add_argument("--repeat", type=int, default=1, help="turns; medians count")
    parser.add_argument("--json", type=Path, help="where the results are written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
