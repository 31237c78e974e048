"""Entries of the functions that score and predict; their arguments are those of the SQL functions."""

from __future__ import annotations

import json
from typing import Any

from cerebro_db.postgres.tables.outputs import drop_outputs
from cerebro_db.requests.administration import DropOutputsRequest
from cerebro_db.requests.calibrating import CalibrateRequest, ReliabilityRequest, ThresholdRequest
from cerebro_db.requests.ensembling import EnsembleRequest
from cerebro_db.requests.explaining import ContributionsRequest, DependenceRequest, ExplainRequest
from cerebro_db.requests.predicting import (
    ByomRequest,
    ConfusionRequest,
    EvaluationRequest,
    FoldPredictionRequest,
    PredictionRequest,
)
from cerebro_db.scoring import (
    calibrating,
    calibration,
    evaluation,
    explaining,
    fold_predictions,
    prediction,
)
from cerebro_db.scoring import contributions as of_columns
from cerebro_db.scoring import curves as scored_curves
from cerebro_db.scoring import dependence as dependences
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


@entry_of(ExplainRequest)
def explain(plpy: Any, gd: dict[str, Any], request: ExplainRequest) -> None:
    """Measure the importance of columns."""
    explaining.explain(Host.apart(plpy, gd), request)


@entry_of(ContributionsRequest)
def contributions(plpy: Any, gd: dict[str, Any], request: ContributionsRequest) -> None:
    """Compute how much each column has moved the prediction of a row."""
    of_columns.contributions(Host.apart(plpy, gd), request)


@entry_of(DependenceRequest)
def dependence(plpy: Any, gd: dict[str, Any], request: DependenceRequest) -> None:
    """Compute what a model predicts on average for values of columns."""
    dependences.dependence(Host.apart(plpy, gd), request)


@entry_of(CalibrateRequest)
def calibrate(plpy: Any, gd: dict[str, Any], request: CalibrateRequest) -> int:
    """Register a version of a model whose probabilities are calibrated."""
    return calibration.calibrate(Host.apart(plpy, gd), request)


@entry_of(EnsembleRequest)
def ensemble(plpy: Any, gd: dict[str, Any], request: EnsembleRequest) -> int | None:
    """Register the mean of several models of a run."""
    from cerebro_db.runs import (
        ensembling,  # it computes with arrays, which a driver is begun without
    )

    return ensembling.ensemble(Host.apart(plpy, gd), request)


@entry_of(ReliabilityRequest)
def reliability(plpy: Any, gd: dict[str, Any], request: ReliabilityRequest) -> None:
    """Compare the confidence of models with their accuracy."""
    calibrating.reliability(Host.apart(plpy, gd), request)


@entry_of(ThresholdRequest)
def threshold(plpy: Any, gd: dict[str, Any], request: ThresholdRequest) -> None:
    """Find the best thresholds of models of two classes."""
    calibrating.threshold(Host.apart(plpy, gd), request)


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


@entry_of(FoldPredictionRequest)
def predict_folds(plpy: Any, gd: dict[str, Any], request: FoldPredictionRequest) -> None:
    """Ask the models of folds about the rows that they have not seen."""
    fold_predictions.predict_folds(Host.apart(plpy, gd), request)


drop_outputs_of = in_session(DropOutputsRequest, drop_outputs)
