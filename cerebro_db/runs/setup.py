"""Everything that a run needs, read and checked before any worker starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import (
    AUTO,
    EVERY_HOP,
    GROUPED,
    HOPPER,
    ROTATION,
    SIDE_BY_SIDE,
    TASK,
    TRAINING,
    VALIDATION,
    Architecture,
    Configuration,
    RunSpec,
    Workers,
)
from cerebro_db.decide import callbacks
from cerebro_db.decide.grouping import Rule, largest_of
from cerebro_db.errors import CerebroError, InvalidArgument, WrongObjectType
from cerebro_db.models.architectures import load_architectures
from cerebro_db.models.fit_checks import check_alike, configuration_named, target_facts, with_counts
from cerebro_db.postgres.catalog import Catalog
from cerebro_db.postgres.dialects.postgresql_training import PostgreSQLTraining
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import Outputs, new_output, new_outputs
from cerebro_db.postgres.packed import PackedTable, load_packed
from cerebro_db.postgres.relations import find, find_if_there, new_name
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.table_kinds import MODELS, STATES_SUFFIX
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.request import FitRequest
from cerebro_db.runs.selection import chosen_by
from cerebro_db.runs.served import check_served
from cerebro_db.runs.speeds import measured_speeds
from cerebro_db.runs.strategy_checks import check_averages, check_enough, check_rounds, check_way
from cerebro_db.training.scores.targets import TargetFacts


@dataclass(frozen=True)
class RunSetup:
    """A run that can start, or go on.

    Attributes:
        output_text: the name of the output as the caller gave it.
        selection, architectures: names of the tables, for people; no selection for one model.
        replaces: whether the output tables of an earlier run are replaced, and gone on from.
        replace_output: whether those of an earlier run give way to them as they are.
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
    replace_output: bool = False
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
        if not self.replace_output and not self.replaces:
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
    selection, rows, table = chosen_by(session, request)
    known = load_architectures(session, table, {row.text.model_id for row in rows})
    targets = with_counts(session, packed, targets, (row.text.fit_params for row in rows))
    maker = Maker(
        packed, targets, validation is not None, request.seed or 0, tick=lambda: session.tick()
    )
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
        has_choice = most > 1 and not spec.use_gpus
        if has_choice and not spec.speeds.are_known and not request.deterministic:
            threads = max(1, request.cores // neighbours)
            spec = replace(spec, speeds=measured_speeds(session, threads))
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
        replace_output=bool(request.replace),
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
    _, rows, table = chosen_by(session, request)
    load_architectures(session, table, {row.text.model_id for row in rows})
    for row in rows:
        try:
            parse_compile_params(row.text.compile_params)
            parse_fit_params(row.text.fit_params)
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
        epochs=request.epochs,
        seed=request.seed or 0,
        frequency=_frequency(request, configurations),
        partitions=partitions_of(packed, validation),
        schedule=chosen.name,
        rounds=chosen.rounds,
        resets=chosen.resets,
        warm_up=chosen.warm_up,
        bits=chosen.bits,
        speeds=chosen.speeds,
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
    rule = Rule(partitions, processors, most, spec.epochs, neighbours, spec.speeds)
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
    speeds = spec.speeds
    more = {
        "neighbours": spec.neighbours or None,
        "speed": speeds.other,
        "convolution_speed": speeds.convolution,
        "measured_hops": speeds.measured_hops or None,
    }
    listed = "".join(f", {name}={value!r}" for name, value in more.items() if value is not None)
    return f"processors={spec.processors}, group={spec.largest_group}{listed}"


def partitions_of(
    packed: PackedTable, validation: PackedTable | None
) -> dict[str, tuple[int, ...]]:
    """The keys of the partitions of each data set."""
    tables = {TRAINING: packed} | ({} if validation is None else {VALIDATION: validation})
    return {name: tuple(p.partition_key for p in one.partitions) for name, one in tables.items()}


def _frequency(request: FitRequest, configurations: Sequence[Configuration]) -> int:
    """Epochs between measures: by default only the last epoch has them, with callbacks that act on
    them each has.

    Raises:
        InvalidArgument: measures are wanted at the end only, when callbacks could do nothing.
    """
    last = request.epochs
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
