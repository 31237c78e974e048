"""A run before any worker starts: its request is resolved in the database, and then checked.

``resolve`` makes all look-ups of what a request names. What follows of them is decided without the database, by
``checked`` here and by ``searches/search.py``, and comes to a :class:`RunSetup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from cerebro_db.configs.frameworks import compile_params_in
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.core.folds import Folds
from cerebro_db.core.run_spec import RunSpec, Workers
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.spec import EVERY_HOP, TRAINING, VALIDATION, Architecture, Configuration
from cerebro_db.core.strategies import Resources, Speeds, Strategy
from cerebro_db.decide import callbacks
from cerebro_db.errors import CerebroError, InvalidArgument, WrongObjectType
from cerebro_db.models.architectures import load_architectures
from cerebro_db.models.fit_checks import check_alike, configuration_named, target_facts, with_counts
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.training import TrainingStatements
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import MODELS, STATES_SUFFIX
from cerebro_db.postgres.tables.outputs import Outputs, new_output, new_outputs
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.postgres.tables.relations import find, find_if_there, new_name
from cerebro_db.requests.fitting import FitOneRequest, FitRequest, TrainingRequest
from cerebro_db.requests.searching import SearchRequest
from cerebro_db.runs.configurations import Maker
from cerebro_db.runs.folds import fold_rows_of, folds_of, trainings
from cerebro_db.runs.selection import Chosen, chosen_by
from cerebro_db.runs.speeds import measured_speeds
from cerebro_db.runs.strategy_checks import (
    check_enough,
    check_mixing,
    check_rounds,
    check_strategy,
    check_way,
)
from cerebro_db.training.scores.targets import TargetFacts

ROLE = "model_output_table"
TrainRequest = FitRequest | FitOneRequest
AnyRequest = TrainRequest | SearchRequest


@dataclass(frozen=True)
class RunSetup:
    """A run that can start, or go on.

    Attributes:
        output: the model output table.
        output_text: its name as the caller gave it.
        replace: whether output tables of an earlier run give way as they are.
        models: architectures by model_id, those among them that no configuration has yet.
        models_table: that they are from; None where a run has them already.
        weights_of: a run from which they are; 0 where they are from that table.
        probes: configurations that a search may come to, with the ends of all ranges.
    """

    spec: RunSpec
    packed: PackedTable
    validation: PackedTable | None
    output: QualifiedName
    output_text: str
    targets: TargetFacts
    configurations: tuple[Configuration, ...] = ()
    models: Mapping[int, Architecture] = field(default_factory=dict)
    models_table: QualifiedName | None = None
    weights_of: int = 0
    probes: tuple[Configuration, ...] = ()
    replace: bool = False

    @property
    def is_single(self) -> bool:
        """True if it has one configuration, which is in no table."""
        return self.spec.model_selection_table is None and self.spec.search is None

    @property
    def possible(self) -> tuple[Configuration, ...]:
        """Configurations that workers may meet, as far as they are known."""
        return (*self.configurations, *self.probes)

    @property
    def tables(self) -> dict[str, PackedTable]:
        """The packed table of each data set."""
        return tables_of(self.packed, self.validation)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all rows in the memory of workers; those of folds are there once."""
        return sum(
            self.tables[name].decoded_bytes for name in set(map(self.spec.stored, self.tables))
        )

    @property
    def gpu_tables(self) -> list[PackedTable]:
        """The tables that are read by what computes on GPUs."""
        return list(self.tables.values()) if self.spec.use_gpus else []

    @property
    def maker(self) -> Maker:
        """Makes further configurations."""
        validated = self.validation is not None
        spec = self.spec
        return Maker(self.packed, self.targets, validated, spec.seed, spec.search, spec.folds)

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
        if not self.replace and not self.spec.warm_start:
            return None
        return Outputs(
            self.output,
            self.output_text,
            ROLE,
            MODELS,
            MODELS.suffixes,
            replace=True,
            by="warm_start" if self.spec.warm_start else "replace",
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
        setup = replace(self, spec=structs.replace(self.spec, strategy=strategy))
        most = strategy.most_workers(
            len(self.packed.partitions), len(self.configurations), is_spread=self.packed.is_spread
        )
        return setup.with_workers(min(most, self.num_workers))

    def with_workers(self, count: int) -> RunSetup:
        """The setup with another number of workers, on which no result depends."""
        workers = structs.replace(self.spec.workers, count=count)
        return replace(self, spec=structs.replace(self.spec, workers=workers))


def tables_of(packed: PackedTable, validation: PackedTable | None) -> dict[str, PackedTable]:
    """The packed table of each data set."""
    found = {TRAINING: packed}
    return found if validation is None else found | {VALIDATION: validation}


def partitions_of(
    packed: PackedTable, validation: PackedTable | None
) -> dict[str, tuple[int, ...]]:
    """Keys of the partitions of each data set."""
    tables = tables_of(packed, validation)
    return {name: tuple(p.partition_key for p in one.partitions) for name, one in tables.items()}


def workers_of(sql: TrainingStatements, strategy: Strategy, count: int) -> Workers:
    """Workers of a run; none is bound to partitions where rows are moved to it."""
    return Workers(count, sql.binds_workers and not strategy.moves_rows, sql.most_hops)


# -- looked up ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Resolved:
    """All that a request names, as it is in the database.

    Attributes:
        chosen: configurations, or those that a search chooses from.
        models: their architectures, by model_id.
        neighbours: the most partitions that are on one host.
        network: in which trainers of several hosts may meet; empty for none.
        speeds: measures the speeds of the machine, where a choice depends on them.
        tick: called for each of many configurations.
        folds: of cross-validation, for which the training table is the validation table, too.
    """

    packed: PackedTable
    validation: PackedTable | None
    output: QualifiedName
    chosen: Chosen
    models: Mapping[int, Architecture]
    targets: TargetFacts
    sql: TrainingStatements
    neighbours: int
    network: str
    threads: int
    speeds: Callable[[], Speeds]
    tick: Callable[[], None]
    folds: Folds | None = None

    def maker(self, seed: int | None) -> Maker:
        """Makes the configurations of a run with a seed."""
        validated = self.validation is not None
        return Maker(
            self.packed, self.targets, validated, seed or 0, folds=self.folds, tick=self.tick
        )


def resolve(request: AnyRequest, session: Session, sql: TrainingStatements) -> Resolved:
    """Look up all that a request names.

    Raises:
        CerebroError: what is not there, or is something else.
    """
    packed = load_packed(session, request.source_table, "source_table")
    targets, validation = target_facts(packed), None
    output = output_of(session, request)
    if request.validation_table is not None:
        validation = load_packed(session, request.validation_table, "validation_table")
        check_alike(packed, validation)
    chosen = chosen_by(session, request)
    folds = folds_of(request.folds, chosen.rows, packed)
    if folds is not None:
        validation = packed
    rows = fold_rows_of(session, folds, packed)
    if rows is not None:
        rows.check(str(packed.relation.name))
    models = load_architectures(session, chosen.architectures, chosen.model_ids)
    neighbours = int(session.run(*sql.neighbours(packed))[0][0])
    threads = max(1, request.cores // neighbours)
    return Resolved(
        packed=packed,
        validation=validation,
        output=output,
        chosen=chosen,
        models=models,
        targets=with_counts(session, packed, targets, chosen.fit_texts),
        sql=sql,
        neighbours=neighbours,
        network=Catalog(session).settings().peer_network,
        threads=threads,
        speeds=lambda: measured_speeds(session, threads),
        tick=lambda: session.tick(),
        folds=folds,
    )


def check_without_data(session: Session, request: TrainRequest) -> None:
    """Refuse what is wrong with a request whatever its packed tables will be: they are not there yet.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    check_output(session, request)
    chosen = chosen_by(session, request)
    known = load_architectures(session, chosen.architectures, chosen.model_ids)
    for row in chosen.rows:
        try:
            compile_params_in(known[row.text.model_id].text, row.text.compile_params)
            parse_fit_params(row.text.fit_params)
        except CerebroError as error:
            error.message = f"{configuration_named(row.mst_key)}: {error.message}"
            raise


def check_output(session: Session, request: AnyRequest) -> None:
    """Refuse a name of output tables that is taken by something that does not give way.

    Raises:
        DuplicateTable, DependentObjects, ObjectInUse: as for other output tables.
    """
    output_of(session, request)
    if request.replace and not request.warm_start:
        new_outputs(session, request.model_output_table, ROLE, MODELS, replace=True)


def output_of(session: Session, request: AnyRequest) -> QualifiedName:
    """The name of the output tables."""
    if not request.warm_start:
        if request.replace:  # tried as soon as no other run can make them
            return new_name(session, request.model_output_table, ROLE)
        return new_output(session, request.model_output_table, ROLE)
    previous = find(session, request.model_output_table, ROLE)
    states = previous.name.suffixed(STATES_SUFFIX)
    found = find_if_there(session, states.text, ROLE)
    if found is None or not all(found.has(column) for column in ("mst_key", "chunk", "state")):
        raise WrongObjectType(
            f"{ROLE}: {previous.name} is no output of cerebro.cerebro_fit_multiple, as there is no table "
            f"{states} of states beside it, from which warm_start := true goes on",
            hint="name the table of an earlier run; without warm_start, training begins anew under "
            "another name",
        )
    return previous.name


def set_up(request: TrainRequest, session: Session, dialect: PostgreSQL) -> RunSetup:
    """Resolve and check a request; returns a run that can be registered.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    check_request(request, dialect)
    return checked(request, resolve(request, session, dialect.training))


def check_request(request: AnyRequest, dialect: PostgreSQL) -> None:
    """Refuse what the server cannot do, whatever the tables are."""
    what = "schedule" if request.strategy is None else "strategy"
    check_strategy(dialect, request.chosen, what, request.default_strategy)


# -- checked, without the database -------------------------------------------------------------------
def checked(request: TrainRequest, found: Resolved) -> RunSetup:
    """Setup of a run whose configurations are all known.

    Raises:
        CerebroError: what is wrong, with what was got and what is allowed.
    """
    packed, chosen = found.packed, request.chosen
    rows = trainings(found.chosen.rows, found.folds)
    configurations = found.maker(request.seed).make(rows, found.models)
    check_rounds(chosen, configurations, packed)
    check_mixing(chosen, configurations)
    chosen.check_configurations(configurations, str(packed.relation.name), len(packed.partitions))
    spec = spec_of(request, found, configurations, len(configurations))
    check_way(chosen, packed, found.neighbours, found.network)
    resources = Resources(
        cores=request.cores,
        neighbours=found.neighbours,
        num_workers=request.num_workers,
        is_spread=packed.is_spread,
        has_network=bool(found.network),
        speeds=None if request.deterministic else found.speeds,
    )
    return setup_of(request, found, chosen.settled(spec, configurations, resources), configurations)


def setup_of(
    request: AnyRequest,
    found: Resolved,
    spec: RunSpec,
    configurations: Iterable[Configuration] = (),
) -> RunSetup:
    """Setup of a run with a spec."""
    return RunSetup(
        spec=spec,
        packed=found.packed,
        validation=found.validation,
        output=found.output,
        output_text=str(request.model_output_table),
        targets=found.targets,
        configurations=tuple(configurations),
        models=found.models,
        models_table=found.chosen.architectures.name,
        replace=bool(request.replace),
    )


def spec_of(
    request: AnyRequest,
    found: Resolved,
    configurations: Sequence[Configuration],
    together: int,
    search: SearchSpec | None = None,
) -> RunSpec:
    """The spec of a run, on which its course depends.

    Args:
        request: of the caller.
        found: what it names.
        configurations: that the run may have.
        together: how many of them are trained at the same time.
        search: that they are from.
    """
    chosen, packed, validation = request.chosen, found.packed, found.validation
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
        workers=workers_of(found.sql, chosen, count),
        threads=found.threads,
        use_caching=bool(request.use_caching),
        warm_start=bool(request.warm_start),
        name=request.name,
        description=request.description,
        source_table=str(packed.relation.name),
        validation_table=str(validation.relation.name) if validation and not found.folds else None,
        model_selection_table=found.chosen.table,
        model_arch_table=str(found.chosen.architectures.name),
        object_table=found.chosen.object_table,
        search=search,
        folds=found.folds,
    )


def _frequency(request: TrainingRequest, configurations: Sequence[Configuration]) -> int:
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
