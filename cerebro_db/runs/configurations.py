"""Configurations of a run, made from rows of a table: parsed, checked, with what the plan needs."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cerebro_db.configs.frameworks import (
    compile_params_in,
    framework_in,
    may_train,
    output_names,
    with_frozen,
)
from cerebro_db.configs.functions.callbacks import monitors_of
from cerebro_db.configs.grids.outputs import OutputSpec, outputs_of, with_all_metrics
from cerebro_db.configs.grids.parameters import (
    CompileParams,
    ConfigurationText,
    FitParams,
    parse_fit_params,
)
from cerebro_db.core.decisions import Change
from cerebro_db.core.folds import Folds
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import Architecture, Configuration, program_key
from cerebro_db.decide import callbacks
from cerebro_db.decide.cost import hop_seconds, steps_per_call, use_jit
from cerebro_db.errors import CerebroError, InvalidArgument
from cerebro_db.models.fit_checks import check_fits, configuration_named
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.scoring.prediction_models import common_goal
from cerebro_db.training.scores.targets import TargetFacts


@dataclass(frozen=True)
class _Parsed:
    row: Change
    architecture: Architecture
    compile_params: CompileParams
    fit_params: FitParams
    outputs: tuple[OutputSpec, ...]


# A search checks one configuration after another of the same few models.
_MOST_SHOWN = 10
_MOST_MODELS = 256


@dataclass(frozen=True)
class Maker:
    """Makes the configurations of a run.

    Attributes:
        packed: what is trained on.
        targets: of it.
        validated: whether there is a validation table.
        seed: of the run.
        search: that they are from, each of which must have all of its objectives; None where all are known.
        folds: of cross-validation; None where all rows are trained on.
        tick: called for each configuration, of which there may be very many.
    """

    packed: PackedTable
    targets: TargetFacts
    validated: bool
    seed: int
    search: SearchSpec | None = None
    folds: Folds | None = None
    tick: Callable[[], None] = field(default=lambda: None, compare=False)

    def make(
        self,
        rows: Sequence[Change],
        known: Mapping[int, Architecture],
        *,
        goal: str | None = None,
        cohort: int = 0,
        is_warm: bool = False,
    ) -> tuple[Configuration, ...]:
        """The configurations of rows that are planned together.

        Args:
            rows: of a table of configurations.
            known: architectures by model_id.
            goal: by which the run's are ranked; None where these decide it.
            cohort: number of the decision that adds them.
            is_warm: whether they go on from a state.

        Raises:
            CerebroError: what is wrong with one of them.
        """
        parsed = [self._parsed(row, known) for row in rows]
        steps = Counter[Any]()
        for one in parsed:
            key = program_key(one.architecture, one.compile_params, one.fit_params, jit=True)
            if self.search is None:
                steps[key] += self._steps(one.fit_params) * one.row.epochs
            else:  # whatever else is added at the same time
                steps[key] = self._steps(one.fit_params) * self.search.shared_epochs
        goal = goal or common_goal(one.outputs for one in parsed)
        return tuple(self._planned(one, steps, goal, cohort, is_warm) for one in parsed)

    def probes(self, known: Mapping[int, Architecture]) -> tuple[Configuration, ...]:
        """Configurations that a search may come to: each value, and both ends of each range.

        Raises:
            CerebroError: what is wrong with one of them.
        """
        from cerebro_db.decide.search.space import Explorer  # which needs NumPy

        assert self.search is not None
        found = Explorer(self.search.space).probes()
        rows = [Change(key, 1, one) for key, one in enumerate(found, 1)]
        return self.make(rows, known, goal=self.search.goal)

    def fault(self, row: ConfigurationText, known: Mapping[int, Architecture]) -> str | None:
        """Reason that a configuration cannot be trained; None where it can."""
        if row.model_id not in known:
            return (
                f"model_id: got {row.model_id}; allowed: {', '.join(map(str, sorted(known)))}, the "
                "models of the run"
            )
        try:
            self._checked(row, known)
        except CerebroError as error:
            return error.message
        return None

    def _parsed(self, row: Change, known: Mapping[int, Architecture]) -> _Parsed:
        try:
            found = self._checked(row.text, known)
        except CerebroError as error:
            error.message = f"{configuration_named(row.mst_key)}: {error.message}"
            raise
        return _Parsed(row, known[row.text.model_id], *found)

    def _checked(
        self, row: ConfigurationText, known: Mapping[int, Architecture]
    ) -> tuple[CompileParams, FitParams, tuple[OutputSpec, ...]]:
        self.tick()
        architecture = known[row.model_id]
        compile_params = compile_params_in(architecture.text, row.compile_params)
        fit_params = parse_fit_params(row.fit_params)
        outputs = outputs_of(compile_params, _output_names(architecture.text))
        check_fits(architecture, outputs, fit_params, self.packed, self.targets)
        monitored = with_all_metrics(compile_params, outputs)
        callbacks.check(monitored, fit_params, validated=self.validated)
        self._check_objectives(monitored)
        return compile_params, fit_params, outputs

    def _check_objectives(self, params: CompileParams) -> None:
        metrics = [(metric.name, metric.label) for metric in params.metrics]
        known = monitors_of(metrics, validated=self.validated)
        for name in (one.monitor for one in self.search.objectives) if self.search else ():
            if name not in known:
                raise InvalidArgument(
                    f"compile_params: got a configuration without {name!r}, the objective of the "
                    f"search; allowed: metrics with it, here there are {', '.join(known)}"
                )

    def _planned(
        self, one: _Parsed, steps: Counter[Any], goal: str, cohort: int, is_warm: bool
    ) -> Configuration:
        facts, partitions = one.architecture.facts, self.packed.partitions
        batch, mean_rows = (
            one.fit_params.batch_size,
            self._seen(self.packed.rows) // len(partitions),
        )
        planned = steps[program_key(one.architecture, one.compile_params, one.fit_params, jit=True)]
        features = 4 * sum(math.prod(each.shape) for each in self.packed.inputs)
        per_call = steps_per_call(facts, batch, features)
        largest = max(partition.rows for partition in partitions)
        return Configuration(
            mst_key=one.row.mst_key,
            architecture=one.architecture,
            compile_text=one.row.text.compile_params,
            fit_text=one.row.text.fit_params,
            compile_params=one.compile_params,
            fit_params=one.fit_params,
            hop_seconds=hop_seconds(facts, mean_rows, batch, one.fit_params.epochs),
            initial_seed=seed_of(self.seed, self._of_training(one.row.mst_key)),
            jit=framework_in(one.architecture.text).compiles and use_jit(facts, planned),
            steps_per_call=max(1, min(per_call, math.ceil(largest / batch))),
            goal=goal,
            budget=one.row.epochs,
            cohort=cohort,
            is_warm=is_warm,
        )

    def _steps(self, fit: FitParams) -> int:
        """Mini-batches of one configuration in one epoch."""
        rows = (self._seen(partition.rows) for partition in self.packed.partitions)
        return fit.epochs * sum(math.ceil(one / fit.batch_size) for one in rows)

    def _seen(self, rows: int) -> int:
        """Of so many rows those that a training sees."""
        return rows if self.folds is None else math.ceil(rows * self.folds.share)

    def _of_training(self, key: int) -> int:
        """The mst_key by which a configuration is known to its user."""
        return key if self.folds is None else self.folds.of(key)[0]


@functools.lru_cache(maxsize=_MOST_MODELS)
def _output_names(text: str) -> tuple[str, ...]:
    return tuple(output_names(json.loads(text)))


@functools.lru_cache(maxsize=_MOST_MODELS)
def _trains(text: str, frozen: tuple[str, ...]) -> bool:
    return may_train(with_frozen(json.loads(text), frozen))


def frozen_notice(
    configurations: Sequence[Configuration], known: Mapping[int, Architecture]
) -> str | None:
    """The line about models of which no layer trains; None where all have one.

    Args:
        configurations: of a run; a search has none when it begins.
        known: architectures by model_id.
    """
    keys = [
        one.mst_key
        for one in configurations
        if not _trains(one.architecture.text, one.compile_params.freeze)
    ]
    models = [key for key, one in sorted(known.items()) if not _trains(one.text, ())]
    if keys:
        what = "configuration" if len(keys) == 1 else "configurations"
    elif models and not configurations:
        keys, what = models, "model_id"
    else:
        return None
    shown = ", ".join(map(str, keys[:_MOST_SHOWN])) + (", ..." if len(keys) > _MOST_SHOWN else "")
    return f"{what} {shown}: no layer trains, so that training changes nothing; scores are those of its weights"


def seed_of(seed: int, mst_key: int) -> int:
    """The seed of a configuration's initial weights, 31 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{mst_key}".encode()).digest()[:4]) >> 1
