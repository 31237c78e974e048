"""The best trials of a search as a table of configurations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.configs.messages import check_range
from cerebro_db.core.search import SearchSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.catalog.trials import TrialRow, search_of, trials_of
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables import libraries
from cerebro_db.postgres.tables.kinds import CONFIGURATIONS
from cerebro_db.postgres.tables.outputs import Outputs, new_outputs, replaced
from cerebro_db.requests.searching import BestRequest

MOST = 100_000
_SUFFIX = "_best"


@dataclass(frozen=True)
class Best:
    """The best trials, and the tables to be made of them.

    Attributes:
        models, objects: names of the architecture table, and of the object table if there is one.
    """

    outputs: Outputs
    trials: Sequence[TrialRow]
    models: str
    objects: str | None

    def write(self, session: Session) -> QualifiedName:
        """Make the tables, within a transaction; returns the name of the first."""
        write_configurations(session, self.outputs, self.trials, self.models, self.objects)
        return self.outputs.name


def best_of(session: Session, request: BestRequest) -> Best:
    """The best trials of a search, which keep their keys, and a name that is free for them, or gives way.

    Args:
        session: the caller's, or one of our own that is in no transaction; knows where the table's name is
            looked for.
        request: what is asked for.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search, or none of its trials has been measured.
    """
    check_range("n", request.n, 1, MOST)
    run, spec = search_of(session, request.run_id)
    all_of_them = trials_of(session, run.run_id)
    trials = best_trials(spec, all_of_them, request.n)
    if not trials:
        raise InvalidArgument(
            f"run_id: got {run.run_id}, of which {without_values(spec, all_of_them)}; allowed: a search "
            "with results",
            hint="cerebro.trials shows how far each is, and what it has reached",
        )
    name = request.model_selection_table
    if name is None:
        name = str(run.tables.output.suffixed(_SUFFIX))
    outputs = new_outputs(
        session, name, "model_selection_table", CONFIGURATIONS, replace=request.replace
    )
    return Best(outputs, trials, run.spec.model_arch_table, run.spec.object_table)


def write_configurations(
    session: Session, outputs: Outputs, trials: Sequence[TrialRow], models: str, objects: str | None
) -> None:
    """Make a table of configurations and its summary.

    Args:
        session: in a transaction.
        outputs: the names of the tables.
        trials: the rows, which keep their keys.
        models, objects: names of the architecture table, and of the object table if there is one.
    """
    name = outputs.name
    columns = ", ".join(libraries.SELECTION_COLUMNS)
    with replaced(session, outputs):
        session.run(libraries.create_selection(name), ())
        summary = name.suffixed(libraries.SELECTION_SUFFIX)
        session.run(
            libraries.create_selection_summary(summary, session.anywhere), (models, objects)
        )
        session.run(
            f"INSERT INTO {name.sql} ({columns}) "
            "SELECT * FROM unnest(%s::integer[], %s::integer[], %s::text[], %s::text[])",
            [[getattr(one, column) for one in trials] for column in libraries.SELECTION_COLUMNS],
        )


def best_trials(
    spec: SearchSpec, trials: Sequence[TrialRow], n: int | None = None
) -> list[TrialRow]:
    """The best trials, the best first; equal ones in the order of their keys.

    Args:
        spec: of the search.
        trials: all of them.
        n: how many at most; None for the best one, or of several objectives for the Pareto set.
            More than those are taken from the trials that only the first ones dominate, and so on.
    """
    from cerebro_db.decide.search.ranking import fronts  # which needs NumPy

    known = {one.mst_key: one for one in trials if one.is_comparable}
    losses = {key: one.losses(spec) for key, one in known.items()}
    order = [
        sorted(front, key=lambda key: (losses[key], key))
        for front in (fronts(losses) if len(spec.objectives) > 1 else [list(losses)])
    ]
    if n is None:
        n = len(order[0]) if len(spec.objectives) > 1 and order else 1
    return [known[key] for front in order for key in front][:n]


def without_values(spec: SearchSpec, trials: Sequence[TrialRow]) -> str:
    """Reason that no trial can be compared with others."""
    kinds = Counter(_kind(one) for one in trials)
    if kinds.keys() <= {"open"}:
        return "no trial has been measured yet"
    counts = [f"{kinds[kind]} {words}" for kind, words in _KINDS.items() if kinds[kind]]
    return f"no trial has a value of {spec.objectives[0].monitor}: " + (
        ", ".join(counts) or "there are none"
    )


_KINDS = {
    "nan": "measured as NaN or infinite",
    "failed": "failed",
    "cancelled": "cancelled",
    "open": "not measured",
}


def _kind(trial: TrialRow) -> str:
    if trial.status in ("failed", "cancelled"):
        return trial.status
    return "nan" if trial.objectives and not all(map(math.isfinite, trial.objectives)) else "open"
