"""JSON for workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from cerebro_db.configs.grammar import parse_keywords
from cerebro_db.configs.grids.parameters import BALANCED, fit_text
from cerebro_db.configs.settings import OF_SUPERUSERS, Settings
from cerebro_db.core.folds import Folds
from cerebro_db.core.spec import TRAINING, VALIDATION, Configuration, Hop
from cerebro_db.core.tasks import ScoringGroup
from cerebro_db.executors.fold_rows import FoldRows
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.training.scores.targets import TargetFacts
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
    peers: bool = False,
    frameworks: str = "",
) -> str:
    """Task that makes a process a worker, where no call of its own can do that.

    Args:
        run_id: of the run, or NO_RUN.
        threads: None for as many as the process has already.
        use_gpus: whether it computes on them.
        cache_bytes: of decoded partitions that it may keep.
        settings: of the database. Whether there is a network the catalog tells, too.
        places: of each segment among those that share the GPUs of a host.
        keeps_errors: whether a hop that fails is reported in its row, in place of an error of its statement.
        functions: whether it must know of registered ones. The catalog tells it of these, not we:
            a task can be anybody's.
        peers: whether it exchanges gradients with trainers of other hosts. Where these may be the catalog
            tells it, too.
        frameworks: that it imports at once, as a text; others are imported when a model needs them.
    """
    return json.dumps(
        {
            "keeps_errors": keeps_errors,
            "functions": functions,
            "peers": peers,
            "frameworks": frameworks,
            "run_id": run_id,
            "threads": threads,
            "use_gpus": use_gpus,
            "places": places or {},
            "cache_bytes": cache_bytes,
            "settings": {
                field.name: str(getattr(settings, field.name))
                for field in fields(settings)
                if field.name not in OF_SUPERUSERS
            },
        }
    )


class RoundPart(NamedTuple):
    """Part of a hop in a round of several that begin with the same state.

    Attributes:
        rank: of the hop among them, from 0.
        rows: the first one that it trains on in a pass over its partition, and the one after the last.
        resets: whether the optimizer begins anew.
        group: where the hops of the round are made together: where they meet, how many steps of a
            pass they take, and rows of a batch, where these are a share of one.
    """

    rank: int
    rows: tuple[int, int]
    resets: bool
    group: Mapping[str, Any] | None = None


class TaskWriter:
    """Writes the tasks of one run.

    Args:
        tables: the packed table of each data set.
        targets: of the training table.
        seed: of the run.
        run_id: which one.
        folds: of cross-validation; None where there are none.
        fold_rows: the rows of each, where these have fold numbers.
        fold_weights: for each the weights that balance the classes of the rows that are trained on.
    """

    def __init__(
        self,
        tables: Mapping[str, PackedTable],
        targets: TargetFacts,
        seed: int,
        run_id: int,
        folds: Folds | None = None,
        fold_rows: FoldRows | None = None,
        fold_weights: Sequence[Sequence[float]] = (),
    ) -> None:
        self._seed, self._run_id, self._folds = seed, run_id, folds
        self._fold_rows, self._fold_weights = fold_rows, fold_weights
        self._targets = target_task(targets)
        self._inputs = input_task([one.shape for one in tables[TRAINING].inputs])
        self._buffers = {name: _buffers(table) for name, table in tables.items()}
        self._weighted = {TRAINING: targets.weighted}
        if VALIDATION in tables:
            self._weighted[VALIDATION] = tables[VALIDATION].sample_weight is not None

    def salt(self, hop: Hop) -> str:
        """Salt that places the buffers of a hop."""
        return salt(self._seed, hop.epoch, hop.partition_key)

    def hop(
        self,
        configuration: Configuration,
        hop: Hop,
        worker: tuple[int, int],
        is_first: bool,
        begins_epoch: bool,
        learning_rate: float | None = None,
        part: RoundPart | None = None,
    ) -> str:
        """The task of a hop.

        Args:
            configuration, hop: of the run.
            worker: its number, and its process of the server.
            is_first: whether the configuration has no state yet.
            begins_epoch: whether it has made no hop of the epoch.
            learning_rate: of this epoch; None for that of the state.
            part: in a round of several hops.
        """
        more = self._fold(configuration, TRAINING, hop.partition_key)
        if part is not None:
            more["part"] = {key: one for key, one in part._asdict().items() if one is not None}
        return json.dumps(
            {
                **self._recipe(configuration),
                "run_id": self._run_id,
                "worker": worker[0],
                "pid": worker[1],
                "dataset": TRAINING,
                "partition_key": hop.partition_key,
                "buffers": self._buffers[TRAINING][hop.partition_key],
                "seed": self._seed,
                "epoch": hop.epoch,
                "salt": self.salt(hop),
                "initial_seed": configuration.initial_seed,
                "is_first": is_first,
                "begins_epoch": begins_epoch,
                "learning_rate": learning_rate,
                **more,
            }
        )

    def scan(self, dataset: str, partition_key: int) -> str:
        """Task that the configurations of a scan have in common."""
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

    def score(self, configuration: Configuration, dataset: str, partition_key: int) -> str:
        """Task of one configuration of a scan; of folds, which rows it is of."""
        more = self._fold(configuration, dataset, partition_key)
        task = self._recipe(configuration) | {"mst_key": configuration.mst_key}
        return json.dumps(task | more)

    def _fold(
        self, configuration: Configuration, dataset: str, partition_key: int
    ) -> dict[str, Any]:
        """The rows of a data set where a fold decides: its number from 0, and of how many, or the rows themselves."""
        if self._folds is None:
            return {}
        _, fold = self._folds.of(configuration.mst_key)
        held_out = dataset == VALIDATION
        if self._fold_rows is not None:
            return {"fold_rows": self._fold_rows.text(partition_key, fold - 1, held_out)}
        return {"fold": [fold - 1, self._folds.count], "held_out": held_out}

    def trial(self, configurations: Iterable[Configuration]) -> str:
        """Task that finds out which configurations can be scored."""
        tasks = [self._recipe(c) | {"mst_key": c.mst_key} for c in configurations]
        return json.dumps({"configurations": tasks})

    def combination(
        self, group: ScoringGroup, dataset: str, configurations: Mapping[int, Configuration]
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
            "fit_params": self._fit_text(configuration),
            "targets": self._targets,
            **self._inputs,
            "jit": configuration.jit,
            "steps_per_call": configuration.steps_per_call,
        }

    def _fit_text(self, configuration: Configuration) -> str:
        """The fit parameters; of folds with the weights of classes in place of a word for them."""
        balanced = configuration.fit_params.class_weight == BALANCED
        if self._folds is None or not self._fold_weights or not balanced:
            return configuration.fit_text
        _, fold = self._folds.of(configuration.mst_key)
        weights = dict(enumerate(self._fold_weights[fold - 1]))
        return fit_text(
            {**parse_keywords(configuration.fit_text, "fit_params"), "class_weight": weights}
        )


def _buffers(packed: PackedTable) -> dict[int, dict[str, list[int]]]:
    return {
        partition.partition_key: {
            "ids": [buffer_id for buffer_id, _ in partition.buffers],
            "rows": [rows for _, rows in partition.buffers],
        }
        for partition in packed.partitions
    }


def target_task(targets: TargetFacts) -> dict[str, Any]:
    """Storage of targets."""
    first, *more = [_one(target) for target in targets.each]
    task = first | {"weighted": targets.weighted}
    return task | {"more": more} if more else task


def input_task(shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The shapes of several inputs; nothing where there is one."""
    return {"inputs": [list(shape) for shape in shapes]} if len(shapes) > 1 else {}


def _one(target: TargetFacts) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "num_classes": target.num_classes,
        "shape": list(target.shape),
        **({"values": list(target.values)} if target.values else {}),
        **({"counts": list(target.counts)} if target.counts else {}),
    }
