"""Searches that go on although they have ended, or stopped, with a larger budget."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from cerebro_db.configs.messages import check_range
from cerebro_db.core.decisions import EXTEND, FINISH, Decision, Extension
from cerebro_db.core.search import UNLIMITED, SearchSpec
from cerebro_db.core.state import RunState
from cerebro_db.decide.search.guarded import fault_of
from cerebro_db.decide.search.methods import METHODS, parse_more
from cerebro_db.errors import InvalidArgument, WrongObjectType
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.records import decisions_of
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.catalog.states import StateStore
from cerebro_db.postgres.catalog.trials import search_of
from cerebro_db.postgres.dialects.choice import PostgreSQL
from cerebro_db.postgres.dialects.statements.orders import StateTables
from cerebro_db.postgres.sessions.locks import transaction
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import STATES_SUFFIX
from cerebro_db.requests.fitting import check_seconds
from cerebro_db.requests.searching import ExtendRequest
from cerebro_db.runs.attempt import Limits
from cerebro_db.runs.driver import FIXED, Drive, no_notice
from cerebro_db.runs.guards import check_resumable
from cerebro_db.runs.searches.replay import own_run
from cerebro_db.runs.setup import RunSetup
from cerebro_db.runs.stored import load_setup, state_of_decisions
from cerebro_db.wire import encode

Notify = Callable[[str], None]
_MOST = 2**31 - 1
_SHOWN = {"max_epochs": "max_epochs", "max_configurations": "max_configs"}


def extend(
    pool: SessionPool,
    dialect: PostgreSQL,
    request: ExtendRequest,
    notify: Notify = no_notice,
    registered: Callable[[int], None] = lambda run_id: None,
) -> int:
    """Go on with a search that has ended, or stopped, with a larger budget; returns the run_id.

    Args:
        pool: of sessions of the role whose rights count, the one that began the search.
        dialect: of the server.
        request: which search, and how much more.
        notify: gets a line an epoch.
        registered: gets the run_id as soon as this driver drives it.

    What it is to do more of is in the catalog, in the transaction that makes its states anew: whichever
    driver goes on with it finds it there.

    Raises:
        WrongRunStatus: it is going on.
        InvalidArgument: it is no search, or there is nothing more to do.
        WrongObjectType: the tables with its models are not there any more.
    """
    check_seconds(request.max_seconds)
    check_range("max_epochs", request.max_epochs, 1, _MOST)
    check_range("max_configs", request.max_configs, 1, _MOST)

    def drive() -> Drive:
        return Drive(pool, dialect, Limits(), notify, FIXED, registered)

    with control_session(pool, None) as control:
        run, spec = search_of(control, own_run(control, request.run_id).run_id)
        made = decisions_of(Catalog(control), run.run_id)
        params = parse_more(spec.method, spec.params, request.automl_params)
        wanted = Extension(params, request.max_seconds, request.max_epochs, request.max_configs)
        _check_more(spec, made, wanted, run.status)
    if run.status != "finished" and _has_ended(made):
        drive().resume(run.run_id)  # it only lacks its tables
    with control_session(pool, None) as control:
        run = Catalog(control).run(run.run_id)
        if run.status == "finished":
            _revive(control, dialect, run, wanted)
        else:
            check_resumable(run)
            with transaction(control):
                _request(Catalog(control), run.run_id, wanted)
    return drive().resume(run.run_id)


def _request(catalog: Catalog, run_id: int, wanted: Extension) -> None:
    """Leave a request to the next driver, in place of what none has followed yet."""
    catalog.lock("runs", "requests")
    catalog.forget_extensions(run_id)
    catalog.add_request(run_id, EXTEND, None, encode(wanted))


def _has_ended(made: Sequence[Decision]) -> bool:
    """True if a search has decided to begin nothing any more."""
    actions = [one.action for one in made if one.action in (FINISH, EXTEND)]
    return actions[-1:] == [FINISH]


def _check_more(spec: SearchSpec, made: Sequence[Decision], wanted: Extension, status: str) -> None:
    """Check that there is more to do for a search than it has done."""
    if spec.replays:
        raise InvalidArgument("run_id: got a run that repeats another one; allowed: a search")
    if fault := fault_of(made):
        raise InvalidArgument(
            f"run_id: got a search that has ended, as {fault}; allowed: one whose method can go on",
            hint="warm_start_run of cerebro.cerebro_search has a new search learn from its trials",
        )
    for name, shown in _SHOWN.items():
        if getattr(wanted, name) is not None and getattr(spec.budget, name) == UNLIMITED:
            raise InvalidArgument(
                f"{shown}: got {getattr(wanted, name)} for a search that has no such limit; allowed: NULL",
                hint="num_configs or num_iterations in automl_params are more trials or epochs",
            )
    lengths = _lengths(spec, made)
    begins_anew = METHODS[spec.method].begins_anew  # another bracket, of as many epochs or more
    for name, value in wanted.params.items():
        if value < lengths.get(name, 1):
            least = f"at least {lengths[name]}" if begins_anew else "more"
            raise InvalidArgument(
                f"automl_params: got {name}={value} for a search that has {name}={lengths[name]}; "
                f"allowed: {least}"
            )
    is_more = any(
        begins_anew or value != lengths.get(name) for name, value in wanted.params.items()
    )
    was_stopped = status != "finished" or any(one.action == FINISH for one in made)
    is_larger = bool(wanted.max_epochs or wanted.max_configurations)
    if not is_more and not is_larger and not (wanted.max_seconds and was_stopped):
        names = ", ".join(one.name for one in METHODS[spec.method].more())
        raise InvalidArgument(
            f"got nothing more to do; allowed: automl_params with {names}"
            + ("; max_seconds" if was_stopped else "")
            + ("; max_epochs" if spec.budget.max_epochs != UNLIMITED else "")
            + ("; max_configs" if spec.budget.max_configurations != UNLIMITED else ""),
            hint=f"such as SELECT cerebro.cerebro_extend(run_id, {_example(spec)!r})",
        )


def _lengths(spec: SearchSpec, made: Sequence[Decision]) -> dict[str, int]:
    """The epochs of each trial by now, where these are what there may be more of."""
    found = {name: spec.params[name] for name in ("num_iterations", "R") if name in spec.params}
    for one in made:
        wanted = one.wanted if one.action == EXTEND else None
        params = wanted.params if isinstance(wanted, Extension) else {}
        found |= {name: max(found[name], params[name]) for name in found if name in params}
    return found


def _example(spec: SearchSpec) -> str:
    name = METHODS[spec.method].more()[0].name
    return f"{name}={spec.params[name] * (1 if name in ('num_configs', 'population') else 2)}"


def _revive(session: Session, dialect: PostgreSQL, run: StoredRun, wanted: Extension) -> None:
    """Make the states anew from which a finished search goes on, and have it be paused.

    What its driver shall do more of is requested in the same transaction.
    """
    catalog, sql = Catalog(session), dialect.training
    setup = load_setup(session, dialect, run, has_states=False)
    state = state_of_decisions(setup, decisions_of(catalog, run.run_id))
    kept = setup.output.suffixed(STATES_SUFFIX)
    _check_outputs(catalog, setup, run)
    sql_ends = (
        "SELECT mst_key, model_epoch FROM cerebro._configurations "
        "WHERE run_id = %s AND status IN ('finished', 'stopped') AND model_epoch IS NOT NULL"
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
        _request(catalog, run.run_id, wanted)
        name = StateStore(tables, len(ends), catalog, sql).create(lasting=True).name
        for epoch, firsts in _firsts(state, ends).items():
            version = epoch * setup.spec.hops_an_epoch
            catalog.execute(*sql.begin_states(name, kept, setup.packed, firsts, version))
        catalog.revived(run.run_id, tables.name)


def _firsts(state: RunState, ends: Mapping[int, int]) -> dict[int, dict[int, int]]:
    """Place at which each configuration would go on, by the epochs that it has done."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for key, epoch in ends.items():
        cohort = state.tracks[key].configuration.cohort
        hops = state.spec.strategy.epoch(state, cohort, epoch + 1)
        found[epoch][key] = next(hop.partition_key for hop in hops if hop.mst_key == key)
    return found


def _check_outputs(catalog: Catalog, setup: RunSetup, run: StoredRun) -> None:
    """Check that the tables of the models are there, and those of this run."""
    summary = setup.output.suffixed("_summary")
    found = catalog.execute("SELECT pg_catalog.to_regclass(%s)::text", (summary.text,))[0][0]
    rows = catalog.execute(f"SELECT run_id FROM {summary.sql}") if found else []
    if rows != [(run.run_id,)]:
        raise WrongObjectType(
            f"{setup.output}: got {'tables of another run' if found else 'no tables'}; allowed: those "
            f"of run {run.run_id}, from whose states it goes on",
            hint="begin a new search; warm_start_run has it learn from the trials of this one",
        )
