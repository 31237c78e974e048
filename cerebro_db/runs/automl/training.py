"""Packing, a first model, and the search: the steps of a call that take time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from cerebro_db.configs.messages import duration
from cerebro_db.core.statuses import GOING_ON
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.names import shown_identifier, value_literal
from cerebro_db.postgres.sessions.errors import StatementFailed
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.relations import find
from cerebro_db.requests.automl import AutomlRequest
from cerebro_db.runs.automl import design as designs
from cerebro_db.runs.automl.crosses import crosses_of
from cerebro_db.runs.automl.design import Design, Net, Search
from cerebro_db.runs.automl.features import Features
from cerebro_db.runs.automl.places import (
    FIRST,
    NETS,
    PACKED_TEST,
    PACKED_TRAIN,
    TEST,
    TRAIN,
    Places,
)
from cerebro_db.runs.automl.statements import (
    Clock,
    OutOfTime,
    Statements,
    call_of,
    is_intervention,
)
from cerebro_db.runs.automl.tasks import METRICS, NUMBER, TargetFacts, Task

# Seconds that are kept back for the end: the comparison with the champion, the registration.
_RESERVE, _SHARE_OF_RESERVE = 2.0, 0.05
# Seconds to score a model on the holdout, and for what a report has.
_SCORING, _SHARE_OF_REPORTING = 1.0, 0.01
# Models that an ensemble is chosen from, and models that it may have; metrics that it can be chosen by.
_CANDIDATES, _MEMBERS = 12, 6
_MEASURES = ("accuracy", "auc", "rmse", "mae")
# Encodings of numbers: of more columns each becomes one feature, as the bins of all take long to find and to compute.
_MOST_COLUMNS, _FEW, _MANY = 200, "auto", "robust"
# A search that would have less is not begun.
_LEAST_SEARCH = 2.0


class Best(NamedTuple):
    """The best model of a run.

    Attributes:
        value: of the metric on the rows for validation.
    """

    run_id: int
    mst_key: int
    value: float


def too_short(clock: Clock, what: str) -> InvalidArgument:
    """The error of a budget that has not been enough."""
    return InvalidArgument(
        f"max_seconds: got {clock.seconds:g}, which is not enough {what}; allowed: about "
        f"{2 * clock.elapsed + _RESERVE:.0f} or more",
        hint="fewer rows or columns take less, too",
    )


class Training:
    """Steps between the split of the rows and a run whose best model is to be registered.

    Args:
        control: a session that reads the catalog.
        statements: of the call.
        target, task: what is learnt.
        places: of the tables.
        clock: of the call.

    Attributes:
        runs: that have trained models.
    """

    def __init__(
        self,
        control: Session,
        statements: Statements,
        target: TargetFacts,
        task: Task,
        places: Places,
        clock: Clock,
    ) -> None:
        self._control, self._statements = control, statements
        self.runs: list[int] = []
        self._target, self._task, self._places, self._clock = target, task, places, clock

    def cross(self, features: Features, rows: int) -> Features:
        """The features with crosses of columns, where the rows for training have such.

        Args:
            features: of the model.
            rows: of the table, about.
        """
        target, is_number = self._target.column, self._task.kind == NUMBER
        with transaction(self._control):
            source = find(self._control, self._places[TRAIN], "source_table")
            found = crosses_of(self._control, source, target, is_number, features.facts, rows)
        for one in found:
            first, second = one.parts
            self._statements.notice(
                f"columns: {first} and {second} are crossed: together they explain {one.share:.1%} of {target.name} "
                "that neither of them does"
            )
        crosses = {one.key: one.encoding for one in found}
        return replace(features, encodings={**features.encodings, **crosses})

    def pack(
        self, features: Features, partitions: int | None, seed: int, held: float = 0.0
    ) -> None:
        """Encode and pack the rows for training and validation.

        Args:
            features: of the model.
            partitions, seed: of the packing.
            held: how many rows the holdout has for each row for validation; they are packed at the end.
        """
        places, label = self._places, shown_identifier(self._target.column.name)
        self._statements.call(
            "cerebro_pack_columns",
            source_table=places[TRAIN],
            output_table=places[PACKED_TRAIN],
            dependent_varname=label,
            independent_varname=", ".join(map(shown_identifier, features.names)),
            numbers=_FEW if len(features.names) <= _MOST_COLUMNS else _MANY,
            categories="auto",
            encodings=features.encodings_text,
            num_partitions=partitions,
            seed=seed,
        )
        began = self._clock.elapsed
        self._statements.call(
            "cerebro_pack_validation",
            source_table=places[TEST],
            output_table=places[PACKED_TEST],
            dependent_varname=label,
            independent_varname=None,
            training_table=places[PACKED_TRAIN],
        )
        # Measuring a model at the end takes about as long, and on a slow machine longer.
        packing = self._clock.elapsed - began
        self._clock.kept = 2 * packing + _SHARE_OF_REPORTING * self._clock.seconds
        if held:
            self._clock.kept += held * packing + _SCORING

    def train(self, request: AutomlRequest) -> tuple[int, int | None]:
        """Train a first model, and search for a better one.

        Returns:
            The run that has the best model, and that of the search if it has trained any.
        """
        model, seed, most_configs = str(request.model), request.seed, request.max_configs
        rows, workers = self._packed()
        is_number = self._task.kind == NUMBER
        design = designs.design_of(
            rows, is_number, self._clock.seconds, request.max_configs, request.max_epochs
        )
        for net in design.nets[:1]:
            self._load(net)
        first = self._first(design, model, seed)
        self._statements.notice(
            f"a first model after {duration(self._clock.elapsed)}: {self._task.objective} {first.value:.4f}"
        )
        if self._seconds_left() < _LEAST_SEARCH or not self._loaded(design.nets[1:]):
            self._statements.notice("no time is left to search for a better model")
            return first.run_id, None
        search = designs.search_of(
            design, self._seconds_left(), self._epoch_seconds(first.run_id), workers, most_configs
        )
        found = self._searched(design, search, model, seed)
        if found is None or not self._is_better(found, first):
            self._statements.notice("the search has found no better model than the first one")
            return first.run_id, found and found.run_id
        return found.run_id, found.run_id

    def joined(self, run_id: int, model: str) -> int | None:
        """The version that is the mean of several models of a search; None where none is better than the best one."""
        by = next(name for name, one in METRICS.items() if one is self._task.metric)
        if by not in _MEASURES or (by == "auc" and self._task.classes != 2):
            by = ""
        given = {
            "run_id": run_id,
            "name": model,
            "validation_table": self._places[PACKED_TEST],
            "candidates": _CANDIDATES,
            "members": _MEMBERS,
            "metric": by or None,
        }
        try:
            seconds = self._clock.last
            version: int | None = self._statements.call_within(seconds, "cerebro_ensemble", given)
        except (OutOfTime, StatementFailed) as failure:
            if is_intervention(failure):
                raise
            self._statements.notice(f"there is no ensemble: {failure.message}")
            return None
        return version

    # -- steps -----------------------------------------------------------------------
    def _load(self, net: Net) -> None:
        """Put a net into the table of architectures."""
        packed = self._places[PACKED_TRAIN]
        made = call_of("cerebro_tabular", packed_table=packed, **net.given)
        self._statements.run(
            f"SELECT cerebro.cerebro_load_model({value_literal(self._places[NETS])}, {made}, "
            f"packed_table := {value_literal(packed)}, name := {value_literal(net.name)})"
        )

    def _loaded(self, nets: Sequence[Net]) -> bool:
        """True if nets came into the table of architectures in time."""
        try:
            for net in nets:
                self._load(net)
        except OutOfTime:
            return False
        return True

    def _first(self, design: Design, model: str, seed: int) -> Best:
        """A model of the smallest net.

        Raises:
            InvalidArgument: there was no time for it.
        """
        seconds = self._seconds_left() + self._clock.kept  # without a first model there is no end
        run_id = 0
        if seconds > 0:
            run_id = self._statements.call(
                "cerebro_fit",
                source_table=self._places[PACKED_TRAIN],
                model_output_table=self._places[FIRST],
                model_arch_table=self._places[NETS],
                model_id=1,
                compile_params=designs.first_compile(self._task),
                fit_params=f"batch_size={design.batch_sizes[0]}",
                num_iterations=design.first_epochs,
                validation_table=self._places[PACKED_TEST],
                name=f"automl {model}, first",
                seed=seed,
                max_seconds=max(0.1, round(seconds, 1)),
            )
        found = self._best(run_id)
        if found is None:
            raise too_short(self._clock, f"for {design.first_epochs} epochs of the smallest net")
        return found

    def _searched(self, design: Design, search: Search, model: str, seed: int) -> Best | None:
        """The best model of a search; None where none was trained."""
        try:
            run_id = self._statements.call(
                "cerebro_search",
                source_table=self._places[PACKED_TRAIN],
                model_output_table=str(self._places.base),
                model_arch_table=self._places[NETS],
                model_selection_table=None,
                model_id_list=list(range(1, len(design.nets) + 1)),
                compile_params_grid=designs.compile_grid(self._task, design.nets),
                fit_params_grid=designs.fit_grid(self._task, design.batch_sizes, search.epochs),
                automl_method="asha",
                automl_params=search.params,
                random_state=seed,
                validation_table=self._places[PACKED_TEST],
                name=f"automl {model}",
                objective=self._task.objective,
                max_seconds=round(search.seconds, 1),
                seed=seed,
            )
        except OutOfTime as error:
            self._statements.notice(f"the search has come to no end: {error.message}")
            return None
        except StatementFailed as failure:
            if is_intervention(failure):
                raise
            self._statements.notice(f"the search has failed: {failure.message}")
            return None
        return self._best(run_id)

    # -- figures -----------------------------------------------------------------------
    def _seconds_left(self) -> float:
        reserve = max(_RESERVE, _SHARE_OF_RESERVE * self._clock.seconds)
        return self._clock.left - reserve - self._clock.kept

    def _packed(self) -> tuple[int, int]:
        """Rows to train with, and partitions."""
        summary = self._places.base.suffixed(f"{PACKED_TRAIN}_summary")
        sql = f"SELECT num_rows, num_partitions FROM {summary.sql}"
        rows, partitions = self._control.run(sql)[0]
        return int(rows), int(partitions)

    def _best(self, run_id: int) -> Best | None:
        """The best model of a run that has ended; None where it has none."""
        rows = self._control.run(
            _BEST, (self._task.metric.keras is None, run_id, [*GOING_ON, "paused"])
        )
        if not rows:
            return None
        self.runs.append(run_id)
        return Best(run_id, int(rows[0][0]), float(rows[0][1]))

    def _is_better(self, one: Best, other: Best) -> bool:
        sign = -1 if self._task.metric.is_maximised else 1
        return not sign * one.value >= sign * other.value

    def _epoch_seconds(self, run_id: int) -> float:
        """Seconds of an epoch on one worker, without the compilation."""
        (seconds,) = self._control.run(_EPOCH, (run_id,))[0]
        return float(seconds or 1.0)


# Parameters: whether the loss counts, the run, statuses of runs without models.
_BEST = """
SELECT l.mst_key, CASE WHEN %s THEN l.validation_loss ELSE l.validation_metrics[1] END AS value
  FROM cerebro.leaderboard l JOIN cerebro.runs r ON r.run_id = l.run_id
 WHERE l.run_id = %s AND NOT r.status = ANY (%s) AND l.epoch IS NOT NULL
   AND l.status NOT IN ('failed', 'cancelled')
 ORDER BY l.rank, l.mst_key LIMIT 1
"""
# Of each partition the fastest hop: the first ones compile. Parameter: the run.
_EPOCH = """
SELECT pg_catalog.sum(q.seconds) AS seconds
  FROM (SELECT pg_catalog.min(h.trained + h.read + h.written) AS seconds
          FROM cerebro.hops h WHERE h.run_id = %s GROUP BY h.partition_key) q
"""
