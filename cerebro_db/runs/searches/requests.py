"""Requests of other sessions to a search while it goes on: its driver follows, and answers."""

from __future__ import annotations

import time

from msgspec import structs

from cerebro_db.configs.frameworks import framework_in
from cerebro_db.configs.grids.model_selection import Frameworks, combine
from cerebro_db.configs.grids.parameters import changed
from cerebro_db.configs.messages import check_range
from cerebro_db.core.decisions import (
    AddedRow,
    AddTrials,
    Answer,
    CloneTrial,
    Ending,
    StopTrial,
    Wanted,
    action_of,
)
from cerebro_db.core.spec import Space
from cerebro_db.core.statuses import DRIVEN, QUEUED
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import InvalidArgument, WrongRunStatus, hinted
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.runs import Catalog, StoredRun
from cerebro_db.postgres.catalog.trials import newest_space, search_of, status_of_trial, trials_of
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.requests.fitting import MAX_ITERATIONS
from cerebro_db.requests.searching import (
    AddConfigsRequest,
    CloneRequest,
    FinishRequest,
    NarrowRequest,
    StopConfigRequest,
    space_of,
)
from cerebro_db.wire import decode, encode

# A driver looks for requests once a second at least, but not while it writes the output tables.
_ANSWER_SECONDS = 60.0


def add(pool: SessionPool, request: AddConfigsRequest) -> list[int]:
    """Have a search try every combination of models and parameters; returns their mst_keys.

    Args:
        pool: of sessions of the role whose rights count.
        request: to which search, and what.

    Raises:
        InvalidArgument: one of them cannot be trained by that search.
        WrongRunStatus: it does not go on.
    """
    epochs = request.num_iterations
    check_range("num_iterations", epochs, 1, MAX_ITERATIONS)
    lists = request.model_id_list, request.compile_params_list, request.fit_params_list
    combine(*lists)  # what is wrong in them needs no session
    with control_session(pool, None) as session:
        rows = combine(*lists, _frameworks(session, request.run_id))
        added = (AddedRow(one.model_id, one.compile_params, one.fit_params, epochs) for one in rows)
        return list(_ask(session, request.run_id, None, AddTrials(tuple(added))).mst_keys)


def _frameworks(session: Session, run_id: int | None) -> Frameworks:
    """The frameworks of the models of a search."""
    run, _ = search_of(session, run_id)
    models = Catalog(session).architectures(run.run_id)
    return {model_id: framework_in(text) for model_id, text, _, _ in models}


def stop(pool: SessionPool, request: StopConfigRequest) -> str:
    """Have a search give up a trial: its model is that of the last epoch; returns its status.

    Raises:
        InvalidArgument: the search has no such trial that goes on.
        WrongRunStatus: it does not go on.
    """
    run_id, key = request.run_id, request.mst_key
    if key is None:
        raise InvalidArgument(
            "mst_key: got NULL; allowed: that of a trial", hint="cerebro.trials shows them"
        )
    with control_session(pool, None) as session:
        _ask(session, run_id, key, StopTrial())
        return status_of_trial(session, run_id or 0, key)


def clone(pool: SessionPool, request: CloneRequest) -> int:
    """Have a search try a copy of a trial with its weights and changed parameters; returns its mst_key.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: there is no such trial, it has no state, or the copy cannot be trained.
        WrongRunStatus: the search does not go on.
    """
    with control_session(pool, None) as session:
        compile_params, fit_params = _changed(session, request)
        check_range("num_iterations", request.num_iterations, 1, MAX_ITERATIONS)
        wanted = CloneTrial(compile_params, fit_params, request.num_iterations)
        (key,) = _ask(session, request.run_id, request.mst_key, wanted).mst_keys
    return key


def narrow(pool: SessionPool, request: NarrowRequest) -> None:
    """Have a search propose from another space from now on; what runs goes on.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: nothing is given, a grid is wrong, or an architecture is none of the search.
        WrongRunStatus: the search does not go on.
    """
    with control_session(pool, None) as session:
        _ask(session, request.run_id, None, _narrowed(session, request))


def finish(pool: SessionPool, request: FinishRequest) -> None:
    """Have a search end: nothing more is begun, and its tables are made of what there is.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it has ended already.
        WrongRunStatus: it does not go on.
    """
    with control_session(pool, None) as session:
        _ask(session, request.run_id, None, Ending(""))


def _ask(session: Session, run_id: int | None, mst_key: int | None, wanted: Wanted) -> Answer:
    """Leave a request to the driver, and wait for its answer."""
    catalog = Catalog(session)
    run = _driven(session, search_of(session, run_id)[0])
    request_id = catalog.add_request(run.run_id, action_of(wanted), mst_key, encode(wanted))
    end = time.monotonic() + _ANSWER_SECONDS
    while (text := catalog.answer_of(request_id)) is None:
        _check_going_on(run.run_id, catalog.run(run.run_id).status)
        if time.monotonic() >= end:
            raise WrongRunStatus(
                f"run {run.run_id}: its driver has not answered for {_ANSWER_SECONDS:g} seconds; "
                "what was asked for stays asked",
                hint="a driver that starts answers later; cerebro.decisions tells what it did",
            )
        session.tick()
        time.sleep(POLL_SECONDS)
    catalog.forget_request(request_id)
    answer = decode(Answer, text, "answer")
    if answer.error is not None:
        raise InvalidArgument(answer.error, hint=answer.hint)
    return answer


def _driven(session: Session, run: StoredRun) -> StoredRun:
    """A search that somebody drives; that of a job is waited for, which begins in a moment.

    Raises:
        WrongRunStatus: nobody drives it.
    """
    catalog, end = Catalog(session), time.monotonic() + _ANSWER_SECONDS
    while run.status == QUEUED and time.monotonic() < end:
        session.tick()
        time.sleep(POLL_SECONDS)
        run = catalog.run(run.run_id)
    _check_going_on(run.run_id, run.status)
    return run


def _check_going_on(run_id: int, status: str) -> None:
    if status not in DRIVEN:
        hint = (
            "cerebro.jobs shows its place in the queue"
            if status == QUEUED
            else f"cerebro.cerebro_extend({run_id}, automl_params), with a larger budget, goes on with it"
            if status == "finished"
            else f"SELECT cerebro.cerebro_resume({run_id}) goes on with one that is {status}"
        )
        raise WrongRunStatus(
            f"run_id: got {run_id}, which is {status}; allowed: a search that is "
            f"{' or '.join(DRIVEN)}",
            hint=hint,
        )


def _changed(session: Session, request: CloneRequest) -> tuple[str, str]:
    """The compile and fit parameters of a trial after changes.

    Raises:
        InvalidArgument: there is no such trial, or a change cannot be.
    """
    if request.changes is None:
        raise InvalidArgument("changes: got NULL; allowed: a text such as 'lr=0.003', or ''")
    run, _ = search_of(session, request.run_id)
    trials = {one.mst_key: one for one in trials_of(session, run.run_id)}
    key = request.mst_key
    if key not in trials:
        raise InvalidArgument(
            f"mst_key: got {'NULL' if key is None else key}; allowed: trials of run {run.run_id}, "
            f"{', '.join(map(str, list(trials)[:20])) or 'which has none yet'}",
            hint="cerebro.trials shows them",
        )
    return changed(trials[key].compile_params, trials[key].fit_params, request.changes)


def _narrowed(session: Session, request: NarrowRequest) -> Space:
    """The space that a search proposes from, with what is not None in the place of what there was.

    Raises:
        InvalidArgument: nothing is given, a grid is wrong, or the search has no such model.
    """
    run, spec = search_of(session, request.run_id)
    space = newest_space(session, run.run_id) or spec.space
    models, compiling, fitting = (
        request.model_id_list, request.compile_params_grid, request.fit_params_grid
    )  # fmt: skip
    if models is None and compiling is None and fitting is None:
        raise InvalidArgument(
            "got nothing that changes; allowed: model_id_list, compile_params_grid, fit_params_grid, "
            "or some of them"
        )
    found = space_of(
        space.model_ids if models is None else models,
        space.compile_params_grid if compiling is None else compiling,
        space.fit_params_grid if fitting is None else fitting,
    )
    with hinted(
        "what is NULL stays as it was: give compile_params_grid and fit_params_grid too, without "
        "what they say in model_params_list of other models"
    ):
        Explorer(found)
    known = spec.space.model_ids
    wrong = [one for one in found.model_ids if one not in known]
    if wrong:
        raise InvalidArgument(
            f"model_id_list: got {wrong[0]}; allowed: those of run {run.run_id}, "
            f"{', '.join(map(str, known))}"
        )
    return structs.replace(found, left_out=spec.space.left_out)
