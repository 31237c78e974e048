"""Entries of the functions that score and predict; their arguments are those of the SQL functions."""

from __future__ import annotations

import json
from typing import Any

from cerebro_db.postgres.outputs import drop_outputs
from cerebro_db.scoring import curves as scored_curves
from cerebro_db.scoring import evaluation, prediction
from cerebro_db.scoring.evaluation import EvaluationRequest
from cerebro_db.scoring.prediction import ByomRequest, PredictionRequest
from cerebro_db.server.caller import caller_session
from cerebro_db.server.declarations import CHANGES, READS, Scheduled
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host
from cerebro_db.server.jobs import submitted_call

_SCORE = Scheduled("output_table", reads=("model_table", "test_table"))
_PREDICT = Scheduled("output_table", reads=("model_table", "test_table"), steps="predict")


@entry_of("cerebro_evaluate", _SCORE)
def evaluate(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Score models on a packed table."""
    evaluation.evaluate(Host.apart(plpy, gd), EvaluationRequest(**given))


@entry_of("cerebro_confusion_matrix", _SCORE)
def confusion_matrix(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Count which classes models take for which, on a packed table."""
    evaluation.confusion_matrix(Host.apart(plpy, gd), EvaluationRequest(**given))


@entry_of("_curves", READS)
def curves(
    plpy: Any,
    gd: dict[str, Any],
    model_table: str | None,
    test_table: str | None,
    mst_key: int | None,
) -> str:
    """Confusion and ROC curves of a model on a packed table, as JSON."""
    host = Host.apart(plpy, gd, writes=False)
    return json.dumps(scored_curves.curves(host, model_table, test_table, mst_key))


@entry_of("cerebro_predict", _PREDICT)
def predict(
    plpy: Any,
    gd: dict[str, Any],
    *,
    wait: bool | None = True,
    priority: int | None = 0,
    **given: Any,
) -> int | None:
    """Ask a model about the rows of a table; returns the job_id where a job does it."""
    host = Host.apart(plpy, gd)
    if wait is False:
        return submitted_call(host, "cerebro_predict", given, priority)
    prediction.predict(host, PredictionRequest(**given))
    return None


@entry_of(
    "cerebro_predict_byom", Scheduled("output_table", reads=("model_arch_table", "test_table"))
)
def predict_byom(plpy: Any, gd: dict[str, Any], **given: Any) -> None:
    """Ask a model that was trained elsewhere."""
    prediction.predict_byom(Host.apart(plpy, gd), ByomRequest(**given))


@entry_of("cerebro_drop_outputs", CHANGES)
def drop_outputs_of(plpy: Any, gd: dict[str, Any], output_table: str | None) -> list[str]:
    """Drop an output table and what is beside it."""
    with caller_session(plpy, writes=True) as session:
        return drop_outputs(session, output_table)
