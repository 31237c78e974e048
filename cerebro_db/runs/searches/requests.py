"""Requests of other sessions to a search while it goes on: its driver follows, and answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_db.configs.grids.parameters import parse_compile_params, parse_fit_params
from cerebro_db.configs.messages import check_range
from cerebro_db.core.search import Space
from cerebro_db.errors import InvalidArgument, WrongRunStatus
from cerebro_db.postgres.catalog import GOING_ON, Catalog
from cerebro_db.postgres.control import control_session
from cerebro_db.postgres.sessions import POLL_SECONDS, SessionPool
from cerebro_db.postgres.trials import status_of_trial
from cerebro_db.runs.request import MAX_ITERATIONS
from cerebro_db.wire import plain

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
    detail = {"rows": [[*row, epochs] for row in rows]}
    return list(_ask(pool, run_id, "add", None, detail)["mst_keys"])


def stop(pool: SessionPool, run_id: int | None, mst_key: int | None) -> str:
    """Have a search give up a trial: its model is that of the last epoch; returns its status.

    Raises:
        InvalidArgument: the search has no such trial that goes on.
        WrongRunStatus: it does not go on.
    """
    _ask(pool, run_id, "stop", _key(mst_key), {})
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
    detail = {"compile_params": compile_params, "fit_params": fit_params, "epochs": epochs}
    (key,) = _ask(pool, run_id, "clone", _key(mst_key), detail)["mst_keys"]
    return int(key)


def narrow(pool: SessionPool, run_id: int | None, space: Space) -> None:
    """Have a search propose from another space from now on; what runs goes on.

    Raises:
        InvalidArgument: it has an architecture that the search has not, or contradicts a model.
        WrongRunStatus: the search does not go on.
    """
    _ask(pool, run_id, "narrow", None, plain(space))


def _key(mst_key: int | None) -> int:
    if mst_key is None:
        raise InvalidArgument(
            "mst_key: got NULL; allowed: that of a trial", hint="cerebro.trials shows them"
        )
    return mst_key


def _ask(
    pool: SessionPool,
    run_id: int | None,
    action: str,
    mst_key: int | None,
    detail: Mapping[str, Any],
) -> Mapping[str, Any]:
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
        request_id = catalog.add_request(run.run_id, action, mst_key, json.dumps(detail))
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
    answer: Mapping[str, Any] = json.loads(text)
    if "error" in answer:
        raise InvalidArgument(answer["error"], hint=answer.get("hint"))
    return answer


def _check_going_on(run_id: int, status: str) -> None:
    if status not in GOING_ON:
        hint = (
            f"cerebro.cerebro_extend({run_id}, automl_params), with a larger budget, goes on with it"
            if status == "finished"
            else f"SELECT cerebro.cerebro_resume({run_id}) goes on with one that is {status}"
        )
        raise WrongRunStatus(
            f"run_id: got {run_id}, which is {status}; allowed: a search that is "
            f"{' or '.join(GOING_ON)}",
            hint=hint,
        )
