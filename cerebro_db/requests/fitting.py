"""Training: runs that are begun, gone on with, stopped and removed."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from cerebro_db.configs.messages import check_choice, check_range
from cerebro_db.core.strategies import Strategy
from cerebro_db.decide.strategies import (
    DEFAULT,
    DEFAULT_OF_ONE,
    SCHEDULES,
    STRATEGIES,
    listed,
    parse_strategy,
)
from cerebro_db.errors import InvalidArgument
from cerebro_db.requests import declared as sql

MAX_ITERATIONS = 1_000_000
MAX_SECONDS = 10 * 365 * 86_400.0
Iterations = Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)]
Seed = Annotated[int, sql.BIGINT, Meta(ge=0, le=2**63 - 1)]
Durability = Literal["hop", "epoch"]


class RunRequest(sql.Request, kw_only=True):
    """A request that begins a run.

    Attributes:
        search_path: for the names; None leaves the sessions' own.
        cores: of the server, from which defaults of workers and threads come.
    """

    inherits_context: ClassVar[bool] = True

    search_path: Any = None
    cores: int = 1


class TrainingRequest(RunRequest, kw_only=True):
    """A request to train something; what its function has no argument for is as it is here."""

    default_strategy: ClassVar[str] = DEFAULT

    folds: Annotated[int, Meta(ge=2, le=100)] | None = None
    validation_table: sql.Text = None
    metrics_compute_frequency: sql.Integer = None
    max_seconds: sql.Number = None
    use_gpus: sql.Flag = False
    use_caching: sql.Flag = True
    warm_start: sql.Flag = False
    replace: sql.Flag = False
    name: sql.Name = None
    description: sql.Description = None
    object_table: sql.Text = None
    seed: Seed = 0
    durability: Durability = "hop"
    num_workers: sql.Workers = None
    schedule: sql.Text = DEFAULT
    strategy: sql.Text = None
    strategy_params: sql.Text = None
    deterministic: sql.Flag = None

    @functools.cached_property
    def chosen(self) -> Strategy:
        """The strategy of the run, with its parameters.

        Raises:
            InvalidArgument: there is no such strategy, or it has no such parameter.
        """
        check_choice("schedule", self.schedule, SCHEDULES)
        if self.strategy is not None and self.schedule not in (DEFAULT, self.strategy):
            raise InvalidArgument(
                f"schedule: got {self.schedule!r} beside strategy := {self.strategy!r}; allowed: one of "
                "them",
                hint="leave schedule out: strategy has all of its values, and more",
            )
        default = self.default_strategy if self.schedule == DEFAULT else self.schedule
        name = default if self.strategy is None else self.strategy
        return parse_strategy(name, self.strategy_params)

    @property
    def epochs(self) -> int:
        """The most epochs of a configuration."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse what no table could make right, of what all runs have."""
        check_range("metrics_compute_frequency", self.metrics_compute_frequency, 1, self.epochs)
        check_seconds(self.max_seconds)
        check_workers(self.chosen, self.num_workers)
        _check_deterministic(self)


@sql.function(
    "cerebro_fit_multiple",
    "bigint",
    entry="fitting.fit",
    job=sql.Job(
        makes="model_output_table",
        reads=("source_table", "validation_table", "model_selection_table"),
        steps="fit",
    ),
)
class FitRequest(TrainingRequest, kw_only=True):
    """Trains every configuration of a model selection table on a packed table by model hopper parallelism; returns
    the run_id and leaves the tables <model_output_table>, _info, _summary, _states and _history. durability:
    hop, or epoch where a crash of the server may take back what was done since the last epoch; max_seconds: the
    run is paused then; schedule: hopper, or rotation where one statement shall train on all segments at once;
    strategy: one of these, auto, task, averaging or another way to train, with parameters of its own in
    strategy_params; deterministic := true refuses those of which a call does not always have the same results.
    wait := false: returns the run_id at once, and the run goes on without the session, as a job with that
    priority (see cerebro.jobs).

    Attributes:
        source_table: a packed table
        model_output_table: the table of models to be made; `<model_output_table>_info`, `_summary`, `_states`
            and `_history` come beside it. Where it and its `_summary` were dropped, what is left of the
            others is replaced, with a NOTICE
        model_selection_table: a table of configurations
        num_iterations: epochs, 1 to 1,000,000: in each one every configuration visits every partition once
        use_gpus: whether TensorFlow may use GPUs; an error that names the hosts where it sees none. Workers
            of a host share its GPUs in turn: each computes on one. Their sessions end with the run, which
            gives the memory of the GPUs back
        validation_table: a table that `cerebro_pack_validation` made
        metrics_compute_frequency: loss and metrics after every so many epochs, and after the last one; 1 to
            `num_iterations`. Default: only after the last one; after every epoch where a
            [callback](configurations.md#callbacks) needs it
        warm_start: go on from the models in `model_output_table`, which must exist and are replaced at the
            end. [Which go on](#warm-start)
        name, description: free text, shown in the views
        use_caching: whether workers keep decoded partitions in memory, up to the setting
            [`cache_mb`](settings.md#settings)
        seed: of initial weights, orders of hops and the order of rows; at least 0
        num_workers: sessions that train, 1 to 256, not more than configurations. Default: the smallest of
            processors, partitions and configurations. Where memory, free connections or `max_workers` are
            enough for fewer, so many work, and a NOTICE says why. It does not change the results
        durability: `'hop'`: a hop that is done outlives a crash of the server. `'epoch'`: a crash takes back
            what was done since the last epoch, and a hop writes less. [What each
            costs](../safety.md#durability)
        max_seconds: above 0: after so many seconds the run is `paused`, and the call returns. Default: any
            time
        schedule: `'hopper'`: workers take hops as they become free. `'rotation'`, on Greenplum only: one
            statement trains on all segments at once, each its own configuration, and the next one waits for
            all of them; then `num_workers` must be NULL. It does not change the results. [What each
            costs](../decisions/rotation.md)
        replace: whether [earlier tables](../sql.md#output-tables) of the name give way when the run ends;
            `cerebro_resume` keeps to that
        wait, priority: `wait := false`: the call checks its arguments, returns at once, and the run goes on
            without the session as a [job](jobs.md#jobs) of that priority, -100 to 100, above 0 for
            administrators
        strategy: [how configurations are trained](#strategies): `'hopper'`, `'rotation'`, `'task'`,
            `'averaging'`, `'allreduce'`, `'pipe'`, `'parameter_server'`, `'groups'` or `'auto'`. Default:
            what `schedule` says
        strategy_params: of the strategy, such as `'rounds=4'`. Default: its defaults
        deterministic: true refuses strategies of which a call does not always have the same results; with
            `'auto'` [no speeds are measured](#how-fast-steps-are). Default: all are allowed
        folds: [cross-validation](#cross-validation): each configuration is trained so many times, 2 to 100, each
            time without the rows of one fold, on which it is validated. With the strategies `'hopper'`,
            `'rotation'` and `'task'`; `validation_table` must be NULL, and `warm_start` false. Default: one
            training on all rows
    """

    source_table: sql.Text
    model_output_table: sql.Text
    model_selection_table: sql.Text
    num_iterations: Iterations
    use_gpus: sql.Flag = False
    validation_table: sql.Text = None
    metrics_compute_frequency: sql.Integer = None
    warm_start: sql.Flag = False
    name: sql.Name = None
    description: sql.Description = None
    use_caching: sql.Flag = True
    seed: Seed = 0
    num_workers: sql.Workers = None
    durability: Durability = "hop"
    max_seconds: sql.Number = None
    schedule: sql.Text = DEFAULT
    replace: sql.Flag = False
    wait: sql.Flag = True
    priority: sql.Priority = 0
    strategy: sql.Text = None
    strategy_params: sql.Text = None
    deterministic: sql.Flag = None
    folds: Annotated[int, Meta(ge=2, le=100)] | None = None

    def __post_init__(self) -> None:
        """Refuse what no table could make right."""
        super().__post_init__()
        self.check()
        if self.folds is not None:
            self._check_folds()

    def _check_folds(self) -> None:
        """Refuse what does not go together with folds."""
        if self.validation_table is not None:
            raise InvalidArgument(
                f"validation_table: got {self.validation_table!r} with folds := {self.folds}; allowed: NULL, as each "
                "training is validated on the rows of its fold"
            )
        if self.warm_start:
            raise InvalidArgument(
                f"warm_start: got true with folds := {self.folds}; allowed: false",
                hint="train on all rows under another name, and go on from there",
            )
        if not self.chosen.takes_folds:
            allowed = listed(one.name for one in STRATEGIES.values() if one.takes_folds)
            raise InvalidArgument(
                f"strategy: got {self.chosen.name!r} with folds := {self.folds}; allowed: {allowed}, whose hops "
                "choose among the rows of a partition"
            )

    @property
    def epochs(self) -> int:
        """Epochs of each configuration."""
        return self.num_iterations


@sql.function(
    "cerebro_fit",
    "bigint",
    entry="fitting.fit_one",
    job=sql.Job(
        makes="model_output_table",
        reads=("source_table", "validation_table", "model_arch_table"),
        steps="fit",
    ),
)
class FitOneRequest(TrainingRequest, kw_only=True):
    """Trains one model of an architecture table on a packed table, as cerebro_fit_multiple trains many; returns
    the run_id and leaves the same tables, where the model has mst_key 1.  strategy: auto where none is given, so that several workers share the batches of a large model. wait := false: returns
    the run_id at once, and the run goes on without the session, as a job with that priority (see cerebro.jobs).

    Attributes:
        model_arch_table, model_id: the model
        compile_params: [compile parameters](configurations.md#compile-parameters)
        fit_params: [fit parameters](configurations.md#fit-parameters); NULL for all defaults
        object_table: as in [`cerebro_generate_configs`](configurations.md#cerebro_generate_configs)
        source_table, model_output_table, num_iterations, use_gpus, validation_table,
            metrics_compute_frequency, warm_start, name, description, use_caching, seed, durability,
            max_seconds, strategy, strategy_params, deterministic: as in `cerebro_fit_multiple`
        replace: as in `cerebro_pack`
        wait, priority: `wait := false`: the call checks its arguments, returns at once, and the run goes on
            without the session as a [job](jobs.md#jobs) of that priority, -100 to 100, above 0 for
            administrators
    """

    default_strategy: ClassVar[str] = DEFAULT_OF_ONE

    source_table: sql.Text
    model_output_table: sql.Text
    model_arch_table: sql.Text
    model_id: sql.Integer
    compile_params: sql.Text
    fit_params: sql.Text
    num_iterations: Iterations
    use_gpus: sql.Flag = False
    validation_table: sql.Text = None
    metrics_compute_frequency: sql.Integer = None
    warm_start: sql.Flag = False
    name: sql.Name = None
    description: sql.Description = None
    object_table: sql.Text = None
    use_caching: sql.Flag = True
    seed: Seed = 0
    durability: Durability = "hop"
    max_seconds: sql.Number = None
    replace: sql.Flag = False
    wait: sql.Flag = True
    priority: sql.Priority = 0
    strategy: sql.Text = None
    strategy_params: sql.Text = None
    deterministic: sql.Flag = None

    def __post_init__(self) -> None:
        """Refuse what no table could make right."""
        super().__post_init__()
        self.check()

    @property
    def epochs(self) -> int:
        """Epochs of each configuration."""
        return self.num_iterations

    def row(self) -> tuple[int, int, str, str]:
        """The configuration as a row of a table of configurations.

        Raises:
            InvalidArgument: something is missing.
        """
        if self.model_id is None:
            raise InvalidArgument(
                "model_id: got NULL; allowed: one of model_arch_table",
                hint="cerebro.cerebro_load_model returns it",
            )
        if self.compile_params is None:
            raise InvalidArgument("compile_params: got NULL; allowed: a text of parameters")
        return 1, self.model_id, self.compile_params, self.fit_params or ""


@sql.function("cerebro_resume", "bigint", entry="fitting.resume")
class ResumeRequest(sql.Request):
    """Goes on with a run that was interrupted, cancelled, paused or failed, from its last committed hops; the
    results are those of a run that was never disturbed. Returns the run_id. any_version: also where other
    versions of TensorFlow, or another processor, may give other results. model_output_table: another name for
    the tables of models. wait := false: returns the run_id at once, and the run goes on without the session, as
    a job with that priority (see cerebro.jobs).

    Attributes:
        run_id: a run of the calling role itself
        max_seconds: as in `cerebro_fit_multiple`, counted from this call
        num_workers: default: as many as the run began with
        any_version: go on although versions, or what else the [manifest](views.md#view-cerebroruns) tells,
            are not those of the beginning, so that results may differ
        model_output_table: another name for the table of models, checked as in `cerebro_fit_multiple`, where
            the one that the run began with was taken meanwhile. The run keeps it. Not for a run with
            `warm_start`, which replaces the tables that it went on from
        wait, priority: `wait := false`: the call checks its arguments, returns at once, and the run goes on
            without the session as a [job](jobs.md#jobs) of that priority, -100 to 100, above 0 for
            administrators
    """

    run_id: sql.BigInt
    max_seconds: sql.Number = None
    num_workers: sql.Workers = None
    any_version: sql.Flag = False
    model_output_table: sql.Text = None
    wait: sql.Flag = True
    priority: sql.Priority = 0

    def __post_init__(self) -> None:
        """Refuse what no run could make right."""
        super().__post_init__()
        check_seconds(self.max_seconds)


@sql.function("cerebro_cancel", "text", entry="fitting.cancel")
class CancelRequest(sql.Request):
    """Stops a run that another session drives, or one of its configurations; what is committed stays, and the run
    can be resumed. Returns the status afterwards.

    Attributes:
        run_id: a run that the caller sees in `cerebro.runs`; its status is `starting` or `running`. Or
            `interrupted`: then its driver, if that comes back, leaves it alone
        mst_key: one configuration, which is not trained to its end, then or later; the others go on. Default:
            the whole run
    """

    run_id: sql.BigInt
    mst_key: sql.Integer = None


@sql.function("cerebro_pause", "text", entry="fitting.pause")
class PauseRequest(sql.Request):
    """Stops a run that another session drives, whose call then returns without an error; cerebro_resume goes on
    with it. Returns the status afterwards.

    Attributes:
        run_id: as in `cerebro_cancel`
    """

    run_id: sql.BigInt


@sql.function("cerebro_drop_run", "void", entry="fitting.drop_run")
class DropRunRequest(sql.Request):
    """Removes a run that has stopped from the catalog, and its states. The output tables stay.

    Attributes:
        run_id: a run that the caller sees in `cerebro.runs` and that nobody drives
    """

    run_id: sql.BigInt


@sql.function("cerebro_vacuum", "SETOF record", out="run_id bigint, bytes bigint")
class VacuumRequest(sql.Request):
    """Removes the states of runs that stopped so long ago, and states that belong to no run; administrators do it
    for all. Such a run can no longer be resumed; its record stays. Returns what was removed.

    Attributes:
        older_than: since the run was stopped, or its last hop; not negative
    """

    older_than: sql.Interval = "7 days"


def check_workers(strategy: Strategy, num_workers: int | None) -> None:
    """Refuse a number of workers where one session drives all segments."""
    if strategy.drives_segments and num_workers is not None:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed with schedule := {strategy.name!r}: NULL, as one "
            "session drives all segments"
        )


def check_seconds(max_seconds: float | None) -> None:
    """Refuse a budget that is none."""
    if max_seconds is not None and not 0 < max_seconds <= MAX_SECONDS:  # also where it is NaN
        raise InvalidArgument(
            f"max_seconds: got {max_seconds}; allowed: above 0, up to {MAX_SECONDS:.0f}"
        )


def _check_deterministic(request: TrainingRequest) -> None:
    """Refuse to promise what asynchronous workers cannot keep."""
    chosen = request.chosen
    if request.deterministic and chosen.asynchrony.is_any:
        given = f", strategy_params := {chosen.text!r}" if chosen.text else ""
        raise InvalidArgument(
            f"deterministic: got true beside strategy := {chosen.name!r}{given}, whose workers do not "
            "wait for each other; allowed: false, or NULL",
            hint=f"strategy_params := '{chosen.deterministic_params}' is deterministic; cerebro.cerebro_replay makes a run again in the "
            "order that it has recorded",
        )
