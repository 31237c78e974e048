"""Entries of the functions that score and predict; their arguments are those of the SQL functions."""

from __future__ import annotations

import json
from typing import Any

from cerebro_db.postgres.tables.outputs import drop_outputs
from cerebro_db.requests.administration import DropOutputsRequest
from cerebro_db.requests.predicting import (
    ByomRequest,
    ConfusionRequest,
    EvaluationRequest,
    PredictionRequest,
)
from cerebro_db.scoring import curves as scored_curves
from cerebro_db.scoring import evaluation, prediction
from cerebro_db.server.entry import entry, entry_of, hinted, in_session
from cerebro_db.server.host import Host
from cerebro_db.server.jobs import submitted_call


@entry_of(EvaluationRequest)
def evaluate(plpy: Any, gd: dict[str, Any], request: EvaluationRequest) -> None:
    """Score models on a packed table."""
    evaluation.evaluate(Host.apart(plpy, gd), request)


@entry_of(ConfusionRequest)
def confusion_matrix(plpy: Any, gd: dict[str, Any], request: ConfusionRequest) -> None:
    """Count which classes models take for which, on a packed table."""
    evaluation.confusion_matrix(Host.apart(plpy, gd), request)


@entry
@hinted("_curves")
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


@entry_of(PredictionRequest)
def predict(plpy: Any, gd: dict[str, Any], request: PredictionRequest) -> int | None:
    """Ask a model about the rows of a table; returns the job_id where a job does it."""
    host = Host.apart(plpy, gd)
    if request.wait is False:
        return submitted_call(host, request, request.priority)
    prediction.predict(host, request)
    return None


@entry_of(ByomRequest)
def predict_byom(plpy: Any, gd: dict[str, Any], request: ByomRequest) -> None:
    """Ask a model that was trained elsewhere."""
    prediction.predict_byom(Host.apart(plpy, gd), request)


drop_outputs_of = in_session(DropOutputsRequest, drop_outputs)
