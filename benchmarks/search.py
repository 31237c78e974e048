"""Searches: what they save against a full grid, against Optuna beside exported data, and how idle workers are.

    python -m benchmarks.search [tabular] [images] [--methods asha,hyperband,bohb,tpe,optuna] [--seeds 0,1,2,3,4] [--json FILE]

A line for the grid, and one for each search as soon as it has ended. ``python -m benchmarks search`` measures all of
it and shows the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exchange, hops
from benchmarks.architectures import cnn, mlp
from benchmarks.crew import run_jobs
from benchmarks.database import load_apart
from benchmarks.machine import pin
from benchmarks.meter import Cost, used_by
from benchmarks.server import Server
from benchmarks.server import server as started
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS

# The grid has 27 configurations, as the largest bracket of Hyperband has where a trial may have 27 epochs.
EPOCHS, ETA, SEEDS = 27, 3, 5
_PARTITIONS, _VALIDATION = 4, 0.2
_RATES, _BATCHES = (0.0001, 0.001, 0.01), (32, 128, 512)
_METHODS = {
    "hyperband": f"R={EPOCHS}, eta={ETA}",
    "asha": f"num_configs=27, R={EPOCHS}, eta={ETA}",
    "bohb": f"R={EPOCHS}, eta={ETA}",
}
_TPE = f"num_configs=16, num_iterations={ETA}"
# Beside Optuna: trials, and epochs that each may have, of both sides.
_TRIALS, _PEER_EPOCHS = 20, 9
_BESIDE = f"num_configs={_TRIALS}, R={_PEER_EPOCHS}, eta={ETA}"
# Points, of 100, by which a model may be below the grid's best.
_NEAR = 0.5
_TABLES = ("", "_info", "_summary", "_states", "_history")
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


def measure(
    server: Server, workload: Workload, workers: int, folder: Path, seeds: int = SEEDS
) -> dict[str, Any]:
    """A grid of 27, searches of the same space with several seeds, and Optuna beside exported rows.

    Args:
        server: that trains.
        workload: whose rows are split; its own grid is not used.
        workers: of every side.
        folder: for exported rows.
        seeds: how many searches of each method.
    """
    course = Course(server, workload, workers, folder)
    found: dict[str, Any] = {"grid": course.grid(), "rows": course.rows}
    found["searches"] = {
        method: [course.search(method, seed) for seed in range(seeds)] for method in _METHODS
    }
    runs = [*found["searches"].items(), ("tpe", [course.search("tpe", 0)])]
    found["idle"] = {method: max(one["idle"] for one in each) for method, each in runs}
    found["beside"] = [course.beside(seed) for seed in range(seeds)]
    found["optuna"] = [course.optuna(seed) for seed in range(seeds)]
    course.drop()
    return found


class Course:
    """A workload on a server, and the sides that search it.

    Attributes:
        rows: that are trained on.
    """

    def __init__(self, server: Server, workload: Workload, workers: int, folder: Path) -> None:
        self._server, self._workers, self._folder = server, workers, folder
        self._workload = replace(workload, architectures=_architectures(workload))
        self.rows = _load(server, self._workload)

    def grid(self) -> dict[str, Any]:
        """All configurations, each for all epochs."""
        return self._search("grid", f"num_iterations={EPOCHS}", 0)

    def search(self, method: str, seed: int) -> dict[str, Any]:
        """A search of the same space."""
        return self._search(method, _TPE if method == "tpe" else _METHODS[method], seed)

    def beside(self, seed: int) -> dict[str, Any]:
        """The search that Optuna's is compared with."""
        return self._search("asha", _BESIDE, seed)

    def optuna(self, seed: int) -> dict[str, Any]:
        """The peer."""
        return _optuna(self._server, self._workload, seed, self._workers, self._folder)

    def _search(self, method: str, params: str, seed: int) -> dict[str, Any]:
        return _search(self._server, self._workload, method, params, seed, self._workers)

    def drop(self) -> None:
        """Remove the tables."""
        _drop(self._server, self._workload)


def _architectures(workload: Workload) -> tuple[str, ...]:
    shape, classes = workload.features.shape[1:], int(workload.labels.max()) + 1
    if len(shape) == 1:
        return tuple(mlp(shape, units, units, classes=classes) for units in (32, 64, 128))
    return tuple(cnn(shape, (units, 2 * units), 64, classes) for units in (8, 16, 32))


def _load(server: Server, workload: Workload) -> int:
    """Rows, packed with a fifth of them apart, and architectures; returns the rows to train on."""
    order = np.random.default_rng(0).permutation(len(workload.features))
    count = round(len(order) * (1 - _VALIDATION))
    partitions = server.segments or _PARTITIONS
    with server.session() as cursor:
        load_apart(cursor, workload, order[:count], order[count:], partitions)
    return count


def _search(
    server: Server, workload: Workload, method: str, params: str, seed: int, workers: int
) -> dict[str, Any]:
    """Search in a fresh session; cost, best accuracy and by when, and the idle share of the workers."""
    name, out = workload.name, f"{workload.name}_out"
    compiling = {
        "loss": [workload.loss],
        "optimizer_params_list": [{"optimizer": ["Adam"], "learning_rate": list(_RATES)}],
        "metrics": [["accuracy"]],
    }
    model_ids = list(range(1, len(workload.architectures) + 1))
    with server.session() as cursor:
        with server.meter.traced() as (cost, trace):
            cursor.execute(
                "SELECT cerebro_search(%s, %s, %s, NULL, %s, %s, %s, %s, %s, "
                "validation_table := %s, objective := 'val_accuracy', seed := %s, "
                "num_workers := %s)",
                (
                    f"{name}_packed", out, f"{name}_models", model_ids, str(compiling),
                    str({"batch_size": list(_BATCHES)}), method, params, f"{name}_val_packed",
                    seed, workers,
                ),
            )  # fmt: skip
            ((run_id,),) = cursor.fetchall()
        cursor.execute(
            "SELECT best_objective, epochs FROM cerebro.searches WHERE run_id = %s", (run_id,)
        )
        accuracy, epochs = cursor.fetchone()
        idle = hops.idle_share(hops.read(cursor, run_id))
        cursor.execute(_ACCURACIES, (run_id,))
        curve = _curve([(used_by(trace, moment), float(one)) for moment, one in cursor.fetchall()])
        cursor.execute(f"DROP TABLE {', '.join(out + suffix for suffix in _TABLES)}")
    more = {"epochs": int(epochs), "idle": round(idle, 4), "curve": curve}
    return _side(cost, float(accuracy)) | more


_ACCURACIES = """
SELECT (extract(epoch FROM r.started) + m.elapsed)::float8, m.metrics[1]
  FROM cerebro.metrics m JOIN cerebro.runs r ON r.run_id = m.run_id
 WHERE m.run_id = %s AND m.dataset = 'validation' ORDER BY 1
"""


def _curve(measured: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """CPU seconds by which the best accuracy so far has become better, and that accuracy."""
    found: list[tuple[float, float]] = []
    for cpu, accuracy in measured:
        if not found or accuracy > found[-1][1]:
            found.append((round(cpu, 2), round(accuracy, 4)))
    return found


def _side(cost: Cost, accuracy: float) -> dict[str, Any]:
    return cost.to_json() | {"accuracy": round(accuracy, 4)}


def _drop(server: Server, workload: Workload) -> None:
    names = [f"{workload.name}_{part}" for part in ("train", "val", "packed", "val_packed")]
    names += [f"{name}_summary" for name in names[2:]]
    with server.session() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")


# -- the peer ----------------------------------------------------------------------------------------
def _optuna(
    server: Server, workload: Workload, seed: int, processes: int, folder: Path
) -> dict[str, Any]:
    """Random trials with successive halving, in processes that share a study; rows are read once."""
    name = workload.name
    with server.session() as cursor, server.meter.measure() as read:
        for part in ("train", "val"):
            x, y = exchange.read(cursor, f"{name}_{part}", workload.features.shape[1:])
            np.save(folder / f"{part}-x.npy", x)
            np.save(folder / f"{part}-y.npy", y)
    journal = folder / f"study-{seed}.log"
    journal.unlink(missing_ok=True)
    jobs = list(range(_TRIALS))
    with server.meter.measure() as cost:
        arguments = (str(folder), str(journal), workload.architectures, workload.loss, seed)
        best = run_jobs(prepare, arguments, jobs, processes, _ENVIRONMENT)
    return _side(read + cost, max(best))


def prepare(
    folder: str, journal: str, architectures: tuple[str, ...], loss: str, seed: int
) -> Callable[[int], float]:
    """In each process: import TensorFlow, load the rows, open the study; returns what makes a trial."""
    import keras
    import optuna
    import tensorflow as tf
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    arrays = {
        part: (np.load(f"{folder}/{part}-x.npy"), np.load(f"{folder}/{part}-y.npy"))
        for part in ("train", "val")
    }
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(journal)),
        study_name="peer",
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA),
    )

    def trial(number: int) -> float:
        study.sampler = optuna.samplers.RandomSampler(seed=seed * 1000 + number)
        asked = study.ask()
        keras.utils.set_random_seed(seed * 1000 + number)
        model = keras.models.model_from_json(
            architectures[asked.suggest_int("architecture", 0, len(architectures) - 1)]
        )
        rate = asked.suggest_categorical("learning_rate", _RATES)
        model.compile(
            optimizer=keras.optimizers.Adam(learning_rate=rate), loss=loss, metrics=["accuracy"]
        )
        batch = asked.suggest_categorical("batch_size", _BATCHES)
        return _fit(study, asked, model, arrays, batch)

    return trial


def _fit(study: Any, asked: Any, model: Any, arrays: Any, batch: int) -> float:
    """Train a trial epoch by epoch, as far as the pruner lets it."""
    import optuna

    best = 0.0
    for epoch in range(1, _PEER_EPOCHS + 1):
        history = model.fit(
            *arrays["train"], batch_size=batch, epochs=1, verbose=0, validation_data=arrays["val"]
        )
        accuracy = float(history.history["val_accuracy"][-1])
        best = max(best, accuracy)
        asked.report(accuracy, epoch)
        if epoch < _PEER_EPOCHS and asked.should_prune():
            study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            return best
    study.tell(asked, accuracy)
    return best


# -- figures -----------------------------------------------------------------------------------------
def near(found: dict[str, Any], one: dict[str, Any]) -> float:
    """CPU seconds of a search until its best is within half a point of the grid's; infinite for never."""
    least = found["grid"]["accuracy"] - _NEAR / 100
    return next((cpu for cpu, accuracy in one["curve"] if accuracy >= least), math.inf)


def saved(found: dict[str, Any], method: str) -> float:
    """The least ratio, over the seeds, of the grid's CPU time to that until a search comes near its best."""
    return min(found["grid"]["cpu"] / near(found, one) for one in found["searches"][method])


def missed(found: dict[str, Any], method: str) -> float:
    """Points of accuracy, of 100, by which the worst of the seeds is below the grid's best."""
    return max(
        100 * (found["grid"]["accuracy"] - one["accuracy"]) for one in found["searches"][method]
    )


def faster(found: dict[str, Any]) -> float:
    """Median wall time of Optuna's searches to that of ours with the same pruner."""
    return _median(found["optuna"], "wall") / _median(found["beside"], "wall")


def worse(found: dict[str, Any]) -> float:
    """Points by which ours are below Optuna's, by the medians."""
    return 100 * (_median(found["optuna"], "accuracy") - _median(found["beside"], "accuracy"))


def _median(runs: list[dict[str, Any]], name: str) -> float:
    return statistics.median(float(one[name]) for one in runs)


# -- one by one --------------------------------------------------------------------------------------
def main() -> None:
    """Measure the searches of the command line, and show each result at once."""
    arguments = _arguments()
    pin(arguments.workers)
    results: dict[str, Any] = {}
    with started() as running, tempfile.TemporaryDirectory(prefix="cerebro-bench-") as folder:
        for name in arguments.workloads or ["tabular", "images"]:
            workload = WORKLOADS[name](1.0)
            course = Course(running, workload, arguments.workers, Path(folder))
            results[name] = found = {"grid": course.grid(), "searches": {}}
            print(f"{name} grid: {_shown(found['grid'])}", flush=True)
            for method in arguments.methods:
                for seed in arguments.seeds:
                    for side, one in _sides(course, method, seed):
                        found["searches"].setdefault(side, []).append(one)
                        print(
                            f"{name} {side} {seed}: {_shown(one)}{_beside(found, one)}", flush=True
                        )
                    if arguments.json:
                        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
            course.drop()


def _sides(course: Course, method: str, seed: int) -> list[tuple[str, dict[str, Any]]]:
    if method == "optuna":
        return [("asha beside optuna", course.beside(seed)), ("optuna", course.optuna(seed))]
    return [(method, course.search(method, seed))]


def _shown(one: dict[str, Any]) -> str:
    more = f", {one['epochs']} epochs, idle {100 * one['idle']:.1f} %" if "idle" in one else ""
    return f"wall {one['wall']:.1f} s, CPU {one['cpu']:.1f} s, accuracy {one['accuracy']:.4f}{more}"


def _beside(found: dict[str, Any], one: dict[str, Any]) -> str:
    """Results of searches of the space of the grid, beside the grid's."""
    if "curve" not in one:
        return ""
    grid, below = found["grid"], 100 * (found["grid"]["accuracy"] - one["accuracy"])
    return f", {below:.2f} points below the grid, near by 1/{grid['cpu'] / near(found, one):.2f} of its CPU"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", choices=["tabular", "images", []])
    parser.add_argument("--workers", type=int, default=2, help="and processors, for every side")
    parser.add_argument("--methods", type=_listed, default=[*_METHODS, "tpe", "optuna"])
    parser.add_argument(
        "--seeds", type=lambda text: [int(one) for one in text.split(",")], default=[*range(SEEDS)]
    )
    parser.add_argument("--json", type=Path, help="where the results are written")
    return parser.parse_args()


def _listed(text: str) -> Sequence[str]:
    known = [*_METHODS, "tpe", "optuna"]
    if unknown := set(text.split(",")) - set(known):
        raise argparse.ArgumentTypeError(f"got {', '.join(sorted(unknown))}; allowed: {known}")
    return text.split(",")


if __name__ == "__main__":
    main()
