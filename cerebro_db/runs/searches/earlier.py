"""Trials of earlier runs that a search learns from."""

from __future__ import annotations

import math

from cerebro_db.configs.grids.parameters import ConfigurationText
from cerebro_db.core.search import Earlier, SearchSpec
from cerebro_db.decide.search.methods import METHODS
from cerebro_db.decide.search.space import Explorer
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.catalog.runs import Catalog
from cerebro_db.postgres.catalog.trials import measures_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.wire import as_json


def earlier_trials(session: Session, run_id: int, spec: SearchSpec) -> tuple[Earlier, ...]:
    """Results of another run for configurations that a search may come to.

    Args:
        session: that reads the catalog.
        run_id: of any run of the caller's, a search or not.
        spec: of the search.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: none of its configurations is of the space, and has the objectives; or the method
            learns nothing.
    """
    if not METHODS[spec.method].learns:
        learning = [name for name, one in METHODS.items() if one.learns]
        raise InvalidArgument(
            f"warm_start_run: got {run_id} for {spec.method!r}, which learns nothing; allowed: "
            f"with automl_method {', '.join(learning)}"
        )
    run = Catalog(session).run(run_id, "warm_start_run")
    rows = Catalog(session).configurations(run.run_id)
    measures = [measures_of(session, run.run_id, one) for one in spec.objectives]
    explorer, found = Explorer(spec.space), []
    for row, _, _ in rows:
        parameters = explorer.place(
            ConfigurationText(row.model_id, row.compile_params, row.fit_params)
        )
        epochs = set.intersection(*(set(one.get(row.mst_key, {})) for one in measures))
        if parameters is None or not epochs:
            continue
        values = [one[row.mst_key][max(epochs)] for one in measures]
        losses = (
            -value if one.maximise else value
            for one, value in zip(spec.objectives, values, strict=True)
        )
        if all(map(math.isfinite, values)):
            found.append(Earlier(as_json(dict(parameters)), max(epochs), tuple(losses)))
    if not found:
        names = ", ".join(one.monitor for one in spec.objectives)
        raise InvalidArgument(
            f"warm_start_run: got {run_id}, of which no configuration is of the space and has {names}; "
            "allowed: a run with at least one",
            hint="cerebro.trials and cerebro.metrics tell what runs have found out",
        )
    return tuple(found)
