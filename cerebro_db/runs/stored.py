"""A run in the catalog: written when it begins, and read back by whoever goes on with it."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from msgspec import structs

import cerebro_db
from cerebro_db.configs.architectures.architecture import fingerprint
from cerebro_db.configs.architectures.limits import ArchitectureLimits
from cerebro_db.configs.architectures.memory import ArchitectureFacts
from cerebro_db.configs.frameworks import check_architecture, compile_params_in
from cerebro_db.configs.grids.parameters import parse_fit_params
from cerebro_db.core import events
from cerebro_db.core.decisions import ADD, CLONE, Decision
from cerebro_db.core.run_spec import RunSpec
from cerebro_db.core.spec import TRAINING, Architecture, Configuration, Hop
from cerebro_db.core.state import RunState
from cerebro_db.core.statuses import DRIVEN, QUEUED
from cerebro_db.core.tasks import Measures
from cerebro_db.decide import callbacks
from cerebro_db.errors import InvalidArgument, InvalidData, WrongRunStatus
from cerebro_db.models.architectures import limits_of
from cerebro_db.models.fit_checks import target_facts, with_counts
from cerebro_db.postgres.calls.settings import everywhere
from cerebro_db.postgres.catalog.records import copy_rounds, decisions_of
from cerebro_db.postgres.catalog.runs import (
    RESTORED,
    Catalog,
    ConfigurationRow,
    PackedMark,
    RunTables,
    StoredRun,
)
from cerebro_db.postgres.catalog.states import StateStore
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.orders import StateTables
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.fingerprint import check_name
from cerebro_db.postgres.tables.fingerprint import fingerprint as packed_fingerprint
from cerebro_db.postgres.tables.kinds import STATES_SUFFIX
from cerebro_db.postgres.tables.packed import PackedTable, packed_of
from cerebro_db.requests.fitting import check_workers
from cerebro_db.runs.catalog import RunCatalog
from cerebro_db.runs.setup import RunSetup, partitions_of, workers_of
from cerebro_db.runs.strategy_checks import check_enough, check_groups


# -- written ---------------------------------------------------------------------------------------
def register(
    session: Session,
    dialect: PostgreSQL,
    setup: RunSetup,
    *,
    queued: Callable[[Session, int], None] | None = None,
) -> int:
    """Write down a run that shall start, in one transaction; returns the run_id.

    Args:
        session: of the driver.
        setup: of the run.
        queued: writes down in the same transaction who begins with it; None where this driver does.
    """
    catalog, tables = Catalog(session), _tables(session, setup)
    spec = structs.replace(
        setup.spec,
        session=everywhere(session.caller),
        cerebro_version=cerebro_db.__version__,
    )
    with transaction(session):
        warm = _started_from_previous(catalog, dialect, tables, setup) if spec.warm_start else set()
        rows = [replace(one, is_warm=one.mst_key in warm) for one in setup.configurations]
        source = (
            "(SELECT o.model_id, o.model_weights FROM cerebro._architectures o "
            f"WHERE o.run_id = {setup.weights_of:d})"
            if setup.models_table is None
            else setup.models_table.sql
        )
        status = DRIVEN[0] if queued is None else QUEUED
        key = secrets.randbits(62) << 1  # nobody can take a lock of this number before the run does
        run_id = catalog.new_run(spec, tables, key, rows, setup.models.values(), source, status)
        if setup.weights_of and spec.strategy.has_weight_server:
            copy_rounds(catalog, setup.weights_of, run_id)
        if queued is not None:
            queued(session, run_id)
        return run_id


def states_of(tables: RunTables, spec: RunSpec) -> StateTables:
    """The names of the tables of states of a run."""
    return StateTables(tables.states or "", spec.hops_an_epoch, spec.every_hop)


def _tables(session: Session, setup: RunSetup) -> RunTables:
    read = setup.tables.values() if setup.spec.folds is None else [setup.packed]
    marks = [PackedMark(one.relation.oid, packed_fingerprint(session, one)) for one in read]
    # Nobody can make a table of this name before the run does.
    states = f"run_{secrets.token_hex(16)}"
    validation = marks[1] if len(marks) > 1 else None
    return RunTables(setup.output, setup.replace, marks[0], validation, states)


def _started_from_previous(
    catalog: Catalog, dialect: PostgreSQL, tables: RunTables, setup: RunSetup
) -> set[int]:
    """Warm start: copy the state that is there under an mst_key; returns the keys that have one."""
    previous, sql = setup.output.suffixed(STATES_SUFFIX), dialect.training
    store = StateStore(states_of(tables, setup.spec), len(setup.configurations), catalog, sql)
    states = store.create(lasting=True).name
    places = _first_partitions(setup)
    first = {key: keys[0] for key, keys in places.items()}
    others = {key: keys[1:] for key, keys in places.items()}
    catalog.execute(*sql.begin_states(states, previous, setup.packed, first, others=others))
    return {mst_key for mst_key, _, _ in catalog.execute(sql.contents(states))}


def _first_partitions(setup: RunSetup) -> dict[int, list[int]]:
    """The partitions of each configuration's first round, by mst_key: as the run will plan it."""
    state = RunState(setup.spec, setup.configurations)
    state.apply(events.Planned(tuple(setup.spec.strategy.plan(state))))
    return {
        key: [hop.partition_key for hop in state.ready(track)]
        for key, track in state.tracks.items()
    }


# -- read back: what it was set up with ------------------------------------------------------------
def load_setup(
    session: Session, dialect: PostgreSQL, run: StoredRun, *, has_states: bool = True
) -> RunSetup:
    """Setup of a run that was begun; its configurations are those that it has by now.

    Raises:
        InvalidData: a table that it reads has been changed since.
        UndefinedTable: one was dropped.
        WrongRunStatus: the run cannot go on at all.
    """
    tables, catalog = run.tables, Catalog(session)
    if has_states:
        _check_has_states(run)
    packed = packed_of(session, tables.source.oid, "source_table")
    validation = None if run.spec.folds is None else packed
    if tables.validation is not None:
        validation = packed_of(session, tables.validation.oid, "validation_table")
    check_unchanged(session, run, packed, validation)
    spec = run.spec
    spec = structs.replace(
        spec,
        partitions=partitions_of(packed, validation),
        workers=workers_of(dialect.training, spec.strategy, spec.workers.count),
    )
    limits = limits_of(session)
    models = {row[0]: _architecture(*row, limits) for row in catalog.architectures(run.run_id)}
    joined = {
        change.mst_key: (change.epochs, number)
        for number, one in enumerate(decisions_of(catalog, run.run_id), 1)
        if one.action in (ADD, CLONE)
        for change in one.changes
    }
    rows = catalog.configurations(run.run_id)
    texts = [one.fit_params for one in rows]
    texts += [] if spec.search is None else [spec.search.space.fit_params_grid]
    configurations = []
    for one in rows:
        session.tick()  # there may be very many
        budget, cohort = joined.get(one.mst_key, (spec.epochs, 0))
        configurations.append(_configuration(one, models[one.model_id], budget, cohort))
    setup = RunSetup(
        spec=spec,
        packed=packed,
        validation=validation,
        output=tables.output,
        output_text=tables.output.text,
        configurations=tuple(configurations),
        targets=with_counts(session, packed, target_facts(packed), texts),
        replace=tables.replaces,
        models=models,
    )
    return setup if spec.search is None else replace(setup, probes=setup.maker.probes(models))


def _check_has_states(run: StoredRun) -> None:
    if run.tables.states is None and run.status == "failed":
        raise WrongRunStatus(
            f"run {run.run_id} cannot go on: no model was trained to the end",
            hint=f"begin a new run; SELECT mst_key, error FROM cerebro.leaderboard WHERE run_id = "
            f"{run.run_id} tells why",
        )
    if run.tables.states is None:
        raise WrongRunStatus(
            f"run {run.run_id} cannot go on: its states are gone",
            hint="cerebro.cerebro_vacuum removes the states of runs that nobody has resumed for long",
        )


def check_unchanged(
    session: Session, run: StoredRun, packed: PackedTable, validation: PackedTable | None
) -> None:
    """Check that the packed tables are those that the run began with.

    Raises:
        InvalidData: one of them has been changed since.
    """
    _check_print(session, packed, run.tables.source, "source_table")
    if validation is not None and run.tables.validation is not None:
        _check_print(session, validation, run.tables.validation, "validation_table")


def _check_print(session: Session, packed: PackedTable, mark: PackedMark, role: str) -> None:
    check_name(session, packed.relation)
    before = mark.fingerprint
    if before == RESTORED:
        return
    if packed_fingerprint(session, packed, before) != before:
        raise InvalidData(
            f"{role}: {packed.relation.name} has been changed since the run began; "
            "allowed: to go on with the same rows only",
            hint="start a new run",
        )


def _architecture(
    model_id: int, text: str, facts: str, has_weights: bool, limits: ArchitectureLimits
) -> Architecture:
    identity = fingerprint(check_architecture(text, limits))
    return Architecture(model_id, identity, text, ArchitectureFacts.from_json(facts), has_weights)


def _configuration(
    row: ConfigurationRow, architecture: Architecture, budget: int, cohort: int
) -> Configuration:
    """A configuration as it joined the run."""
    return Configuration(
        mst_key=row.mst_key,
        architecture=architecture,
        compile_text=row.compile_params,
        fit_text=row.fit_params,
        compile_params=compile_params_in(architecture.text, row.compile_params),
        fit_params=parse_fit_params(row.fit_params),
        hop_seconds=row.hop_seconds,
        initial_seed=row.initial_seed,
        jit=row.jit,
        steps_per_call=row.steps_per_call,
        goal=row.goal,
        budget=budget,
        cohort=cohort,
        is_warm=row.is_warm,
    )


def with_workers(setup: RunSetup, num_workers: int | None) -> RunSetup:
    """The setup with another number of workers, on which no result depends."""
    if num_workers is None:
        return setup
    strategy, packed = setup.spec.strategy, setup.packed
    check_workers(strategy, num_workers)
    check_enough(strategy, num_workers, packed)
    check_groups(strategy, setup.at_once, num_workers)
    together = len(setup.configurations)
    if setup.spec.search is not None:
        together = max(together, setup.spec.search.concurrency)
    most = strategy.most_workers(len(packed.partitions), together, is_spread=packed.is_spread)
    return setup.with_workers(min(num_workers, most))


def with_output(setup: RunSetup, output: QualifiedName | None) -> RunSetup:
    """The setup with other names of its output tables.

    Raises:
        InvalidArgument: the run replaces the tables from which it went on.
    """
    if output is None:
        return setup
    if setup.spec.warm_start:
        raise InvalidArgument(
            f"model_output_table: got {output} for a run with warm_start := true; allowed: NULL, as "
            f"such a run replaces {setup.output}, from which it went on"
        )
    return replace(setup, output=output, output_text=output.text)


# -- read back: how far it has come ----------------------------------------------------------------
def load_state(session: Session, store: StateStore, run: StoredRun, setup: RunSetup) -> RunState:
    """State of a run as the catalog has it; what is half done is taken back.

    Hops whose states a crash took, and results that are not there for all data sets, are
    forgotten: both will be made again, and be the same.
    """
    spec, run_id, catalog = setup.spec, run.run_id, Catalog(session)
    # Also if the run cannot go on: the hops whose states are there have been made.
    writer = RunCatalog(catalog, run_id)
    writer.restore(spec, store.unrecorded(run_id))
    state = state_of_decisions(setup, decisions_of(catalog, run_id))
    for one in catalog.configurations(run_id):
        if one.status in ("failed", "cancelled"):
            state.apply(events.Failed(one.mst_key, one.status, one.error or one.status))
    rows = catalog.metrics(run_id)
    bad = _diverged(state, rows)
    done = _done(state, store)
    going = {key: version for key, version in done.items() if not state.tracks[key].ended}
    partly = _partly_measured(state, rows)
    watched = [
        key for key in going if callbacks.watches(state.tracks[key].configuration.fit_params)
    ]
    # Parts of a round that is averaged have rows before there is a state of it.
    is_recorded = spec.strategy.averages or catalog.has_recorded(run_id, going, spec.hops_an_epoch)
    with transaction(session):
        if bad or partly or watched or not is_recorded:
            catalog.lock("configurations", "hops", "metrics")
        for event in bad:
            writer.ended(event.mst_key, event.status, event.error)
        _go_back(catalog, store, run_id, spec, going, is_recorded=is_recorded)
        partly |= _ahead(rows, going, spec.hops_an_epoch)
        catalog.forget_metrics(run_id, sorted(partly))
        _measure(state, [row for row in rows if (row.mst_key, row.epoch) not in partly])
        judged = callbacks.verdicts(state, going)
        for verdict in judged:
            state.apply(verdict)
        writer.judged([state.tracks[one.mst_key] for one in judged])
        for mst_key in state.ended:
            store.forget_all(mst_key, _may_be_wanted(state, store, mst_key))
        _restore(state, store, done | going, catalog.planned(run_id))
        _check_states(state, run.tables.states, store.kept())
    over = min((one.done for one in state.alive), default=0) // spec.hops_an_epoch
    hops = catalog.plan(run_id, over + 1)
    _check_groups(spec, hops)
    state.apply(events.Planned(tuple(hops)))
    return state


def _check_groups(spec: RunSpec, hops: Iterable[Hop]) -> None:
    """Refuse a plan by which more hops are made together than the run has chosen."""
    most = max(spec.strategy.largest_group, spec.together)
    for size in sorted({hop.group for hop in hops}):
        if size > most or len(spec.partitions[TRAINING]) % size:
            raise InvalidData(
                f"got a plan with {size} hops made together; allowed: up to {most}, of which partitions make "
                "whole rounds",
                hint="someone has changed the plan; the run cannot go on",
            )


def state_of_decisions(setup: RunSetup, decisions: Iterable[Decision]) -> RunState:
    """A run as its decisions have made it."""
    known = {one.mst_key: one for one in setup.configurations}
    state = RunState(setup.spec, [one for one in known.values() if not one.cohort])
    for one in decisions:
        joined = one.changes if one.action in (ADD, CLONE) else ()
        state.apply(events.Decided(one, tuple(known[change.mst_key] for change in joined)))
    return state


def _diverged(state: RunState, rows: Iterable[Measures]) -> list[events.Failed]:
    """Failures of configurations whose results are no number, and which are not recorded yet."""
    found = []
    for row in rows:
        if row.fault is not None and not state.tracks[row.mst_key].ended:
            found.append(events.Failed(row.mst_key, "failed", row.fault))
            state.apply(found[-1])
    return found


def _done(state: RunState, store: StateStore) -> dict[int, int]:
    """Number of hops of each configuration: as many as its newest state tells."""
    done = dict.fromkeys(state.tracks, 0)
    for mst_key, version in store.kept():
        done[mst_key] = max(done[mst_key], version)
    return done


def _partly_measured(state: RunState, rows: Iterable[Measures]) -> set[tuple[int, int]]:
    """Epochs with some results, but not of all data sets: mst_key and epoch."""
    there: dict[tuple[int, int], set[str]] = {}
    for row in rows:
        there.setdefault((row.mst_key, row.epoch), set()).add(row.dataset)
    wanted = set(state.spec.scored)
    return {
        (mst_key, epoch)
        for (mst_key, epoch), found in there.items()
        if not (found >= wanted or state.tracks[mst_key].ended)
    }


def _ahead(
    rows: Iterable[Measures], going: Mapping[int, int], hops_an_epoch: int
) -> set[tuple[int, int]]:
    """Results of epochs whose states are lost, as mst_key and epoch."""
    return {
        (row.mst_key, row.epoch)
        for row in rows
        if row.epoch * hops_an_epoch > going.get(row.mst_key, math.inf)
    }


def _measure(state: RunState, rows: Iterable[Measures]) -> None:
    """Take note of results."""
    for (mst_key, epoch), found in itertools.groupby(rows, lambda row: (row.mst_key, row.epoch)):
        measures = list(found)
        if {row.dataset for row in measures} >= set(state.spec.scored):
            for row in measures:
                state.apply(row)
            state.apply(events.Scored(epoch, (mst_key,)))


def _go_back(
    catalog: Catalog,
    store: StateStore,
    run_id: int,
    spec: RunSpec,
    going: dict[int, int],
    *,
    is_recorded: bool,
) -> None:
    """Forget hops whose states are lost, and those that came after a hop of which nothing is known.

    A segment that has recovered from a crash alone has lost the states on it that do not last, and
    with the driver's session the records of hops may go; states of later hops are on other segments.
    """
    hops_an_epoch = spec.hops_an_epoch
    if spec.strategy.averages:
        _forget_lost_parts(catalog, store, run_id, going, hops_an_epoch)
    if is_recorded:
        return
    catalog.forget_hops(run_id, going, hops_an_epoch)
    recorded = catalog.recorded_hops(run_id)
    for mst_key, version in going.items():
        if recorded.get(mst_key, 0) < version:
            first = catalog.first_unrecorded(run_id, mst_key, hops_an_epoch)
            store.delete_from(mst_key, first)
            going[mst_key] = max((n for key, n in store.kept() if key == mst_key), default=0)
            catalog.forget_hops(run_id, {mst_key: going[mst_key]}, hops_an_epoch)


def _may_be_wanted(state: RunState, store: StateStore, mst_key: int) -> set[int]:
    """Versions that a decision may go back to, of a configuration that has failed since."""
    ended, hops = state.tracks[mst_key].ended, state.spec.hops_an_epoch
    if not state.spec.is_open or ended is None or ended[0] != "failed":
        return set()
    return {version for key, version in store.kept() if key == mst_key and version % hops == 0}


def _forget_lost_parts(
    catalog: Catalog, store: StateStore, run_id: int, going: dict[int, int], hops_an_epoch: int
) -> None:
    """Forget hops of rounds under way whose states are lost: those that do not outlive a crash."""
    for mst_key, done in going.items():
        numbers = [-1 - version for key, version in store.kept() if key == mst_key and version < 0]
        there = [number for number in numbers if number >= done]
        catalog.forget_hops_but(run_id, mst_key, done, there, hops_an_epoch)


def _restore(
    state: RunState, store: StateStore, done: dict[int, int], planned: dict[int, int]
) -> None:
    versions: dict[int, set[int]] = {}
    for mst_key, version in store.kept():
        versions.setdefault(mst_key, set()).add(version)
    for mst_key in state.tracks:
        there = frozenset(versions.get(mst_key, ()))
        event = events.Restored(mst_key, done[mst_key], planned.get(mst_key, 0), there)
        state.apply(event)


def _check_states(state: RunState, name: str | None, there: Collection[tuple[int, int]]) -> None:
    """Check that the states are there from which the run goes on, to be scored or to be restored."""
    needed = {
        (key, version)
        for key, track in state.tracks.items()
        if not track.ended
        for version in _needed(state, key)
    }
    if missing := sorted(needed - set(there)):
        raise InvalidData(
            f"{name}: got no state of mst_key {missing[0][0]} after {missing[0][1]} hops",
            hint="someone has changed the tables of states; the run cannot go on",
        )


def _needed(state: RunState, mst_key: int) -> set[int]:
    track, hops = state.tracks[mst_key], state.spec.hops_an_epoch
    found = {track.done} if track.done or track.configuration.is_warm else set()
    if track.verdict.restored_epoch is not None:
        found.add(track.verdict.restored_epoch * hops)
    epochs = range(1, track.done // hops + 1)
    return found | {
        epoch * hops
        for epoch in epochs
        if epoch not in track.scored and state.is_awaited(track, epoch)
    }
