"""How a run enters the catalog: in one transaction, with all that it needs to go on later."""

from __future__ import annotations

import secrets

import cerebro_db
from cerebro_db.database.catalog import ArchitectureRow, Catalog, ConfigurationRow, RunRow
from cerebro_db.database.dialects.choice import PostgreSQL
from cerebro_db.database.dialects.postgresql_training import StateTables
from cerebro_db.database.names import QualifiedName
from cerebro_db.database.packed import fingerprint
from cerebro_db.database.sessions import Session, Tick
from cerebro_db.driver.control import transaction
from cerebro_db.driver.fit_request import HOPPER
from cerebro_db.driver.fit_setup import STATES_SUFFIX, Configuration, RunSetup
from cerebro_db.driver.state_store import StateStore
from cerebro_db.planning.orders import plan_epoch


def register(
    session: Session, dialect: PostgreSQL, setup: RunSetup, models: QualifiedName, tick: Tick
) -> int:
    """Write down a run that shall start; returns the run_id.

    Args:
        session: of the driver.
        dialect: of the server.
        setup: of the run.
        models: the architecture table.
        tick: called while waiting.
    """
    catalog = Catalog(session, tick)
    row = _run_row(session, setup, tick)
    with transaction(session, tick):
        warm = _started_from_previous(catalog, dialect, row, setup) if setup.replaces else set()
        configurations = [_row(c, c.mst_key in warm) for c in setup.configurations]
        return catalog.new_run(row, configurations, _architectures(setup), models)


def states_of(row: RunRow) -> StateTables:
    """The names of the tables of states of a run."""
    return StateTables(row.states or "", row.num_partitions, row.durability == "hop")


def _run_row(session: Session, setup: RunSetup, tick: Tick) -> RunRow:
    request, packed, validation = setup.request, setup.packed, setup.validation
    return RunRow(
        name=request.name,
        description=request.description,
        source_table=str(packed.relation.name),
        validation_table=str(validation.relation.name) if validation else None,
        model_output_table=str(setup.output),
        model_selection_table=setup.selection,
        model_arch_table=setup.architectures,
        num_iterations=request.num_iterations or 1,
        metrics_compute_frequency=request.frequency,
        warm_start=setup.replaces,
        seed=request.seed or 0,
        num_partitions=len(packed.partitions),
        num_workers=setup.num_workers,
        threads=setup.threads,
        use_gpus=bool(request.use_gpus),
        use_caching=bool(request.use_caching),
        durability=request.durability or "hop",
        output_schema=setup.output.schema,
        output_name=setup.output.name,
        source_oid=packed.relation.oid,
        source_print=fingerprint(session, packed, tick),
        validation_oid=validation.relation.oid if validation else None,
        validation_print=fingerprint(session, validation, tick) if validation else None,
        # Nobody can make a table or take a lock of this name before the run does.
        states=f"run_{secrets.token_hex(16)}",
        lock_key=secrets.randbits(62) << 1,
        cerebro_version=cerebro_db.__version__,
        schedule=request.schedule or HOPPER,
        replaces=bool(request.replace),
    )


def _row(configuration: Configuration, is_warm: bool) -> ConfigurationRow:
    return ConfigurationRow(
        mst_key=configuration.mst_key,
        model_id=configuration.architecture.model_id,
        compile_params=configuration.compile_text,
        fit_params=configuration.fit_text,
        hop_seconds=configuration.hop_seconds,
        initial_seed=configuration.initial_seed,
        jit=configuration.jit,
        steps_per_call=configuration.steps_per_call,
        goal=configuration.goal,
        is_warm=is_warm,
    )


def _architectures(setup: RunSetup) -> list[ArchitectureRow]:
    models = {c.architecture.model_id: c.architecture for c in setup.configurations}
    return [
        ArchitectureRow(m.model_id, m.text, m.facts.to_json(), m.has_weights)
        for m in models.values()
    ]


def _started_from_previous(
    catalog: Catalog, dialect: PostgreSQL, row: RunRow, setup: RunSetup
) -> set[int]:
    """Warm start: copy the state that is there under an mst_key; returns the keys that have one."""
    previous, sql = setup.output.suffixed(STATES_SUFFIX), dialect.training
    store = StateStore(states_of(row), len(setup.configurations), catalog, sql)
    states = store.create(lasting=True).name
    catalog.execute(*sql.begin_states(states, previous, setup.packed, _first_partitions(setup)))
    return {mst_key for mst_key, _, _ in catalog.execute(sql.contents(states))}


def _first_partitions(setup: RunSetup) -> dict[int, int]:
    """The partition that each configuration visits first, by mst_key: as the run will plan it."""
    costs = {c.mst_key: c.hop_seconds for c in setup.configurations}
    partitions = [partition.partition_key for partition in setup.packed.partitions]
    visits = plan_epoch(costs, partitions, setup.request.seed or 0, 1)
    return {visit.mst_key: visit.partition_key for visit in visits if visit.position == 0}
