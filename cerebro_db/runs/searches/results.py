"""Results of a search beside those of any run: columns as of MADlib's automl, and the best configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_db.core.search import SearchSpec
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.best import best_trials, write_configurations
from cerebro_db.postgres.catalog.trials import TrialRow, trials_of
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.kinds import CONFIGURATIONS, MODELS
from cerebro_db.postgres.tables.outputs import Outputs, new_outputs
from cerebro_db.postgres.tables.relations import new_name
from cerebro_db.runs.setup import RunSetup

ROLE = "model_selection_table"
INFO_COLUMNS = (("metrics_iters", "integer[]"), ("s", "integer"), ("i", "integer"))
METHOD, PARAMS, RANDOM_STATE = "automl_method", "automl_params", "random_state"


def selection_name(
    session: Session,
    text: str | None,
    output: QualifiedName,
    *,
    replace: bool | None,
) -> str | None:
    """The name of the table that gets the best configuration, which is free or may give way.

    Args:
        session: knows the caller's search path.
        text: as given; None for no table.
        output: the table of models.
        replace: whether earlier tables give way.

    Raises:
        DuplicateTable, DependentObjects, ObjectInUse: it cannot be made.
        InvalidArgument: it is one of the tables of models.
    """
    if text is None:
        return None
    outputs = new_outputs(session, text, ROLE, CONFIGURATIONS, replace=replace)
    if outputs.name == output:
        raise InvalidArgument(
            f"{ROLE}: got {outputs.name}, which is model_output_table; allowed: another name, or NULL"
        )
    models = [output.suffixed(suffix) for suffix in MODELS.suffixes]
    for made in map(outputs.table, outputs.suffixes):
        if made in models:
            raise InvalidArgument(
                f"{ROLE}: got {outputs.name}, for which {made} is made, as it is for "
                "model_output_table; allowed: another name, or NULL"
            )
    return str(outputs.name)


@dataclass(frozen=True)
class SearchResults:
    """Findings of a search, when its tables are made.

    Attributes:
        trials: by mst_key.
    """

    spec: SearchSpec
    trials: Mapping[int, TrialRow]

    def info(self, mst_key: int, epochs: list[int]) -> dict[str, Any]:
        """More of a configuration: bracket and rung, and the epochs after which it was measured."""
        trial = self.trials.get(mst_key)
        return {
            "metrics_iters": epochs or None,
            "s": trial and trial.bracket,
            "i": trial and trial.rung,
        }

    def summary(self, setup: RunSetup) -> dict[str, tuple[str, Any]]:
        """More of the run: type and value of each column."""
        spec, given = self.spec, self.spec.given
        params = ", ".join(f"{name}={value}" for name, value in spec.params.items())
        return {
            METHOD: ("text", given.get(METHOD, spec.method)),
            PARAMS: ("text", given.get(PARAMS, params)),
            RANDOM_STATE: ("bigint", given.get(RANDOM_STATE)),
            "use_gpus": ("boolean", setup.spec.use_gpus),
            "objective": ("text[]", [one.monitor for one in spec.objectives]),
        }

    def write_selection(self, session: Session, setup: RunSetup) -> None:
        """Make the table of the best configuration, within the transaction of the other tables."""
        if setup.spec.model_selection_table is None:
            return
        outputs = Outputs(
            new_name(session, setup.spec.model_selection_table, ROLE),
            setup.spec.model_selection_table,
            ROLE,
            CONFIGURATIONS,
            CONFIGURATIONS.suffixes,
            replace=setup.replace,
        )
        best = best_trials(self.spec, list(self.trials.values()))
        write_configurations(
            session, outputs, best, setup.spec.model_arch_table, setup.spec.object_table
        )


def results_of(session: Session, setup: RunSetup, run_id: int) -> SearchResults | None:
    """Findings of a run; None where it is no search."""
    if setup.spec.search is None:
        return None
    trials = trials_of(session, run_id)
    return SearchResults(setup.spec.search, {one.mst_key: one for one in trials})
