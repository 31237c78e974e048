"""Everything that a run needs, read and checked before any worker starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.core.run_spec import RunSpec, Workers
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import EVERY_HOP, TRAINING, VALIDATION, Architecture, Configuration
from cerebro_db.core.strategies import Resources, Strategy
from cerebro_db.decide import callbacks
from cerebro_db.errors import CerebroError, InvalidArgument, WrongObjectType
from cerebro_db.models.architectures import load_architectures
from cerebro_db.models.fit_checks import check_alike, configuration_named, target_facts, with_counts
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.postgresql.training import PostgreSQLTraining
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import MODELS, STATES_SUFFIX
from cerebro_db.postgres.tables.outputs import Outputs, new_output, new_outputs
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.postgres.tables.relations import find, find_if_there, new_name
from cerebro_db.requests.fitting import FitOneRequest, FitRequest, RunRequest
from cerebro_db.requests.searching import SearchRequest
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.selection import chosen_by
from cerebro_db.runs.speeds import measured_speeds
from cerebro_db.runs.strategy_checks import check_enough, check_rounds, check_way
from cerebro_db.training.scores.targets import TargetFacts


@dataclass(frozen=True)
class RunSetup:
    """A run that can start, or go on.

    Attributes:
        output_text: the name of the output as the caller gave it.
        selection, architectures, object_table: names of the tables, for people; no selection for one model.
        replaces: whether the output tables of an earlier run are replaced, and gone on from.
        replace_output: whether those of an earlier run give way to them as they are.
        threads: of a worker.
        search: what the configurations are from; None where they are all known.
        models: architectures by model_id, those among them that no configuration has yet.
        probes: configurations that a search may come to, with the ends of all ranges.
        weights_of: a run from which the architectures are; 0 where they are from their table.
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
    object_table: str | None = None

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
        return self.packed.is_spread and self.spec.strategy.moves_rows

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
        return self.spec.strategy.workers_at_once(
            len(self.packed.partitions), is_spread=self.packed.is_spread
        )

    def for_workers(self, count: int) -> RunSetup:
        """Setup of a new run with fewer workers, and groups that fit them."""
        if not self.spec.strategy.chooses_groups or count >= self.at_once:
            return self
        largest = 1 if self.packed.is_spread else count
        strategy = self.spec.strategy.regrouped(self.spec, self.configurations, largest)
        setup = replace(self, spec=replace(self.spec, strategy=strategy))
        most = strategy.most_workers(
            len(self.packed.partitions), len(self.configurations), is_spread=self.packed.is_spread
        )
        return setup.with_workers(min(most, self.num_workers))

    def with_workers(self, count: int) -> RunSetup:
        """The setup with another number of workers, on which no result depends."""
        return replace(
            self, spec=replace(self.spec, workers=replace(self.spec.workers, count=count))
        )


TrainRequest = FitRequest | FitOneRequest


def set_up(
    request: TrainRequest, session: Session, sql: PostgreSQLTraining
) -> tuple[QualifiedName, RunSetup]:
    """Read and check all that a request names; returns the architecture table as well.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    packed = load_packed(session, request.source_table, "source_table")
    targets = target_facts(packed)
    output = output_of(session, request)
    validation = None
    if request.validation_table is not None:
        validation = load_packed(session, request.validation_table, "validation_table")
        check_alike(packed, validation)
    selection, rows, table, objects = chosen_by(session, request)
    known = load_architectures(session, table, {row.text.model_id for row in rows})
    targets = with_counts(session, packed, targets, (row.text.fit_params for row in rows))
    maker = Maker(
        packed, targets, validation is not None, request.seed or 0, tick=lambda: session.tick()
    )
    configurations = maker.make(rows, known)
    chosen = request.chosen
    check_rounds(chosen, configurations, packed)
    chosen.check_configurations(configurations, str(packed.relation.name), len(packed.partitions))
    spec = spec_of(request, packed, validation, configurations, len(configurations), sql)
    neighbours = int(session.run(*sql.neighbours(packed))[0][0])
    network = Catalog(session).settings().peer_network
    check_way(chosen, packed, neighbours, network)
    threads = max(1, request.cores // neighbours)
    resources = Resources(
        cores=request.cores,
        neighbours=neighbours,
        num_workers=request.num_workers,
        is_spread=packed.is_spread,
        has_network=bool(network),
        speeds=None if request.deterministic else lambda: measured_speeds(session, threads),
    )
    spec = chosen.settled(spec, configurations, resources)
    return table.name, RunSetup(
        spec=spec,
        packed=packed,
        validation=validation,
        output=output,
        output_text=str(request.model_output_table),
        selection=selection,
        architectures=str(table.name),
        object_table=objects,
        configurations=configurations,
        targets=targets,
        threads=threads,
        models=known,
        use_caching=bool(request.use_caching),
        replaces=bool(request.warm_start),
        replace_output=bool(request.replace),
        name=request.name,
        description=request.description,
    )


def check_without_data(session: Session, request: TrainRequest) -> None:
    """Refuse what is wrong with a request whatever its packed tables will be: they are not there yet.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    check_output(session, request)
    chosen = chosen_by(session, request)
    load_architectures(session, chosen.architectures, {row.text.model_id for row in chosen.rows})
    for row in chosen.rows:
        try:
            parse_compile_params(row.text.compile_params)
            parse_fit_params(row.text.fit_params)
        except CerebroError as error:
            error.message = f"{configuration_named(row.mst_key)}: {error.message}"
            raise


def check_output(session: Session, request: TrainRequest | SearchRequest) -> None:
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
    request: TrainRequest | SearchRequest,
    packed: PackedTable,
    validation: PackedTable | None,
    configurations: Sequence[Configuration],
    together: int,
    sql: PostgreSQLTraining,
) -> RunSpec:
    """The spec of a run, on which its course depends.

    Args:
        request: of the caller.
        packed, validation: what is trained and scored on.
        configurations: that the run may have.
        together: how many of them are trained at the same time.
        sql: statements of the server.
    """
    chosen = request.chosen
    check_enough(chosen, request.num_workers, packed)
    count = chosen.num_workers(
        request.num_workers, len(packed.partitions), together, request.cores,
        is_spread=packed.is_spread,
    )  # fmt: skip
    return RunSpec(
        epochs=request.epochs,
        seed=request.seed or 0,
        frequency=_frequency(request, configurations),
        partitions=partitions_of(packed, validation),
        strategy=chosen,
        durability=request.durability or EVERY_HOP,
        use_gpus=bool(request.use_gpus),
        workers=workers_of(sql, chosen, count),
    )


def workers_of(sql: PostgreSQLTraining, strategy: Strategy, count: int) -> Workers:
    """Workers of a run; none is bound to partitions where rows are moved to it."""
    return Workers(count, sql.binds_workers and not strategy.moves_rows, sql.most_hops)


def partitions_of(
    packed: PackedTable, validation: PackedTable | None
) -> dict[str, tuple[int, ...]]:
    """The keys of the partitions of each data set."""
    tables = {TRAINING: packed} | ({} if validation is None else {VALIDATION: validation})
    return {name: tuple(p.partition_key for p in one.partitions) for name, one in tables.items()}


def _frequency(request: RunRequest, configurations: Sequence[Configuration]) -> int:
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


def output_of(session: Session, request: TrainRequest | SearchRequest) -> QualifiedName:
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
