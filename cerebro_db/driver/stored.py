"""A run read back from the catalog: what it was set up with, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cerebro_db.configs.architecture import ArchitectureLimits, check_architecture, fingerprint
from cerebro_db.configs.facts import ArchitectureFacts
from cerebro_db.configs.parameters import parse_compile_params, parse_fit_params
from cerebro_db.database.catalog import ArchitectureRow, Catalog, ConfigurationRow, StoredRun
from cerebro_db.database.dialects.postgresql_training import StateTables
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.packed import PackedTable, packed_of
from cerebro_db.database.packed import fingerprint as packed_fingerprint
from cerebro_db.database.sessions import Session, Tick
from cerebro_db.driver.architectures import Architecture, limits_of
from cerebro_db.driver.control import transaction
from cerebro_db.driver.fit_checks import target_facts
from cerebro_db.driver.fit_request import ROTATION, FitRequest, check_workers
from cerebro_db.driver.fit_setup import Configuration, RunSetup, most_workers
from cerebro_db.driver.registration import states_of
from cerebro_db.driver.scoreboard import TRAINING, VALIDATION
from cerebro_db.driver.state_store import StateStore
from cerebro_db.driver.verdicts import Verdicts
from cerebro_db.errors import InvalidArgument, InvalidData, WrongRunStatus
from cerebro_db.planning.orders import Visit


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        plan: visits that are planned, of epochs that are not over for all configurations.
        planned: the last epoch that is planned.
        done: hops that each configuration has done, where any.
        scored: (mst_key, epoch) of those that have results on all data sets.
        ended: status and error of configurations that failed or were cancelled.
        seconds: that earlier drivers spent.
        verdicts: what callbacks have decided.
    """

    plan: tuple[Visit, ...]
    planned: int
    done: dict[int, int]
    scored: frozenset[tuple[int, int]]
    ended: dict[int, tuple[str, str]]
    seconds: float
    verdicts: Verdicts


def load_setup(session: Session, run: StoredRun, tick: Tick) -> RunSetup:
    """What a run was set up with.

    Raises:
        InvalidData: a table that it reads has been changed since.
        UndefinedTable: one was dropped.
        WrongRunStatus: the run cannot go on at all.
    """
    row, catalog = run.row, Catalog(session, tick)
    if row.states is None and run.status == "failed":
        raise WrongRunStatus(
            f"run {run.run_id} cannot go on: no model was trained to the end",
            hint=f"begin a new run; SELECT mst_key, error FROM cerebro.leaderboard WHERE run_id = "
            f"{run.run_id} tells why",
        )
    if row.states is None:
        raise WrongRunStatus(
            f"run {run.run_id} cannot go on: its states are gone",
            hint="cerebro.cerebro_vacuum removes the states of runs that nobody has resumed for long",
        )
    packed = packed_of(session, row.source_oid, "source_table", tick)
    validation = None
    if row.validation_oid is not None:
        validation = packed_of(session, row.validation_oid, "validation_table", tick)
    check_unchanged(session, run, packed, validation, tick)
    limits = limits_of(session, tick)
    models = {m.model_id: _architecture(m, limits) for m in catalog.architectures(run.run_id)}
    stored = catalog.configurations(run.run_id)
    return RunSetup(
        request=_request(run),
        packed=packed,
        validation=validation,
        output=QualifiedName(row.output_schema, row.output_name),
        selection=row.model_selection_table,
        architectures=row.model_arch_table,
        configurations=tuple(_configuration(c, models[c.model_id]) for c, _, _ in stored),
        targets=target_facts(packed),
        num_workers=row.num_workers,
        threads=row.threads,
    )


def load_progress(
    session: Session, store: StateStore, run: StoredRun, setup: RunSetup, tick: Tick
) -> Progress:
    """How far a run has come; what is half done is taken back.

    Hops whose states a crash took, and results that are not there for all data sets, are
    forgotten: both will be made again, and be the same.
    """
    states, catalog = states_of(run.row), Catalog(session, tick)
    done = {c.mst_key: 0 for c in setup.configurations}
    for mst_key, version in store.kept():
        done[mst_key] = max(done.get(mst_key, 0), version)
    # Also if the run cannot go on: the hops whose states are there have been made.
    store.restore_hops(run.run_id, _numbered(setup, states))
    stored = catalog.configurations(run.run_id)
    ended = {
        c.mst_key: (status, error or status)
        for c, status, error in stored
        if status in ("failed", "cancelled")
    }
    bad = {
        mst_key: ("failed", diverged(dataset, epoch, loss))
        for mst_key, epoch, dataset, loss in catalog.diverged(run.run_id)
        if mst_key not in ended
    }
    ended |= bad
    going = {key: version for key, version in done.items() if key not in ended}
    scored, partly = _scored(catalog, run, setup, set(going))
    verdicts = Verdicts(catalog, run.run_id, setup.configurations)
    is_recorded = catalog.has_recorded(run.run_id, going, states.hops_an_epoch)
    with transaction(session, tick):
        if bad or partly or not is_recorded or any(map(verdicts.watches, going)):
            catalog.lock("configurations", "hops", "metrics")
        for mst_key, (status, error) in bad.items():
            catalog.configuration_ended(run.run_id, mst_key, status, error)
        if not is_recorded:
            _go_back(catalog, store, run.run_id, going, states)
        done |= going
        warm = {c.mst_key for c, _, _ in stored if c.is_warm}
        catalog.forget_metrics(run.run_id, partly)
        verdicts.update(going)
        for mst_key in ended:
            store.forget_all(mst_key)
        restored = {
            (key, epoch * states.hops_an_epoch) for key, epoch in verdicts.restored().items()
        }
        _check_states(states, setup, going, warm, scored, restored, store.kept())
    trained = [version for key, version in going.items() if key not in verdicts.stopped()]
    over = min(trained, default=0) // states.hops_an_epoch
    plan = tuple(Visit(*visit) for visit in catalog.plan(run.run_id, over + 1))
    planned = catalog.planned(run.run_id)
    return Progress(plan, planned, done, scored, ended, run.active, verdicts)


def _go_back(
    catalog: Catalog, store: StateStore, run_id: int, going: dict[int, int], states: StateTables
) -> None:
    """Forget hops whose states are lost, and those that came after a hop of which nothing is known.

    A segment that has recovered from a crash alone has lost the states on it that do not last, and
    with the driver's session the records of hops may go; states of later hops are on other segments.
    """
    catalog.forget_hops(run_id, going, states.hops_an_epoch)
    recorded = going if states.every_hop else catalog.recorded_hops(run_id)
    for mst_key, version in going.items():
        if recorded.get(mst_key, 0) < version:
            first = catalog.first_unrecorded(run_id, mst_key, states.hops_an_epoch)
            store.delete_from(mst_key, first)
            going[mst_key] = max((n for key, n in store.kept() if key == mst_key), default=0)
            catalog.forget_hops(run_id, {mst_key: going[mst_key]}, states.hops_an_epoch)


def _numbered(setup: RunSetup, states: StateTables) -> int:
    """How many workers the rows of hops number: in steps, the processes of the partitions."""
    rotates = setup.request.schedule == ROTATION
    return states.hops_an_epoch if rotates else setup.num_workers


def diverged(dataset: str, epoch: int, loss: float) -> str:
    """Why a configuration failed whose loss is no number."""
    return f"the {dataset} loss of epoch {epoch} is {loss}"


def _scored(
    catalog: Catalog, run: StoredRun, setup: RunSetup, going: set[int]
) -> tuple[frozenset[tuple[int, int]], list[tuple[int, int]]]:
    """Results that are there on all data sets, and on some only, by mst_key and epoch."""
    wanted = {TRAINING} if setup.validation is None else {TRAINING, VALIDATION}
    results = catalog.scored(run.run_id)
    partly = [pair for pair, names in results.items() if pair[0] in going and names != wanted]
    return frozenset(pair for pair, names in results.items() if names == wanted), partly


def _check_states(
    states: StateTables,
    setup: RunSetup,
    going: dict[int, int],
    warm: set[int],
    scored: frozenset[tuple[int, int]],
    restored: set[tuple[int, int]],
    there: set[tuple[int, int]],
) -> None:
    """Whether the states are there from which the run goes on, to be scored or to be restored."""
    needed = {(key, done) for key, done in going.items() if done > 0 or key in warm} | restored
    for epoch in setup.request.metric_epochs():
        version = epoch * states.hops_an_epoch
        needed |= {
            (key, version)
            for key, done in going.items()
            if done >= version and (key, epoch) not in scored
        }
    if missing := sorted(needed - there):
        raise InvalidData(
            f"{states.name}: got no state of mst_key {missing[0][0]} after {missing[0][1]} hops",
            hint="someone has changed the tables of states; the run cannot go on",
        )


def check_unchanged(
    session: Session,
    run: StoredRun,
    packed: PackedTable,
    validation: PackedTable | None,
    tick: Tick,
) -> None:
    """Whether the packed tables are those that the run began with.

    Raises:
        InvalidData: one of them has been changed since.
    """
    _check_print(session, packed, run.row.source_print, "source_table", tick)
    if validation is not None:
        _check_print(session, validation, run.row.validation_print, "validation_table", tick)


def _check_print(
    session: Session, packed: PackedTable, before: str | None, role: str, tick: Tick
) -> None:
    if packed_fingerprint(session, packed, tick) != before:
        raise InvalidData(
            f"{role}: {packed.relation.name} has been changed since the run began; "
            "allowed: to go on with the same rows only",
            hint="start a new run",
        )


def _request(run: StoredRun) -> FitRequest:
    row = run.row
    return FitRequest(
        source_table=row.source_table,
        model_output_table=QualifiedName(row.output_schema, row.output_name).text,
        model_selection_table=row.model_selection_table,
        num_iterations=row.num_iterations,
        use_gpus=row.use_gpus,
        validation_table=row.validation_table,
        metrics_compute_frequency=row.metrics_compute_frequency,
        warm_start=row.warm_start,
        name=row.name,
        description=row.description,
        use_caching=row.use_caching,
        seed=row.seed,
        num_workers=None if row.schedule == ROTATION else row.num_workers,
        durability=row.durability,
        schedule=row.schedule,
        replace=row.replaces,
    )


def _architecture(row: ArchitectureRow, limits: ArchitectureLimits) -> Architecture:
    return Architecture(
        model_id=row.model_id,
        id=fingerprint(check_architecture(row.model_arch, limits)),
        text=row.model_arch,
        facts=ArchitectureFacts.from_json(row.model_facts),
        has_weights=row.has_weights,
    )


def _configuration(row: ConfigurationRow, architecture: Architecture) -> Configuration:
    return Configuration(
        mst_key=row.mst_key,
        architecture=architecture,
        compile_text=row.compile_params,
        fit_text=row.fit_params,
        compile_params=parse_compile_params(row.compile_params),
        fit_params=parse_fit_params(row.fit_params),
        hop_seconds=row.hop_seconds,
        initial_seed=row.initial_seed,
        jit=row.jit,
        steps_per_call=row.steps_per_call,
        goal=row.goal,
    )


def with_workers(setup: RunSetup, num_workers: int | None) -> RunSetup:
    """The same with another number of workers, which no result depends on."""
    if num_workers is None:
        return setup
    check_workers(setup.request.schedule, num_workers)
    most = most_workers(setup.packed, len(setup.configurations))
    return replace(setup, num_workers=min(num_workers, most))


def with_output(setup: RunSetup, output: QualifiedName | None) -> RunSetup:
    """The same with other names for its output tables.

    Raises:
        InvalidArgument: the run replaces the tables from which it went on.
    """
    if output is None:
        return setup
    if setup.replaces:
        raise InvalidArgument(
            f"model_output_table: got {output} for a run with warm_start := true; allowed: NULL, as "
            f"such a run replaces {setup.output}, from which it went on"
        )
    request = replace(setup.request, model_output_table=output.text)
    return replace(setup, output=output, request=request)
