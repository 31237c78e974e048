"""Requests to a search, prepared: the parameters of a clone, the narrowed space."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from cerebro_db.configs.grids.parameters import changed
from cerebro_db.core.search import Space
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import InvalidArgument, hinted
from cerebro_db.postgres.sessions import Session
from cerebro_db.postgres.trials import newest_space, search_of, trials_of
from cerebro_db.runs.searches.spaces import space_of


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
