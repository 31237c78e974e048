"""ROC curves and the confusion matrix of one model on a packed table; nothing is written."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.grids.outputs import CURVES
from cerebro_db.errors import InvalidArgument
from cerebro_db.models.registered import named_models
from cerebro_db.models.trained import load_models
from cerebro_db.postgres.calls.host import JobHost, control_session
from cerebro_db.postgres.tables.packed import load_packed
from cerebro_db.scoring.evaluation import ScoringJob, check_alike
from cerebro_db.scoring.prediction_models import shown_classes


def curves(
    host: JobHost, model_table: str | None, test_table: str | None, mst_key: int | None
) -> list[dict[str, Any]]:
    """Curves of how well a model tells classes apart, for each target that has classes.

    Args:
        host: of the call.
        model_table: a table of models, or a registered one.
        test_table: a packed table.
        mst_key: which model; None for the only one.

    Returns:
        ``{"target", "classes": [texts], "pairs", "curves"}``; the last two as
        :func:`cerebro_db.training.scores.curves.added` has them, with ids of classes.

    Raises:
        InvalidArgument: no target has classes, or the test table was not packed like the training table.
    """
    with control_session(host.pool, host.search_path) as control:
        table = named_models(control, model_table)
        if all(target.kind != "class" for target in table.targets.each):
            names = ", ".join(map(repr, table.dependent_varnames))
            raise InvalidArgument(
                f"model_table: {table.relation.name} predicts {names}, a float target; allowed: classes"
            )
        test = load_packed(control, test_table, "test_table")
        check_alike(table, test)
        key = table.only_key() if mst_key is None else mst_key
        table.check_key(key)
        job = ScoringJob(host, table, test, load_models(control, table, (key,)), {key: CURVES})
        found = job.run(control, use_gpus=False)[key]["curves"]
        values = shown_classes(control, table.class_values, table.class_kinds, host.styles)
    return [
        {
            "target": table.dependent_varnames[place],
            "classes": ["NULL" if one is None else one for one in values[place]],
            **curve,
        }
        for place, curve in found
    ]
