"""Replay of runs: by the decisions of a search, or the order of the updates of a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msgspec import structs

from cerebro_db.decide.strategies import DEFAULT, STRATEGIES, listed
from cerebro_db.errors import InvalidArgument, NotPermitted, WrongRunStatus
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.records import decisions_of
from cerebro_db.postgres.catalog.runs import RESTORED, Catalog, PackedMark, StoredRun
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.outputs import new_output
from cerebro_db.postgres.tables.packed import PackedTable, load_packed
from cerebro_db.requests.fitting import check_workers
from cerebro_db.requests.searching import ReplayRequest
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import FIXED, Drive, no_notice
from cerebro_db.runs.setup import RunSetup
from cerebro_db.runs.stored import load_setup
from cerebro_db.runs.strategy_checks import check_enough, check_strategy


def replay(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: ReplayRequest,
    notify: Callable[[str], None] = no_notice,
    registered: Callable[[int], None] = lambda run_id: None,
) -> int:
    """Replay a run, with the same weights; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: which run, and where to.
        notify: gets a line an epoch.
        registered: gets the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, the run has recorded nothing that could be repeated, or the packed
            tables have changed since.
    """
    with control_session(pool, None) as control:
        run = own_run(control, request.run_id)
        decisions = tuple(decisions_of(Catalog(control), run.run_id))
    _check_tables(run, request)
    if run.spec.search is None:
        _check_order_is_recorded(run, is_changed=bool(decisions))
    elif not decisions:
        raise WrongRunStatus(f"run {run.run_id} has decided nothing yet, which could be repeated")

    def set_up(session: Session, dialect: PostgreSQL) -> RunSetup:
        chosen = run.spec.strategy
        check_strategy(dialect, chosen, "strategy", DEFAULT)
        check_workers(chosen, request.num_workers)
        found = run if request.source_table is None else _over_others(session, run, request)
        before = load_setup(session, dialect, found, has_states=False)
        spec = structs.replace(
            before.spec, name=request.name, description=request.description, warm_start=False
        )
        if request.source_table is not None:
            validation = None if request.validation_table is None else before.validation
            spec = structs.replace(
                spec,
                source_table=str(before.packed.relation.name),
                validation_table=None if validation is None else str(validation.relation.name),
            )
        if spec.search is None:
            check_enough(chosen, request.num_workers, before.packed)
        else:
            search = structs.replace(spec.search, replays=decisions)
            spec = structs.replace(spec, search=search, model_selection_table=None)
            before = replace(before, configurations=())
        output = new_output(session, request.model_output_table, "model_output_table")
        setup = replace(
            before,
            spec=spec,
            output=output,
            output_text=str(request.model_output_table),
            replace=False,
            weights_of=run.run_id,
        )
        return setup.with_workers(request.num_workers or setup.num_workers)

    return Drive(pool, dialect, Limits(), notify, FIXED, registered).begin(request, set_up)


def _check_tables(run: StoredRun, request: ReplayRequest) -> None:
    """Refuse one packed table in the place of two, and two in the place of one."""
    wanted = {"source_table": True, "validation_table": run.tables.validation is not None}
    given = {name: getattr(request, name) is not None for name in wanted}
    if any(given.values()) and given != wanted:
        names = " and ".join(name for name, is_wanted in wanted.items() if is_wanted)
        got = " and ".join(name for name, is_given in given.items() if is_given)
        raise InvalidArgument(
            f"{got}: got one in the place of a table of run {run.run_id}; allowed: {names}, or none"
        )


def _over_others(session: Session, run: StoredRun, request: ReplayRequest) -> StoredRun:
    """The run over packed tables in the place of its own.

    Raises:
        InvalidArgument: they have other partitions, or other folds, than those of the run had.
    """
    source = load_packed(session, request.source_table, "source_table")
    _check_folds(run, source)
    marks: dict[str, Any] = {"source": PackedMark(source.relation.oid, RESTORED)}
    if request.validation_table is not None:
        validation = load_packed(session, request.validation_table, "validation_table")
        marks["validation"] = PackedMark(validation.relation.oid, RESTORED)
    _check_partitions(session, run, source)
    return replace(run, tables=replace(run.tables, **marks))


def _check_folds(run: StoredRun, packed: PackedTable) -> None:
    folds = run.spec.folds
    if folds is not None and folds.kind != packed.fold_kind:
        got, wanted = (
            "NULL" if one is None else repr(one) for one in (packed.fold_kind, folds.kind)
        )
        raise InvalidArgument(
            f"source_table: got {packed.relation.name}, whose fold_kind is {got}; allowed: {wanted}, as that of run "
            f"{run.run_id}",
            hint="pack it with fold_kind and fold_column as before",
        )


def _check_partitions(session: Session, run: StoredRun, packed: PackedTable) -> None:
    ((before,),) = session.run(
        "SELECT num_partitions FROM cerebro.runs WHERE run_id = %s", (run.run_id,)
    )
    if before != len(packed.partitions):
        raise InvalidArgument(
            f"source_table: got {packed.relation.name} with {len(packed.partitions)} partitions; allowed: {before}, as "
            f"those of run {run.run_id}",
            hint="pack it with num_partitions, and the same seed",
        )


def own_run(session: Session, run_id: int | None) -> StoredRun:
    """A run of the caller's own.

    Raises:
        UndefinedRun, NotPermitted: there is none of that number, or it is another role's.
    """
    run = Catalog(session).run(run_id)
    if not run.is_mine:
        raise NotPermitted(
            f"run_id: got {run.run_id}, a run of another role; allowed: your own",
            hint="the role that began it can; cerebro.runs shows whose run it is",
        )
    return run


def _check_order_is_recorded(run: StoredRun, *, is_changed: bool) -> None:
    """Refuse a run that is no search and has not recorded the order of its updates.

    Args:
        run: that is to be repeated.
        is_changed: whether its configurations were changed while it went on.
    """
    chosen, what = run.spec.strategy, f"run_id: got {run.run_id}"
    if not chosen.asynchrony.is_any:
        servers = [one.name for one in STRATEGIES.values() if one.has_weight_server]
        raise InvalidArgument(
            f"{what}, a run with strategy := {chosen.name!r}, of which no order is recorded; allowed: a search, "
            f"or a run whose workers did not wait for each other, with {listed(servers)}",
            hint="the same call gives the same results: cerebro.runs shows what was asked for",
        )
    if run.status != "finished":
        raise WrongRunStatus(f"{what}, which is {run.status}; allowed: a run that is finished")
    if run.spec.warm_start:
        raise InvalidArgument(
            f"{what}, which went on from the models of an earlier run, in whose place its own are; allowed: a "
            "run without warm_start"
        )
    if is_changed:
        raise InvalidArgument(
            f"{what}, whose configurations were changed while it went on; allowed: a run that was left alone"
        )
