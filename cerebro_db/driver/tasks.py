"""JSON for workers, made from what a run knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from cerebro_db.configs.settings import Settings
from cerebro_db.database.packed import PackedTable
from cerebro_db.driver.fit_setup import Configuration, RunSetup
from cerebro_db.driver.scoreboard import TRAINING, Group
from cerebro_db.driver.worker_facts import input_task, target_task
from cerebro_db.planning.orders import Visit
from cerebro_db.training.shuffle import salt


def worker_task(
    run_id: int,
    threads: int | None,
    use_gpus: bool,
    cache_bytes: int,
    settings: Settings,
    places: Mapping[int, int] | None = None,
    keeps_errors: bool = False,
    functions: bool = False,
) -> str:
    """What makes a process a worker, where no call of its own can do that.

    Args:
        run_id: of the run, or NO_RUN.
        threads: None for as many as the process has already.
        use_gpus: whether it computes on them.
        cache_bytes: of decoded partitions that it may keep.
        settings: of the database.
        places: of each segment among those that share the GPUs of a host.
        keeps_errors: whether a visit that fails is told of, in place of an error of its statement.
        functions: whether it must know of registered ones. The catalog tells it of these, not we:
            a task can be anybody's.
    """
    return json.dumps(
        {
            "keeps_errors": keeps_errors,
            "functions": functions,
            "run_id": run_id,
            "threads": threads,
            "use_gpus": use_gpus,
            "places": places or {},
            "cache_bytes": cache_bytes,
            "settings": {
                field.name: str(getattr(settings, field.name))
                for field in fields(settings)
                if field.name != "worker_dsn"
            },
        }
    )


class TaskWriter:
    """Writes the tasks of one run.

    Args:
        setup: of the run.
        run_id: which one.
    """

    def __init__(self, setup: RunSetup, run_id: int) -> None:
        self._setup, self._run_id = setup, run_id
        targets = setup.targets
        self._targets = target_task(targets)
        self._inputs = input_task([one.shape for one in setup.packed.inputs])
        self._buffers = {TRAINING: _buffers(setup.packed)}
        self._weighted = {TRAINING: targets.weighted}
        if setup.validation is not None:
            self._buffers["validation"] = _buffers(setup.validation)
            self._weighted["validation"] = setup.validation.sample_weight is not None

    def salt(self, visit: Visit) -> str:
        """What places the buffers of a visit."""
        return salt(self._setup.request.seed or 0, visit.epoch, visit.partition_key)

    def visit(
        self,
        configuration: Configuration,
        visit: Visit,
        is_first: bool,
        learning_rate: float | None = None,
    ) -> str:
        """The task of a hop; the learning rate is that of the state where none is given."""
        return json.dumps(
            {
                **self._recipe(configuration),
                "run_id": self._run_id,
                "dataset": TRAINING,
                "partition_key": visit.partition_key,
                "buffers": self._buffers[TRAINING][visit.partition_key],
                "seed": self._setup.request.seed or 0,
                "epoch": visit.epoch,
                "salt": self.salt(visit),
                "initial_seed": configuration.initial_seed,
                "is_first": is_first,
                "begins_epoch": visit.position == 0,
                "learning_rate": learning_rate,
            }
        )

    def scan(self, dataset: str, partition_key: int) -> str:
        """What the configurations of a scan have in common."""
        return json.dumps(
            {
                "run_id": self._run_id,
                "dataset": dataset,
                "partition_key": partition_key,
                "buffers": self._buffers[dataset][partition_key],
                "targets": self._targets | {"weighted": self._weighted[dataset]},
                **self._inputs,
            }
        )

    def score(self, configuration: Configuration) -> str:
        """One configuration of a scan."""
        return json.dumps(self._recipe(configuration) | {"mst_key": configuration.mst_key})

    def trial(self, configurations: Iterable[Configuration]) -> str:
        """What finds out whether configurations can be scored."""
        tasks = [self._recipe(c) | {"mst_key": c.mst_key} for c in configurations]
        return json.dumps({"configurations": tasks})

    def combination(
        self, group: Group, dataset: str, configurations: Mapping[int, Configuration]
    ) -> str:
        """The sums of a group over all partitions of a data set, in the order of the keys."""
        keys = sorted(key for name, key in group.partials if name == dataset)
        tasks = []
        for mst_key in group.mst_keys:
            if mst_key in configurations and mst_key not in group.errors:
                partials = [group.partials[dataset, key][mst_key] for key in keys]
                recipe = self._recipe(configurations[mst_key])
                tasks.append(recipe | {"mst_key": mst_key, "partials": partials})
        return json.dumps({"configurations": tasks})

    def _recipe(self, configuration: Configuration) -> dict[str, Any]:
        return {
            "architecture": configuration.architecture.text,
            "architecture_id": configuration.architecture.id,
            "compile_params": configuration.compile_text,
            "fit_params": configuration.fit_text,
            "targets": self._targets,
            **self._inputs,
            "jit": configuration.jit,
            "steps_per_call": configuration.steps_per_call,
        }


def _buffers(packed: PackedTable) -> dict[int, dict[str, list[int]]]:
    return {
        partition.partition_key: {
            "ids": [buffer_id for buffer_id, _ in partition.buffers],
            "rows": [rows for _, rows in partition.buffers],
        }
        for partition in packed.partitions
    }
