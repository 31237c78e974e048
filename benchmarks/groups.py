"""Compare what the model of compute groups predicts with what they take.

    python -m benchmarks.groups [--workers 4] [--batch 64] [--steps 12] [--repeat 20]

Every worker is a process of its own, with one thread, as a trainer is. The model has three figures: seconds of a
gradient, of an update, and what each gradient adds to that. They are measured as strategy := 'groups' does, by probes
in which all workers are one group. Then all of them train together with 1 group, 2, 4 and so on. All figures are
medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerebro_db.training.environment import configure
from cerebro_db.training.peers.updates import GroupModel, halved

_ROWS, _CLASSES = (28, 28, 1), 10
_COMPILE = "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=0.01,momentum=0.9)'"
# Rounds with probes.
_PROBES = 5


def main() -> None:
    """Measure, and print a table."""
    given = _arguments()
    measured = dict(measure(given.workers, given.batch, given.steps, given.repeat))
    model: GroupModel = measured.pop(0)
    print(
        f"{given.workers} workers, {model.cores} cores, batch {given.batch}: gradient {1e3 * model.gradient:.2f} ms, "
        f"update {1e3 * model.update:.2f} ms, each gradient {1e3 * model.push:.2f} ms more"
    )
    print(f"{'groups':>6} {'measured':>10} {'predicted':>10} {'off':>6}")
    for groups, seconds in sorted(measured.items()):
        predicted = model.seconds(groups)
        off = predicted / seconds - 1
        print(f"{groups:6d} {1e3 * seconds:7.2f} ms {1e3 * predicted:7.2f} ms {off:+6.0%}")


def measure(workers: int, batch: int, steps: int, repeat: int) -> Iterator[tuple[int, Any]]:
    """Yields 0 with the model, and each number of groups with the seconds of an update.

    Args:
        workers: processes.
        batch: rows of a gradient.
        steps: of each worker in a round.
        repeat: rounds of each number of groups.
    """
    context = multiprocessing.get_context("spawn")
    name, secret = f"groups-{secrets.token_hex(8)}", secrets.token_bytes(16)
    barrier, found = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(
            target=_work, args=(rank, workers, batch, steps, repeat, name, secret, barrier, found)
        )
        for rank in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        for _ in range(1 + len(list(halved(workers)))):
            yield found.get()
    finally:
        for process in processes:
            process.join()


def _work(
    rank: int,
    workers: int,
    batch: int,
    steps: int,
    repeat: int,
    name: str,
    secret: bytes,
    barrier: Any,
    found: Any,
) -> None:
    configure(1, False, None)
    from cerebro_db.training.hop import HopTask, RoundPart
    from cerebro_db.training.partitions import Buffers, PartitionCache, RowOrder
    from cerebro_db.training.peers.group import ParameterServerHop
    from cerebro_db.training.peers.parameter_server import ServedRound
    from cerebro_db.training.peers.peers import ProcessGroup
    from cerebro_db.training.programs import Programs
    from cerebro_db.training.state import to_bytes

    recipe, programs, cache = _recipe(batch), Programs(), PartitionCache(0)
    rows = batch * steps
    generator = np.random.default_rng(rank)
    x = generator.normal(size=(rows, *_ROWS)).astype(np.float32)
    y = generator.integers(0, _CLASSES, rows).astype(np.int32)
    program, _ = programs.get(recipe)
    state = to_bytes(program.initial_state(recipe, 7, None))
    order = RowOrder(0, 1, rank, "salt", False)
    numbers = [None] * _PROBES + [one for one in halved(workers) for _ in range(repeat)]

    def trained(groups: int | None, number: int) -> ParameterServerHop:
        process_group = ProcessGroup(f"{name}-{number}", secret, workers, rank, rank == 0)
        asked = ServedRound(groups, (steps,) * workers, probe_steps=0 if groups else steps)
        part = RoundPart(rank, (0, rows), process_group=process_group, steps=steps, served=asked)
        task = HopTask(
            recipe, order, Buffers((0,), (rows,)), (1, "training", rank), 7, False, part=part
        )
        hop = ParameterServerHop(task, state, None, programs, cache, lambda: None)
        hop.feed(0, 0, x, y)
        hop.finish()
        return hop

    models: list[GroupModel] = []
    seconds: dict[int, list[float]] = {}
    for number, groups in enumerate(numbers):
        barrier.wait()
        hop = trained(groups, number)
        if hop.model is not None:
            models.append(hop.model)
        elif hop.record is not None and groups is not None:
            seconds.setdefault(groups, []).append(hop.record.seconds / (steps * groups))
    if rank == 0:
        found.put((0, _median(models)))
        for groups, values in seconds.items():
            found.put((groups, statistics.median(values)))


def _median(models: Sequence[GroupModel]) -> GroupModel:
    """A measurement with the median of each figure."""
    return replace(
        models[0],
        **{
            name: statistics.median(getattr(one, name) for one in models)
            for name in ("gradient", "update", "push")
        },
    )


def _recipe(batch: int) -> Any:
    import json

    import keras

    from cerebro_db.configs.architectures.architecture import check_architecture, fingerprint
    from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
    from cerebro_db.training.recipe import Recipe
    from cerebro_db.training.scores.targets import TargetFacts

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(_ROWS),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(_CLASSES, activation="softmax"),
        ]
    )
    config = check_architecture(json.dumps(json.loads(model.to_json())))
    fit = parse_fit_params(f"batch_size={batch}")
    targets = TargetFacts("class", _CLASSES, ())
    return Recipe(
        config, fingerprint(config), parse_compile_params(_COMPILE), fit, targets, False, 10
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
