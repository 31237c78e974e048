"""Searches: how they are begun, steered and looked at."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from cerebro_db.core.search import UNLIMITED, Aim, Budget, EarlyStopping
from cerebro_db.core.search_texts import (
    MAX_CONFIGURATIONS,
    parse_early_stopping,
    parse_objectives,
)
from cerebro_db.core.spec import Space
from cerebro_db.decide.search.methods import METHODS, parse_method
from cerebro_db.decide.strategies import DEFAULT
from cerebro_db.errors import InvalidArgument
from cerebro_db.requests import declared as sql
from cerebro_db.requests.fitting import Durability, RunRequest, Seed, TrainingRequest


@sql.function(
    "cerebro_search",
    "bigint",
    entry="searching.search",
    job=sql.Job(
        makes="model_output_table",
        reads=("source_table", "validation_table", "model_arch_table"),
        steps="search",
    ),
)
class SearchRequest(TrainingRequest, kw_only=True):
    """Searches the best model of a space of architectures and parameters: trains configurations, stops what is
    hopeless, starts what is promising; returns the run_id. automl_method: grid, random, successive_halving,
    hyperband, asha, tpe (hyperopt of MADlib), bohb, pbt, gp, cma-es, or external, which waits for configurations;
    automl_params: such as R=9, eta=3.
    objective: such as val_accuracy. Leaves the tables of cerebro_fit_multiple, and in model_selection_table the
    best configuration. wait := false: returns the run_id at once, and the run goes on without the session, as a
    job with that priority (see cerebro.jobs).

    Attributes:
        source_table, model_output_table, use_gpus, validation_table, name, description, use_caching,
            num_workers, durability, schedule: as in
            [`cerebro_fit_multiple`](training.md#cerebro_fit_multiple)
        model_arch_table, model_id_list: the architectures that are tried
        model_selection_table: to be made at the end, with the best configuration (of several objectives, the
            Pareto set); `<model_selection_table>_summary` beside it. NULL for none
        compile_params_grid, fit_params_grid: [the space](../search.md#the-space), as in
            `cerebro_generate_configs`
        automl_method, automl_params: [the method](../search.md#methods) and its parameters, such as `'R=9,
            eta=3, skip_last=0'`; NULL for its defaults
        random_state: the seed of what is drawn: configurations, and the changes of `pbt`; at least 0. Weights
            and the order of rows are of `seed`. Default: `seed`. For `grid` and `external`, which draw nothing,
            it must be NULL
        object_table: as in `cerebro_generate_configs`; what is added to the search later has the names
            `custom.<name>`
        metrics_compute_frequency: loss and metrics on both tables after every so many epochs, too. Default:
            when decisions need them, on the table that these look at
        objective: [what is looked for](../search.md#what-is-looked-for), such as `'val_accuracy'`. Default:
            the loss on the validation table, or else on the training table
        early_stopping: when a trial is stopped besides what the method stops, such as `'patience=3,
            min_delta=0.01'`
        max_seconds: after so many seconds the search ends; trials stop after the last epoch that they have
            done. Default: any time
        max_epochs, max_configs: epochs of all trials together, and trials, that the search does not go
            beyond: what they are enough for goes on. Default: any number. With `external` there is `max_configs`
            only
        warm_start_run: an earlier run of yours, a search or not: a method that learns begins with what it
            found out of configurations of this space
        seed: of initial weights, visiting orders and the order of rows; at least 0
        concurrency: trials at the same time in the schedule by which decisions are taken, at least 1:
            [results depend on it](../search.md#the-same-result-each-time). Default: for all trials, up to
            1,000; where what begins depends on results, twice the partitions; NULL for `external`
        deterministic: whether results count in the order of that schedule, so that every number of workers
            decides alike; otherwise as they come
        replace: whether [earlier tables](../sql.md#output-tables) of the names give way when the search ends
        wait, priority: `wait := false`: the call checks its arguments, returns at once, and the run goes on
            without the session as a [job](jobs.md#jobs) of that priority, -100 to 100, above 0 for
            administrators
    """

    source_table: sql.Text
    model_output_table: sql.Text
    model_arch_table: sql.Text
    model_selection_table: sql.Text
    model_id_list: sql.Integers
    compile_params_grid: sql.Text
    fit_params_grid: sql.Text
    automl_method: sql.Text = "hyperband"
    automl_params: sql.Text = None
    random_state: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    object_table: sql.Text = None
    use_gpus: sql.Flag = False
    validation_table: sql.Text = None
    metrics_compute_frequency: sql.Integer = None
    name: sql.Name = None
    description: sql.Description = None
    use_caching: sql.Flag = True
    objective: sql.Text = None
    early_stopping: sql.Text = None
    max_seconds: sql.Number = None
    max_epochs: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    max_configs: Annotated[int, Meta(ge=1, le=MAX_CONFIGURATIONS)] | None = None
    warm_start_run: sql.BigInt = None
    seed: Seed = 0
    num_workers: sql.Workers = None
    concurrency: Annotated[int, Meta(ge=1, le=UNLIMITED)] | None = None
    deterministic: sql.Flag = True
    durability: Durability = "hop"
    schedule: sql.Text = DEFAULT
    replace: sql.Flag = False
    wait: sql.Flag = True
    priority: sql.Priority = 0

    def __post_init__(self) -> None:
        """Refuse what no table could make right."""
        method, _ = self.parsed
        super().__post_init__()
        if not METHODS[method].draws and self.random_state is not None:
            raise InvalidArgument(
                f"random_state: got {self.random_state}; it must be NULL for automl_method := {method!r}, which draws "
                "nothing",
                hint="seed is that of the weights, and of the order of rows",
            )
        if METHODS[method].waits:
            self._check_unused(method)
        _ = self.space, self.aims, self.stopping
        self.check()

    def _check_unused(self, method: str) -> None:
        """Refuse arguments about what a method proposes, of one that leaves that to others."""
        for name in ("random_state", "max_epochs", "concurrency"):
            if (value := getattr(self, name)) is not None:
                raise InvalidArgument(
                    f"{name}: got {value}; it must be NULL for automl_method := {method!r}, whose trials others "
                    "propose",
                    hint="max_configs, max_seconds and cerebro.cerebro_finish end such a search",
                )

    @functools.cached_property
    def parsed(self) -> tuple[str, Mapping[str, Any]]:
        """The method and its parameters, all of them."""
        return parse_method(self.automl_method, self.automl_params)

    @property
    def epochs(self) -> int:
        """Epochs that no trial is trained beyond."""
        method, params = self.parsed
        return METHODS[method].most_epochs(params)

    @functools.cached_property
    def aims(self) -> tuple[Aim, ...]:
        """Parts of the objective; none for the validation loss, or the loss where there is no validation."""
        return parse_objectives(self.objective)

    @functools.cached_property
    def stopping(self) -> EarlyStopping:
        """The rules of early stopping."""
        return parse_early_stopping(self.early_stopping)

    @functools.cached_property
    def space(self) -> Space:
        """The space, its texts parsed once."""
        space = space_of(self.model_id_list, self.compile_params_grid, self.fit_params_grid)
        method = self.parsed[0]
        for grid, what in ((space.compile_grid, "compile"), (space.fit_grid, "fit")):
            if grid.has_range() and not METHODS[method].draws:
                raise InvalidArgument(
                    f"{what}_params_grid: got a range; allowed with automl_method := {method!r}: "
                    "lists of values",
                    hint="every other method draws from ranges, such as 'random'",
                )
        return space

    @property
    def budget(self) -> Budget:
        """The budget of the search."""
        return Budget(
            max_seconds=self.max_seconds,
            max_epochs=UNLIMITED if self.max_epochs is None else self.max_epochs,
            max_configurations=UNLIMITED if self.max_configs is None else self.max_configs,
        )


@sql.function(
    "cerebro_hyperband_schedule",
    "SETOF record",
    entry="searching.hyperband_schedule",
    out="s integer, i integer, n_i integer, r_i integer",
    job=sql.READS,
)
class BracketsRequest(sql.Request):
    """The brackets of Hyperband: in round i of bracket s, n_i configurations are trained until r_i epochs are
    done. r: most epochs of a configuration; eta: of so many one comes to the next round; skip_last: last rounds
    that each bracket lacks.

    Attributes:
        r: R: most epochs of a trial, at least 1
        eta: of so many trials one goes on, at least 2
        skip_last: rungs that each bracket lacks at its end
    """

    r: sql.Integer
    eta: sql.Integer = 3
    skip_last: sql.Integer = 0


@sql.function(
    "cerebro_hyperband_schedule",
    "void",
    entry="searching.hyperband_table",
    job=sql.Job(makes="schedule_table"),
)
class BracketsTableRequest(sql.Request):
    """Writes the brackets of Hyperband into a table with the columns s, i, n_i, r_i.

    Attributes:
        schedule_table: to be made
        r: R: most epochs of a trial, at least 1
        eta: of so many trials one goes on, at least 2
        skip_last: rungs that each bracket lacks at its end
        replace: as in `cerebro_pack`
    """

    schedule_table: sql.Text
    r: sql.Integer
    eta: sql.Integer = 3
    skip_last: sql.Integer = 0
    replace: sql.Flag = False


@sql.function("cerebro_finish", "void", entry="searching.finish")
class FinishRequest(sql.Request):
    """Ends a search that another session drives: it begins nothing any more, its trials stop after the last epoch
    that they have done, and its tables are made.

    Attributes:
        run_id: as in `cerebro_add_configs`
    """

    run_id: sql.BigInt


@sql.function(
    "cerebro_best", "text", entry="searching.best", job=sql.Job(makes="model_selection_table")
)
class BestRequest(sql.Request):
    """Makes a model selection table, <model_output_table>_best by default, from the n best trials of a search,
    which keep their mst_key; returns its name. Without n: the best one, or of several objectives the Pareto
    set.

    Attributes:
        run_id: a search that the caller sees in `cerebro.searches`
        n: how many, at least 1. Default: the best one, or of several objectives the Pareto set
        model_selection_table: default: `<model_output_table>_best`
        replace: as in `cerebro_pack`
    """

    run_id: sql.BigInt
    n: sql.Integer = None
    model_selection_table: sql.Text = None
    replace: sql.Flag = False


@sql.function(
    "cerebro_importance",
    "SETOF record",
    entry="searching.importance",
    out="parameter text, importance double precision, trials integer",
    job=sql.READS,
)
class ImportanceRequest(sql.Request):
    """How much of the variance of an objective each parameter of a search explains, by fANOVA, and from how many
    trials. epoch: after which they are compared; by default the one after which most trials were measured.

    Attributes:
        run_id: a search that the caller sees in `cerebro.searches`, with at least two trials of its space
            that were measured
        objective: one of the search. Default: the first one
        epoch: after which trials are compared. Default: that after which most were measured, the last of
            these
    """

    run_id: sql.BigInt
    objective: sql.Text = None
    epoch: sql.Integer = None


@sql.function("cerebro_add_configs", "integer[]", entry="searching.add_configs")
class AddConfigsRequest(sql.Request):
    """Adds configurations to a search that another session drives, every combination of models and parameters;
    returns their mst_keys.

    Attributes:
        run_id: a search of your own that another session drives
        model_id_list: of the architectures of the search
        compile_params_list, fit_params_list: as in `cerebro_load_configs`
        num_iterations: epochs of each. Default: as the method gives
    """

    run_id: sql.BigInt
    model_id_list: sql.Integers
    compile_params_list: sql.Texts
    fit_params_list: sql.Texts
    num_iterations: sql.Integer = None


@sql.function("cerebro_stop_config", "text", entry="searching.stop_config")
class StopConfigRequest(sql.Request):
    """Stops a trial of a search that another session drives, whose worker is free at once; its model is that after
    its last epoch. Returns the status of the trial.

    Attributes:
        run_id: as in `cerebro_add_configs`
        mst_key: a trial that has not ended
    """

    run_id: sql.BigInt
    mst_key: sql.Integer


@sql.function("cerebro_clone", "integer", entry="searching.clone")
class CloneRequest(sql.Request):
    """Begins a trial with the state of another one of a search that another session drives, and changed
    parameters, such as lr=0.003, batch_size=64; returns its mst_key.

    Attributes:
        run_id: as in `cerebro_add_configs`
        mst_key: a trial that has done an epoch
        changes: such as `'lr=0.003, batch_size=64'`: compile parameters, fit parameters, and arguments of the
            optimizer
        num_iterations: epochs of the new trial. Default: as the method gives
    """

    run_id: sql.BigInt
    mst_key: sql.Integer
    changes: sql.Text = ""
    num_iterations: sql.Integer = None


@sql.function("cerebro_narrow", "void", entry="searching.narrow")
class NarrowRequest(sql.Request):
    """Has a search that another session drives propose from another space from now on; what is NULL stays as it
    was.

    Attributes:
        run_id: as in `cerebro_add_configs`
        model_id_list: some of the architectures of the search. Default: as before
        compile_params_grid, fit_params_grid: as in `cerebro_search`. Default: as before
    """

    run_id: sql.BigInt
    model_id_list: sql.Integers = None
    compile_params_grid: sql.Text = None
    fit_params_grid: sql.Text = None


@sql.function("cerebro_extend", "bigint", entry="searching.extend")
class ExtendRequest(sql.Request):
    """Goes on with a search that has ended, or stopped, with a larger budget: num_configs=10 in automl_params are
    ten trials more, num_iterations=20 or R=27 the epochs of each by now; max_epochs and max_configs are added
    to those of the search. Its output tables are replaced at the end. Returns the run_id.

    Attributes:
        run_id: a search of the calling role itself that nobody drives, whose output tables are there
        automl_params: more of the parameters of its method: `num_configs` are so many trials more,
            `population` so many members more (one or more), `num_iterations` and `R` the epochs that each may
            have by now, at least as many as it had. Brackets of `successive_halving`, `hyperband` and `bohb`
            begin anew
        max_seconds: after so many seconds more the search ends. Default: any time. Alone where the search was
            stopped
        max_epochs, max_configs: so many more than the search had, which has such a limit
    """

    run_id: sql.BigInt
    automl_params: sql.Text = None
    max_seconds: sql.Number = None
    max_epochs: sql.Integer = None
    max_configs: sql.Integer = None


@sql.function(
    "cerebro_replay", "bigint", entry="searching.replay", job=sql.Job(makes="model_output_table")
)
class ReplayRequest(RunRequest):
    """Makes a run again with the same weights, into other tables: a search by its recorded decisions, a run whose
    workers did not wait for each other by the recorded order of its updates. Returns the run_id of the new run.

    Attributes:
        run_id: a search, or such a run, of the calling role itself, whose packed tables are as they were
        model_output_table: the table of models to be made
        name, description, num_workers: as in `cerebro_fit_multiple`
        source_table, validation_table: packed tables in the place of the run's own, where these are gone: packed in the
            same way from the same rows, such as by the steps of `cerebro_automl`. Their rows are not compared: with others the
            weights are others
    """

    run_id: sql.BigInt
    model_output_table: sql.Text
    name: sql.Name = None
    description: sql.Description = None
    num_workers: sql.Workers = None
    source_table: sql.Text = None
    validation_table: sql.Text = None


def space_of(
    model_id_list: Sequence[int | None] | None,
    compile_params_grid: str | None,
    fit_params_grid: str | None,
) -> Space:
    """A space, its texts parsed once.

    Raises:
        InvalidArgument: there is no model, or a grid is wrong.
    """
    # Both need NumPy, which drivers of other functions do without.
    from cerebro_db.configs.grids.grid import parse_compile_grid, parse_fit_grid
    from cerebro_db.configs.grids.model_selection import checked_model_ids

    for name, text in (
        ("compile_params_grid", compile_params_grid),
        ("fit_params_grid", fit_params_grid),
    ):
        if text is None:
            raise InvalidArgument(
                f"{name}: got NULL; allowed: a dictionary such as {_EXAMPLES[name]}"
            )
    models = tuple(checked_model_ids(model_id_list))
    space = Space(models, str(compile_params_grid), str(fit_params_grid))
    parse_compile_grid(space.compile_params_grid)
    parse_fit_grid(space.fit_params_grid)
    return space


_EXAMPLES = {
    "compile_params_grid": "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam']}]}",
    "fit_params_grid": "{'batch_size': [16, 32]}",
}
