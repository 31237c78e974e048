"""Everything that a run needs, read and checked before any worker starts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_db.configs.architectures.memory import (
    Load,
    MemoryEstimate,
    check_worker_memory,
    usable_mb,
    worker_limit_mb,
    worker_memory,
)
from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.configs.settings import PEER_NETWORK_HINT
from cerebro_db.core.decisions import Candidate
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import (
    ALLREDUCE,
    AUTO,
    AVERAGING,
    EVERY_HOP,
    GROUPED,
    HOPPER,
    ROTATION,
    SERVED,
    SIDE_BY_SIDE,
    TASK,
    TRAINING,
    VALIDATION,
    Architecture,
    Configuration,
    RunSpec,
    Workers,
)
from cerebro_db.core.strategies import ChosenStrategy
from cerebro_db.decide import callbacks
from cerebro_db.decide.grouping import Rule, largest_of
from cerebro_db.errors import (
    CerebroError,
    InvalidArgument,
    NotSupported,
    ObjectInUse,
    WrongObjectType,
)
from cerebro_db.models.architectures import load_architectures
from cerebro_db.models.fit_checks import check_alike, configuration_named, target_facts
from cerebro_db.models.one_model import architectures_of
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.control import END_HOLDER, holder_of
from cerebro_db.postgres.dialects.postgresql_hosts import PostgreSQLHosts
from cerebro_db.postgres.dialects.postgresql_training import PostgreSQLTraining
from cerebro_db.postgres.gpus import hosts_of
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import (
    Outputs,
    check,
    cleared_output,
    new_output,
    new_outputs,
    output_key,
    table_key,
)
from cerebro_db.postgres.packed import PackedTable, load_packed
from cerebro_db.postgres.relations import Relation, find, find_if_there, new_name
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.table_kinds import MODELS, STATES_SUFFIX, Facts
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.request import FitRequest
from cerebro_db.runs.served import check_served, scales_loss
from cerebro_db.training.scores.targets import TargetFacts


@dataclass(frozen=True)
class RunSetup:
    """A run that can start, or go on.

    Attributes:
        output_text: the name of the output as the caller gave it.
        selection, architectures: names of the tables, for people; no selection for one model.
        replaces: whether the output tables of an earlier run are replaced, and gone on from.
        gives_way: whether those of an earlier run give way to them as they are.
        threads: of a worker.
        search: what the configurations are from; None where they are all known.
        models: architectures by model_id, those among them that no configuration has yet.
        probes: configurations that a search may come to, with the ends of all ranges.
        weights_of: a run from which the architectures are; 0 where they are from their table.
        strategy_params: of the strategy, as they can be written.
    """

    spec: RunSpec
    packed: PackedTable
    validation: PackedTable | None
    output: QualifiedName
    output_text: str
    selection: str | None
    architectures: str
    configurations: tuple[Configuration, ...]
    targets: TargetFacts
    threads: int
    use_caching: bool = True
    replaces: bool = False
    gives_way: bool = False
    name: str | None = None
    description: str | None = None
    search: SearchSpec | None = None
    models: Mapping[int, Architecture] = field(default_factory=dict)
    probes: tuple[Configuration, ...] = ()
    weights_of: int = 0
    strategy_params: str = ""

    @property
    def is_single(self) -> bool:
        """True if it has one configuration, which is in no table."""
        return self.selection is None and self.search is None

    @property
    def possible(self) -> tuple[Configuration, ...]:
        """Configurations that workers may meet, as far as they are known."""
        return (*self.configurations, *self.probes)

    @property
    def tables(self) -> dict[str, PackedTable]:
        """The packed table of each data set."""
        found = {TRAINING: self.packed}
        return found if self.validation is None else found | {VALIDATION: self.validation}

    @property
    def gpu_tables(self) -> list[PackedTable]:
        """The tables that are read by what computes on GPUs."""
        return list(self.tables.values()) if self.spec.use_gpus else []

    @property
    def maker(self) -> Maker:
        """Makes further configurations."""
        validated = self.validation is not None
        maker = Maker(self.packed, self.targets, validated, self.spec.seed)
        if self.search is None:
            return maker
        objectives = tuple(one.monitor for one in self.search.objectives)
        return replace(maker, shared_epochs=self.search.shared_epochs, objectives=objectives)

    @property
    def num_workers(self) -> int:
        """Number of workers of the run."""
        return self.spec.workers.count

    @property
    def moves_rows(self) -> bool:
        """True if each worker computes on one segment, and the rows of all others are moved there."""
        return self.packed.is_spread and self.spec.schedule == TASK

    @property
    def outputs(self) -> Outputs | None:
        """The output tables, where those of an earlier run give way to them."""
        if not self.gives_way and not self.replaces:
            return None
        return Outputs(
            self.output,
            self.output_text,
            "model_output_table",
            MODELS,
            MODELS.suffixes,
            replace=True,
            by="warm_start" if self.replaces else "replace",
        )

    @property
    def at_once(self) -> int:
        """Workers that must work at the same time."""
        if self.spec.schedule in SIDE_BY_SIDE:
            return len(self.packed.partitions)
        is_bound = self.packed.is_spread and self.spec.largest_group > 1
        return len(self.packed.partitions) if is_bound else self.spec.largest_group

    def for_workers(self, count: int) -> RunSetup:
        """The same before it has begun, where there are no more workers: with smaller groups."""
        if self.spec.schedule != AUTO or count >= self.at_once:
            return self
        rule = replace(Rule.of(self.spec), largest=1 if self.packed.is_spread else count)
        spec = replace(self.spec, largest_group=largest_of(rule, self.configurations))
        if spec.largest_group == 1:
            most = most_workers(self.packed, len(self.configurations))
            workers = min(most, spec.workers.count)
            spec = replace(spec, workers=replace(spec.workers, count=workers))
        return replace(self, spec=spec, strategy_params=written(spec))

    def with_workers(self, count: int) -> RunSetup:
        """The same with another number of workers, which no result depends on."""
        return replace(
            self, spec=replace(self.spec, workers=replace(self.spec.workers, count=count))
        )


def set_up(
    session: Session, sql: PostgreSQLTraining, request: FitRequest
) -> tuple[QualifiedName, RunSetup]:
    """Read and check all that a request names; returns the architecture table as well.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    request.check()
    packed = load_packed(session, request.source_table, "source_table")
    targets = target_facts(packed)
    output = output_of(session, request)
    validation = None
    if request.validation_table is not None:
        validation = load_packed(session, request.validation_table, "validation_table")
        check_alike(packed, validation)
    selection, rows, table = _chosen(session, request)
    known = load_architectures(session, table, {row.model_id for row in rows})
    maker = Maker(packed, targets, validation is not None, request.seed or 0)
    configurations = maker.make(rows, known)
    chosen = request.chosen
    check_rounds(chosen, configurations, packed)
    check_averages(chosen, configurations)
    check_served(chosen.name, chosen.asynchrony, configurations, packed)
    spec = spec_of(request, packed, validation, configurations, len(configurations), sql)
    neighbours = int(session.run(*sql.neighbours(packed))[0][0])
    network = Catalog(session).settings().peer_network
    check_way(request.chosen.name, packed, neighbours, network)
    if request.chosen.name == AUTO:
        is_one = neighbours == len(packed.partitions)
        most = len(packed.partitions) if is_one or network else 1
        apart = 0 if is_one else neighbours
        spec = with_groups(spec, request, packed, configurations, most, apart)
    return table.name, RunSetup(
        spec=spec,
        packed=packed,
        validation=validation,
        output=output,
        output_text=str(request.model_output_table),
        selection=selection,
        architectures=str(table.name),
        configurations=configurations,
        targets=targets,
        threads=max(1, request.cores // neighbours),
        models=known,
        use_caching=bool(request.use_caching),
        replaces=bool(request.warm_start),
        gives_way=bool(request.replace),
        name=request.name,
        description=request.description,
        strategy_params=request.chosen.text if request.chosen.name != AUTO else written(spec),
    )


def check_without_data(session: Session, request: FitRequest) -> None:
    """Refuse what is wrong with a request whatever its packed tables will be: they are not there yet.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    request.check()
    check_output(session, request)
    _, rows, table = _chosen(session, request)
    load_architectures(session, table, {row.model_id for row in rows})
    for row in rows:
        try:
            parse_compile_params(row.compile_params)
            parse_fit_params(row.fit_params)
        except CerebroError as error:
            error.message = f"{configuration_named(row.mst_key)}: {error.message}"
            raise


def check_output(session: Session, request: FitRequest) -> None:
    """Refuse a name of output tables that is taken by something that does not give way.

    Raises:
        DuplicateTable, DependentObjects, ObjectInUse: as for other output tables.
    """
    output_of(session, request)
    if request.replace and not request.warm_start:
        role = "model_output_table"
        new_outputs(session, request.model_output_table, role, MODELS, replace=True)


def threads_of(session: Session, sql: PostgreSQLTraining, cores: int, packed: PackedTable) -> int:
    """Threads of a worker: its share of the cores."""
    return max(1, cores // int(session.run(*sql.neighbours(packed))[0][0]))


def spec_of(
    request: FitRequest,
    packed: PackedTable,
    validation: PackedTable | None,
    configurations: Sequence[Configuration],
    together: int,
    sql: PostgreSQLTraining,
) -> RunSpec:
    """All that the course of a run depends on.

    Args:
        request: of the caller.
        packed, validation: what is trained and scored on.
        configurations: that the run may have.
        together: how many of them are trained at the same time.
        sql: statements of the server.
    """
    chosen = request.chosen
    usable = _usable_workers(packed, together, chosen.name)
    # Where partitions lie on other machines, those have processors of their own; all are alike.
    busy = usable if packed.is_spread else min(request.cores, usable)
    if chosen.name == ROTATION:  # one session, which all segments work for
        busy = 1
    check_enough(chosen.name, request.num_workers, packed)
    wanted = request.num_workers or (usable if chosen.name in SIDE_BY_SIDE else busy)
    count = min(wanted, most_workers(packed, together, chosen.name))
    return RunSpec(
        epochs=_epochs(request),
        seed=request.seed or 0,
        frequency=_frequency(request, configurations),
        partitions=partitions_of(packed, validation),
        schedule=chosen.name,
        rounds=chosen.rounds,
        resets=chosen.resets,
        warm_up=chosen.warm_up,
        bits=chosen.bits,
        asynchrony=chosen.asynchrony,
        durability=request.durability or EVERY_HOP,
        use_gpus=bool(request.use_gpus),
        workers=workers_of(sql, chosen.name, count),
    )


def workers_of(sql: PostgreSQLTraining, strategy: str, count: int) -> Workers:
    """Workers of a run; with ``task`` none is bound to partitions."""
    return Workers(count, sql.binds_workers and strategy != TASK, sql.most_hops)


def with_groups(
    spec: RunSpec,
    request: FitRequest,
    packed: PackedTable,
    configurations: Sequence[Configuration],
    most: int,
    neighbours: int = 0,
) -> RunSpec:
    """The same with the largest group that the run may come to, and workers for it.

    Where no group is of any use the run is that of a hopper.

    Args:
        spec: of a hopper.
        request: of the caller.
        packed: what is trained on.
        configurations: of the run.
        most: partitions whose workers have a way to each other.
        neighbours: of them, those of one host; 0 where all are.
    """
    partitions, chosen = len(packed.partitions), request.chosen
    wanted = request.num_workers
    if spec.use_gpus or (packed.is_spread and wanted not in (None, partitions)):
        most = 1
    for name, given in (("group", chosen.group), ("neighbours", chosen.neighbours)):
        if given is not None and given > partitions:
            raise InvalidArgument(
                f"strategy_params: got {name}={given}; allowed: 1 to {partitions}, the number of partitions"
            )
    most = min(most, chosen.group or partitions, wanted or partitions)
    neighbours = chosen.neighbours or neighbours
    neighbours = 0 if neighbours == partitions else neighbours
    here = neighbours or partitions  # of one host, whose processors are those that are known
    processors = chosen.processors or max(1, min(request.cores, here) * partitions // here)
    rule = Rule(partitions, processors, most, spec.epochs, neighbours)
    spec = replace(spec, processors=processors, largest_group=largest_of(rule, configurations))
    if spec.largest_group == 1:
        return spec
    spec = replace(spec, neighbours=rule.neighbours)
    count = wanted or (partitions if packed.is_spread else min(processors, partitions))
    count = max(count, spec.largest_group)
    count = min(count, most_in_groups(spec, packed, len(configurations)))
    return replace(spec, workers=replace(spec.workers, count=count))


def most_in_groups(spec: RunSpec, packed: PackedTable, configurations: int) -> int:
    """More workers would have nothing to do where some train together, and others hop."""
    partitions = len(packed.partitions)
    if packed.is_spread:  # each segment has one of its own
        return partitions
    return max(spec.largest_group, min(spec.processors, partitions), configurations)


def written(spec: RunSpec) -> str:
    """Parameters of its strategy from which the choices of a run follow."""
    neighbours = f", neighbours={spec.neighbours}" if spec.neighbours else ""
    return f"processors={spec.processors}, group={spec.largest_group}{neighbours}"


def partitions_of(
    packed: PackedTable, validation: PackedTable | None
) -> dict[str, tuple[int, ...]]:
    """The keys of the partitions of each data set."""
    tables = {TRAINING: packed} | ({} if validation is None else {VALIDATION: validation})
    return {name: tuple(p.partition_key for p in one.partitions) for name, one in tables.items()}


def _epochs(request: FitRequest) -> int:
    return request.num_iterations or 1


def _frequency(request: FitRequest, configurations: Sequence[Configuration]) -> int:
    """Epochs between measures: by default only the last epoch has them, with callbacks that act on
    them each has.

    Raises:
        InvalidArgument: measures are wanted at the end only, when callbacks could do nothing.
    """
    last = _epochs(request)
    frequency = request.metrics_compute_frequency
    watched = [one.mst_key for one in configurations if callbacks.watches(one.fit_params)]
    if frequency is None:
        return 1 if watched else last
    if watched and 1 < last == frequency:
        raise InvalidArgument(
            f"metrics_compute_frequency: got {frequency}, so that configuration {watched[0]}, "
            "whose callbacks act on what is measured, would be measured after the last epoch only; "
            f"allowed: 1 to {last - 1}",
            hint="leave it out: with such callbacks the default is 1",
        )
    return frequency


def check_way(strategy: str, packed: PackedTable, neighbours: int, network: str) -> None:
    """Refuse trainers that have no way to each other.

    Args:
        strategy: of the run.
        packed: what is trained on.
        neighbours: of its partitions, the most that are on one host.
        network: in which those of several hosts may meet; empty for none.

    Raises:
        NotSupported: they are on several hosts, and are allowed no network, or could not use one.
    """
    if strategy not in SIDE_BY_SIDE or neighbours == len(packed.partitions):
        return
    if strategy in SERVED:
        raise not_on_one_host(strategy, packed, neighbours, _OVER_A_NETWORK)
    if not network:
        hint = f"{PEER_NETWORK_HINT}; strategy := {HOPPER!r} moves nothing but states"
        raise no_way(f"strategy: got {strategy!r}", packed, neighbours, hint)


def no_way(got: str, packed: PackedTable, neighbours: int, hint: str) -> NotSupported:
    """Error of trainers that are on several hosts, where no network is allowed to them."""
    why = "the setting peer_network is empty, so that trainers of others have no way to each other"
    return NotSupported(_apart(got, packed, neighbours, why), hint=hint)


_OVER_A_NETWORK = (
    f"strategy := {ALLREDUCE!r}, which has the weights of a synchronous parameter server, exchanges gradients "
    "between hosts"
)


def not_on_one_host(strategy: str, packed: PackedTable, neighbours: int, hint: str) -> NotSupported:
    """Error of trainers on several hosts, of which one holds the weights in memory that all of them share."""
    why = "one trainer holds the weights, in memory that all of them share"
    return NotSupported(_apart(f"strategy: got {strategy!r}", packed, neighbours, why), hint=hint)


def _apart(got: str, packed: PackedTable, neighbours: int, why: str) -> str:
    return (
        f"{got} for {packed.relation.name}, whose {len(packed.partitions)} partitions are on segments of several "
        f"hosts, at most {neighbours} of them on one; allowed: partitions on one host, as {why}"
    )


def hosts_of_peers(
    session: Session, hosts: PostgreSQLHosts, setup: RunSetup, network: str
) -> dict[int, str]:
    """The host of each partition, where trainers of several hosts exchange gradients; else nothing.

    Raises:
        NotSupported: they do, and are allowed no network, or could not use one.
    """
    spec = setup.spec
    if spec.schedule not in SIDE_BY_SIDE and spec.largest_group == 1:
        return {}
    found = hosts_of(session, hosts, setup.packed.relation.name)
    counts = Counter(found.values())
    if len(counts) < 2:
        return {}
    most = max(counts.values())
    if spec.schedule in SERVED:
        hint = "resume the run when these segments are on one host again"
        raise not_on_one_host(spec.schedule, setup.packed, most, hint)
    if not network:
        # A run that has begun keeps its strategy.
        got = f"strategy: got {spec.schedule!r}"
        raise no_way(got, setup.packed, most, PEER_NETWORK_HINT)
    return found


def check_groups(setup: RunSetup, num_workers: int) -> None:
    """Refuse fewer workers than the groups that a run has chosen."""
    if setup.spec.schedule == AUTO and num_workers < setup.at_once:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed: from {setup.at_once}, as the run has begun with "
            f"strategy := {AUTO!r}, and so many train a configuration together",
            hint="leave it out",
        )


def check_enough(strategy: str, num_workers: int | None, packed: PackedTable) -> None:
    """Refuse fewer workers than must work together."""
    least = len(packed.partitions)
    if strategy in SIDE_BY_SIDE and num_workers is not None and num_workers < least:
        raise InvalidArgument(
            f"num_workers: got {num_workers}; allowed with strategy := {strategy!r}: from {least}, as "
            f"each of the {least} partitions of {packed.relation.name} has a worker at the same time",
            hint=f"leave it out, or pack the source with num_partitions := {num_workers}",
        )


def check_rounds(
    chosen: ChosenStrategy, configurations: Sequence[Configuration], packed: PackedTable
) -> None:
    """Refuse more rounds of an epoch than any configuration has batches for: the others would be empty."""
    largest = max(one.rows for one in packed.partitions)
    least = min(one.fit_params.batch_size for one in configurations)
    most = math.ceil(largest / least)
    if chosen.rounds > most:
        raise InvalidArgument(
            f"strategy_params of {chosen.name}: got rounds={chosen.rounds}; allowed: 1 to {most}, as the "
            f"largest partition of {packed.relation.name} has {largest} rows, so {most} batches of {least}",
            hint=f"rounds={most} ends a round after each batch",
        )


def check_averages(chosen: ChosenStrategy, configurations: Sequence[Configuration]) -> None:
    """Refuse optimizers that hold what has no mean: the scale of a loss is a power of 2."""
    if chosen.name != AVERAGING or chosen.resets:
        return
    for one in configurations:
        if scales_loss(one):
            raise InvalidArgument(
                f"configuration {one.mst_key}: got an optimizer that scales its loss, as the model "
                f"computes in float16; allowed with strategy := {AVERAGING!r}: optimizers whose numbers "
                "can be averaged",
                hint="strategy_params := 'optimizer=reset' has it begin each round anew",
            )


def _usable_workers(packed: PackedTable, configurations: int, strategy: str) -> int:
    """Workers that train most of the time, where each has a processor."""
    if strategy == TASK:
        return configurations
    if strategy in GROUPED:
        return len(packed.partitions)
    return min(len(packed.partitions), configurations)


def most_workers(packed: PackedTable, configurations: int, strategy: str = HOPPER) -> int:
    """More would have nothing to do: where partitions lie on segments each belongs to one worker."""
    partitions = len(packed.partitions)
    if strategy in GROUPED:
        return partitions if packed.is_spread else partitions * configurations
    return min(partitions, configurations) if packed.is_spread else configurations


def _chosen(session: Session, request: FitRequest) -> tuple[str | None, list[Candidate], Relation]:
    """The name of the table of configurations, its rows, and the table of architectures."""
    if request.one is not None:
        row = Candidate(*request.one.row(), _epochs(request))
        return None, [row], architectures_of(session, request.one)
    selection = find(session, request.model_selection_table, "model_selection_table")
    rows = [Candidate(*row, _epochs(request)) for row in _selection_rows(session, selection)]
    return str(selection.name), rows, _architecture_table(session, selection)


def memory_workers(session: Session, setup: RunSetup) -> int:
    """The most workers that the memory of the server is enough for.

    Raises:
        InvalidArgument: one of them may need more than it may use, with what the estimate is made of.
    """
    estimate, limit, memory_mb = _memory(session, setup)
    check_worker_memory(estimate, limit, "configurations")
    fitting = max(1, usable_mb(memory_mb) * 2**20 // estimate.total)
    if setup.spec.schedule in SIDE_BY_SIDE and fitting < setup.at_once:
        total = setup.at_once * estimate.total // 2**20
        raise InvalidArgument(
            f"strategy: got {setup.spec.schedule!r}, for which {setup.at_once} workers may need {total} MB "
            f"at the same time (each {estimate}); allowed: {usable_mb(memory_mb)} MB, which all workers "
            "may use together",
            hint=f"strategy := {HOPPER!r} has one replica of each configuration",
        )
    if setup.packed.is_spread:  # segments have processes of their own, whatever the workers are
        return setup.num_workers
    return fitting


def within_memory(session: Session, setup: RunSetup) -> RunSetup:
    """The same before it has begun, with no larger groups than the memory of the server is enough for."""
    if setup.spec.schedule != AUTO or setup.at_once == 1:
        return setup
    estimate, limit, memory_mb = _memory(session, setup)
    fitting = usable_mb(memory_mb) * 2**20 // estimate.total
    return setup.for_workers(fitting if estimate.total <= limit * 2**20 else 1)


def _memory(session: Session, setup: RunSetup) -> tuple[MemoryEstimate, int, int]:
    """The estimate of a worker, the megabytes that it may use, and those of the machine."""
    settings = Catalog(session).settings()
    loads = [_load(one, setup.at_once) for one in setup.possible]
    cache = settings.cache_mb * 2**20 if setup.use_caching else 0
    decoded = sum(table.decoded_bytes for table in setup.tables.values())
    memory_mb, cores = session.run(_MACHINE)[0]
    limit = worker_limit_mb(settings.max_worker_mb, memory_mb, cores)
    return worker_memory(loads, decoded, cache), limit, memory_mb


_MACHINE = "SELECT cerebro._memory_mb(), cerebro._cores()"


def _load(configuration: Configuration, at_once: int) -> Load:
    facts, params = configuration.architecture.facts, configuration.compile_params
    fit = configuration.fit_params
    return Load(
        configuration.program,
        facts.parameters,
        params.optimizer.name,
        configuration.jit,
        params.optimizer.keeps_averages,
        fit.batch_size,
        facts.row_bytes,
        facts.largest_bytes,
        facts.fixed_bytes,
        exchanges=at_once > 1,
    )


def output_of(session: Session, request: FitRequest) -> QualifiedName:
    """The name of the output tables."""
    role = "model_output_table"
    if not request.warm_start:
        if request.replace:  # tried as soon as no other run can make them
            return new_name(session, request.model_output_table, role)
        return new_output(session, request.model_output_table, role)
    previous = find(session, request.model_output_table, role)
    states = previous.name.suffixed(STATES_SUFFIX)
    found = find_if_there(session, states.text, role)
    if found is None or not all(found.has(column) for column in ("mst_key", "chunk", "state")):
        raise WrongObjectType(
            f"{role}: {previous.name} is no output of cerebro.cerebro_fit_multiple, as there is no table "
            f"{states} of states beside it, from which warm_start := true goes on",
            hint="name the table of an earlier run; without warm_start, training begins anew under "
            "another name",
        )
    return previous.name


def _selection_rows(session: Session, selection: Relation) -> list[tuple[int, int, str, str]]:
    for name in _SELECTION:
        if not selection.has(name):
            raise WrongObjectType(
                f"model_selection_table: {selection.name} has no column {name}",
                hint=_HINT,
            )
    rows = session.run(f"SELECT {', '.join(_SELECTION)} FROM {selection.name.sql} ORDER BY mst_key")
    if not rows:
        raise InvalidArgument(f"model_selection_table: {selection.name} is empty", hint=_HINT)
    for row in rows:
        _check_nulls(selection, row)
    checked = [_checked(selection, row) for row in rows]
    repeated = [key for key, count in Counter(row[0] for row in checked).items() if count > 1]
    if repeated:
        raise InvalidArgument(
            f"model_selection_table: {selection.name} has the mst_key {repeated[0]} more than once; "
            "allowed: each mst_key once",
            hint="give each configuration a mst_key of its own",
        )
    return checked


def _check_nulls(selection: Relation, row: tuple[Any, ...]) -> None:
    missing = [name for name, value in zip(_SELECTION, row, strict=True) if value is None]
    if missing:
        mst_key = row[0]
        which = f"the row of mst_key {mst_key}" if mst_key is not None else "a row"
        raise InvalidArgument(
            f"model_selection_table: {which} of {selection.name} has NULL in the column "
            f"{missing[0]}; allowed: no NULL",
            hint=f"UPDATE {selection.name} SET {missing[0]} = ... fills it; fit_params may be ''"
            if mst_key is not None
            else f"DELETE FROM {selection.name} WHERE mst_key IS NULL removes it",
        )


_HINT = "cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make such tables"
_SELECTION = ("mst_key", "model_id", "compile_params", "fit_params")


def _checked(selection: Relation, row: tuple[Any, ...]) -> tuple[int, int, str, str]:
    values = dict(zip(_SELECTION, row, strict=True))
    facts = Facts("model_selection_table", selection.name, values, _HINT)
    mst_key, model_id = (facts.whole(name, values[name], -(2**31)) for name in _SELECTION[:2])
    return mst_key, model_id, facts.text("compile_params"), facts.text("fit_params")


def _architecture_table(session: Session, selection: Relation) -> Relation:
    summary = selection.name.suffixed("_summary")
    found = session.run("SELECT pg_catalog.to_regclass(%s)::text", (summary.text,))
    if found[0][0] is None:
        raise WrongObjectType(
            f"model_selection_table: {selection.name} has no summary table {summary}",
            hint="cerebro.cerebro_generate_configs and cerebro.cerebro_load_configs make both",
        )
    rows = session.run(f"SELECT model_arch_table FROM {summary.sql}")
    if len(rows) != 1:
        raise WrongObjectType(f"{summary}: got {len(rows)} rows; allowed: one", hint=_HINT)
    facts = Facts("model_selection_table", summary, {"model_arch_table": rows[0][0]}, _HINT)
    return find(session, facts.text("model_arch_table"), "model_arch_table")


ROLE = "model_output_table"


@contextmanager
def reserved(session: Session, setup: RunSetup, notify: Callable[[str], None]) -> Iterator[None]:
    """While this lasts no other run makes the same tables.

    Args:
        session: of the driver; it holds the lock, which ends with it.
        setup: of the run.
        notify: is told what else was dropped.

    Raises:
        DuplicateTable: another run has just made them, or what is there does not give way.
        ObjectInUse: another run makes them, or someone uses those that are replaced.
        DependentObjects: something depends on what is replaced.
    """
    key = output_key(setup.output)
    if not session.run("SELECT pg_catalog.pg_try_advisory_lock(%s)", (key,))[0][0]:
        raise ObjectInUse(
            f"{ROLE}: got {setup.output}, which another run is making at this moment: "
            f"{holder_of(session, key)}",
            hint=f"choose another name, or {END_HOLDER}",
        )
    try:
        _keep_inputs(session, setup)
        if setup.outputs is not None:
            check(session, setup.outputs)
        else:  # again, now that no other run can make them
            cleared_output(session, setup.output_text, ROLE, notify)
        yield
    finally:
        with suppress(CerebroError):
            if not session.busy and not session.closed:
                session.run_through("SELECT pg_catalog.pg_advisory_unlock(%s)", (key,))


def _keep_inputs(session: Session, setup: RunSetup) -> None:
    """No call replaces or drops a table that the run reads; the locks end with the session's use.

    Raises:
        ObjectInUse: a transaction is about to do so.
    """
    for table in (setup.packed, setup.validation):
        if table is None:
            continue
        key = table_key(table.relation.oid)
        if not session.run("SELECT pg_catalog.pg_try_advisory_lock_shared(%s)", (key,))[0][0]:
            raise ObjectInUse(
                f"source_table, validation_table: {table.relation.name} is replaced or dropped at "
                f"this moment: {holder_of(session, key)}",
                hint=f"try again when that is over; {END_HOLDER}",
            )
