"""Requests of other sessions to a search while it goes on: its driver follows, and answers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from cerebro_db.configs.grids.parameters import changed, parse_compile_params, parse_fit_params
from cerebro_db.configs.messages import check_range
from cerebro_db.core.decisions import (
    AddedRow,
    AddTrials,
    Answer,
    CloneTrial,
    StopTrial,
    Wanted,
    action_of,
)
from cerebro_db.core.spec import Space
from cerebro_db.core.statuses import DRIVEN
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import InvalidArgument, WrongRunStatus, hinted
from cerebro_db.postgres.calls.host import control_session
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.catalog.trials import newest_space, search_of, status_of_trial, trials_of
from cerebro_db.postgres.sessions.pool import SessionPool
from cerebro_db.postgres.sessions.session import POLL_SECONDS, Session
from cerebro_db.requests.fitting import MAX_ITERATIONS
from cerebro_db.requests.searching import space_of
from cerebro_db.wire import decode, encode

# A driver looks for requests once a second at least, but not while it writes the output tables.
_ANSWER_SECONDS = 60.0


def add(
    pool: SessionPool,
    run_id: int | None,
    rows: Sequence[tuple[int, str, str]],
    epochs: int | None = None,
) -> list[int]:
    """Have a search try configurations; returns their mst_keys.

    Args:
        pool: of sessions of the role whose rights count.
        run_id: of the search.
        rows: model_id, compile_params and fit_params of each.
        epochs: that each is trained for; None for what the method has for those of others.

    Raises:
        InvalidArgument: one of them cannot be trained by that search.
        WrongRunStatus: it does not go on.
    """
    check_range("num_iterations", epochs, 1, MAX_ITERATIONS)
    if not rows:
        raise InvalidArgument("got no configuration; allowed: at least one")
    for _, compile_params, fit_params in rows:
        parse_compile_params(compile_params)
        parse_fit_params(fit_params)
    wanted = AddTrials(tuple(AddedRow(*row, epochs) for row in rows))
    return list(_ask(pool, run_id, None, wanted).mst_keys)


def stop(pool: SessionPool, run_id: int | None, mst_key: int | None) -> str:
    """Have a search give up a trial: its model is that of the last epoch; returns its status.

    Raises:
        InvalidArgument: the search has no such trial that goes on.
        WrongRunStatus: it does not go on.
    """
    _ask(pool, run_id, _key(mst_key), StopTrial())
    with control_session(pool, None) as control:
        return status_of_trial(control, run_id or 0, _key(mst_key))


def clone(
    pool: SessionPool,
    run_id: int | None,
    mst_key: int | None,
    compile_params: str | None = None,
    fit_params: str | None = None,
    epochs: int | None = None,
) -> int:
    """Have a search try a copy of a trial with its weights; returns its mst_key.

    Args:
        pool: of sessions of the role whose rights count.
        run_id: of the search.
        mst_key: of the trial, whose last epoch is the start.
        compile_params, fit_params: of the copy; None for those of the trial.
        epochs: that it is trained for; None for what the method has for those of others.

    Raises:
        InvalidArgument: there is no such trial, it has no state, or the copy cannot be trained.
        WrongRunStatus: the search does not go on.
    """
    check_range("num_iterations", epochs, 1, MAX_ITERATIONS)
    wanted = CloneTrial(compile_params, fit_params, epochs)
    (key,) = _ask(pool, run_id, _key(mst_key), wanted).mst_keys
    return key


def narrow(pool: SessionPool, run_id: int | None, space: Space) -> None:
    """Have a search propose from another space from now on; what runs goes on.

    Raises:
        InvalidArgument: it has an architecture that the search has not, or contradicts a model.
        WrongRunStatus: the search does not go on.
    """
    _ask(pool, run_id, None, space)


def _key(mst_key: int | None) -> int:
    if mst_key is None:
        raise InvalidArgument(
            "mst_key: got NULL; allowed: that of a trial", hint="cerebro.trials shows them"
        )
    return mst_key


def _ask(
    pool: SessionPool,
    run_id: int | None,
    mst_key: int | None,
    wanted: Wanted,
) -> Answer:
    """Ask the driver, and wait for its answer."""
    with control_session(pool, None) as control:
        catalog = Catalog(control)
        run = catalog.run(run_id)
        if run.row.search is None:
            raise InvalidArgument(
                f"run_id: got {run.run_id}, which is no search; allowed: a run of cerebro.cerebro_search",
                hint="cerebro.searches shows yours",
            )
        _check_going_on(run.run_id, run.status)
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
            control.tick()
            time.sleep(POLL_SECONDS)
        catalog.forget_request(request_id)
    answer = decode(Answer, text, "answer")
    if answer.error is not None:
        raise InvalidArgument(answer.error, hint=answer.hint)
    return answer


def _check_going_on(run_id: int, status: str) -> None:
    if status not in DRIVEN:
        hint = (
            f"cerebro.cerebro_extend({run_id}, automl_params), with a larger budget, goes on with it"
            if status == "finished"
            else f"SELECT cerebro.cerebro_resume({run_id}) goes on with one that is {status}"
        )
        raise WrongRunStatus(
            f"run_id: got {run_id}, which is {status}; allowed: a search that is "
            f"{' or '.join(DRIVEN)}",
            hint=hint,
        )


def changed_trial(
    session: Session, run_id: int | None, mst_key: int | None, changes: str | None
) -> tuple[str, str]:
    """The compile and fit parameters of a trial after changes.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search, it has no such trial, or a change cannot be.
    """
    if changes is None:
        raise InvalidArgument("changes: got NULL; allowed: a text such as 'lr=0.003', or ''")
    run, _ = search_of(session, run_id)
    trials = {one.mst_key: one for one in trials_of(session, run.run_id)}
    if mst_key not in trials:
        got = "NULL" if mst_key is None else mst_key
        raise InvalidArgument(
            f"mst_key: got {got}; allowed: trials of run {run.run_id}, "
            f"{', '.join(map(str, list(trials)[:20])) or 'which has none yet'}",
            hint="cerebro.trials shows them",
        )
    return changed(trials[mst_key].compile_params, trials[mst_key].fit_params, changes)


def narrowed_space(
    session: Session,
    run_id: int | None,
    model_id_list: Sequence[int | None] | None,
    compile_params_grid: str | None,
    fit_params_grid: str | None,
) -> Space:
    """The space that a search proposes from, with what is not None in the place of what there was.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search, nothing is given, a grid is wrong, or it has no such model.
    """
    run, spec = search_of(session, run_id)
    space = newest_space(session, run.run_id) or spec.space
    if all(one is None for one in (model_id_list, compile_params_grid, fit_params_grid)):
        raise InvalidArgument(
            "got nothing that changes; allowed: model_id_list, compile_params_grid, fit_params_grid, "
            "or some of them"
        )
    found = space_of(
        list(space.model_ids) if model_id_list is None else model_id_list,
        space.compile_params_grid if compile_params_grid is None else compile_params_grid,
        space.fit_params_grid if fit_params_grid is None else fit_params_grid,
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
