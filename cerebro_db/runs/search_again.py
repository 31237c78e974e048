"""Searches made again by their decisions, and searches that go on although they have ended."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cerebro_db.configs.messages import check_range
from cerebro_db.configs.search_methods import find_method
from cerebro_db.core.search import SearchSpec
from cerebro_db.core.state import RunState
from cerebro_db.decide.plan import epoch_of
from cerebro_db.decide.search.replaying import to_json
from cerebro_db.errors import InvalidArgument, NotPermitted, WrongObjectType, WrongRunStatus
from cerebro_db.postgres.catalog import Catalog, StoredRun
from cerebro_db.postgres.control import control_session, transaction
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.postgresql_training import PostgreSQLTraining, StateTables
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.outputs import new_output
from cerebro_db.postgres.records import decisions_of
from cerebro_db.postgres.relations import CallerPath
from cerebro_db.postgres.sessions import Session, SessionPool
from cerebro_db.postgres.states import StateStore
from cerebro_db.postgres.table_kinds import STATES_SUFFIX
from cerebro_db.runs.driver import FIXED, Drive, Limits, no_notice
from cerebro_db.runs.request import MAX_ITERATIONS, FitRequest, check_seconds
from cerebro_db.runs.setup import RunSetup
from cerebro_db.runs.stored import load_setup, recorded_of, state_of_decisions

Notify = Callable[[str], None]
_MOST = 2**31 - 1


@dataclass(frozen=True)
class ReplayRequest:
    """The arguments of ``cerebro_replay``, as given.

    Attributes:
        search_path: for the name; None leaves the sessions' own.
    """

    run_id: int | None
    model_output_table: str | None
    name: str | None = None
    description: str | None = None
    num_workers: int | None = None
    search_path: CallerPath | None = None
    cores: int = 1


def replay(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: ReplayRequest,
    notify: Notify = no_notice,
    registered: Callable[[int], None] = lambda run_id: None,
) -> int:
    """Make a search again by its recorded decisions, with the same weights; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count.
        dialect: of the server.
        request: which search, and where to.
        notify: gets a line an epoch.
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        CerebroError: the request is wrong, or the packed tables have changed since.
    """
    with control_session(pool, None) as control:
        run = _search_of(control, request.run_id)
        decided = decisions_of(Catalog(control), run.run_id)
        if not decided:
            raise WrongRunStatus(
                f"run {run.run_id} has decided nothing yet, which could be repeated"
            )

    def set_up(
        session: Session, sql: PostgreSQLTraining, common: FitRequest
    ) -> tuple[QualifiedName, RunSetup]:
        before = load_setup(session, dialect, run, has_states=False)
        assert before.search is not None
        replays = tuple(map(to_json, recorded_of(before, decided)))
        output = new_output(session, request.model_output_table, "model_output_table")
        setup = replace(
            before,
            output=output,
            output_text=str(request.model_output_table),
            configurations=(),
            selection=None,
            replaces=False,
            gives_way=False,
            name=request.name,
            description=request.description,
            search=replace(before.search, replays=replays),
            weights_of=run.run_id,
        )
        count = request.num_workers or setup.num_workers
        return setup.output, setup.with_workers(count)

    common = FitRequest(
        source_table=run.row.source_table,
        model_output_table=request.model_output_table,
        model_selection_table=None,
        num_iterations=run.row.num_iterations,
        num_workers=request.num_workers,
        schedule=run.row.schedule,
        name=request.name,
        description=request.description,
        search_path=request.search_path,
        cores=request.cores,
    )
    common.check()
    drive = Drive(pool, dialect, Limits(), notify, FIXED, registered)
    return drive.begin(common, set_up)


def extend(
    pool: SessionPool,
    dialect: PostgreSQL,
    run_id: int | None,
    params: Mapping[str, Any],
    max_epochs: int | None = None,
    max_configurations: int | None = None,
    max_seconds: float | None = None,
    notify: Notify = no_notice,
    registered: Callable[[int], None] = lambda run_id: None,
) -> int:
    """Go on with a search that has ended, or stopped, with a larger budget; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count, the one that began the search.
        dialect: of the server.
        run_id: of the search.
        params: more of the parameters of its method: ``num_configs`` are more trials, ``num_iterations``
            and ``R`` the epochs of each by now; brackets of ``hyperband`` and ``bohb`` begin anew.
        max_epochs, max_configurations: added to the budget of the search, where it has such a limit.
        max_seconds: of this driver, which then ends the search; None for any time.
        notify: gets a line an epoch.
        registered: is told the run_id as soon as this driver drives it.

    Raises:
        WrongRunStatus: it is going on.
        InvalidArgument: it is no search, or nothing more is asked of it.
        WrongObjectType: the tables with its models are not there any more.
    """
    check_seconds(max_seconds)
    check_range("max_epochs", max_epochs, 1, _MOST)
    check_range("max_configs", max_configurations, 1, _MOST)
    with control_session(pool, None) as control:
        run = _search_of(control, run_id)
        spec = SearchSpec.from_text(run.row.search or "")
        _check_more(spec, params)
        if run.status == "finished":
            _revive(control, dialect, run)
    detail: dict[str, Any] = {"params": dict(params)}
    if max_epochs is not None:
        detail["max_epochs"] = max_epochs
    if max_configurations is not None:
        detail["max_configurations"] = max_configurations
    if max_seconds is not None:
        detail["max_seconds"] = max_seconds
    limits = Limits(extension=detail)
    return Drive(pool, dialect, limits, notify, FIXED, registered).resume(run.run_id)


def _search_of(session: Session, run_id: int | None) -> StoredRun:
    run = Catalog(session).run(run_id)
    if run.row.search is None:
        raise InvalidArgument(
            f"run_id: got {run.run_id}, which is no search; allowed: a run of cerebro.cerebro_search",
            hint="cerebro.searches shows yours",
        )
    if not run.is_mine:
        raise NotPermitted(
            f"run_id: got {run.run_id}, a run of another role; allowed: your own",
            hint="the role that began it can; cerebro.runs shows whose run it is",
        )
    return run


def _check_more(spec: SearchSpec, params: Mapping[str, Any]) -> None:
    """Whether parameters are more of those of the method."""
    if spec.replays:
        raise InvalidArgument("run_id: got a run that repeats another one; allowed: a search")
    method = find_method(spec.method)
    known = {one.name: one for one in method.parameters}
    allowed = [
        name for name in ("num_configs", "num_iterations", "R", "population") if name in known
    ]
    for name, value in params.items():
        if name not in allowed:
            raise InvalidArgument(
                f"automl_params: got {name!r} for a search by {method.name} that goes on; allowed: "
                f"{', '.join(allowed)}"
            )
        check_range(name, known[name].validated(value, "automl_params"), 1, MAX_ITERATIONS)


def _revive(session: Session, dialect: PostgreSQL, run: StoredRun) -> None:
    """Make the states anew from which a finished search goes on, and have it be paused."""
    catalog, sql = Catalog(session), dialect.training
    setup = load_setup(session, dialect, run, has_states=False)
    state = state_of_decisions(setup, decisions_of(catalog, run.run_id))
    kept = setup.output.suffixed(STATES_SUFFIX)
    _check_outputs(catalog, setup, run)
    sql_ends = (
        "SELECT mst_key, model_epoch FROM cerebro._configurations "
        "WHERE run_id = %s AND status = 'finished' AND model_epoch IS NOT NULL"
    )
    ends = dict(catalog.execute(sql_ends, (run.run_id,)))
    there = {row[0] for row in catalog.execute(f"SELECT DISTINCT mst_key FROM {kept.sql}")}
    if missing := sorted(set(ends) - there):
        raise WrongObjectType(
            f"{kept} has no state of the models {missing[:5]}, from which the search would go on",
            hint="its rows were deleted",
        )
    tables = StateTables(
        f"run_{secrets.token_hex(16)}", setup.spec.hops_an_epoch, setup.spec.every_hop
    )
    with transaction(session):
        catalog.lock("runs")
        name = StateStore(tables, len(ends), catalog, sql).create(lasting=True).name
        for epoch, firsts in _firsts(state, ends).items():
            version = epoch * setup.spec.hops_an_epoch
            catalog.execute(*sql.begin_states(name, kept, setup.packed, firsts, version))
        catalog.revived(run.run_id, tables.name)


def _firsts(state: RunState, ends: Mapping[int, int]) -> dict[int, dict[int, int]]:
    """Where each configuration would go on, by the epochs that it has done."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for key, epoch in ends.items():
        cohort = state.tracks[key].configuration.cohort
        hops = epoch_of(state, cohort, epoch + 1)
        found[epoch][key] = next(hop.partition_key for hop in hops if hop.mst_key == key)
    return found


def _check_outputs(catalog: Catalog, setup: RunSetup, run: StoredRun) -> None:
    """Whether the tables of the models are there, and those of this run."""
    summary = setup.output.suffixed("_summary")
    found = catalog.execute("SELECT pg_catalog.to_regclass(%s)::text", (summary.text,))[0][0]
    rows = catalog.execute(f"SELECT run_id FROM {summary.sql}") if found else []
    if rows != [(run.run_id,)]:
        raise WrongObjectType(
            f"{setup.output}: got {'tables of another run' if found else 'no tables'}; allowed: those "
            f"of run {run.run_id}, from whose states it goes on",
            hint="begin a new search; warm_start_run has it learn from the trials of this one",
        )
