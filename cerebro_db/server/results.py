"""Entries of cerebro_evaluate, cerebro_confusion_matrix, cerebro_predict and cerebro_predict_byom."""

from __future__ import annotations

from typing import Any

from cerebro_db.scoring import confusion, evaluation, prediction, prediction_byom
from cerebro_db.scoring.evaluation import EvaluationRequest
from cerebro_db.scoring.prediction import PredictionRequest
from cerebro_db.scoring.prediction_byom import ByomRequest
from cerebro_db.server.entry import entry_of
from cerebro_db.server.host import Host


@entry_of("cerebro_evaluate")
def evaluate(
    plpy: Any,
    gd: dict[str, Any],
    model_table: str | None,
    test_table: str | None,
    output_table: str | None,
    use_gpus: bool | None,
    mst_key: int | None,
    replace: bool | None,
) -> None:
    """Score models on a packed table."""
    host = Host.apart(plpy, gd)
    arguments = (model_table, test_table, output_table, use_gpus, mst_key, replace)
    request = EvaluationRequest(*arguments, search_path=host.search_path)
    evaluation.evaluate(host.pool, host.dialect, request, host.notice)


@entry_of("cerebro_confusion_matrix")
def confusion_matrix(
    plpy: Any,
    gd: dict[str, Any],
    model_table: str | None,
    test_table: str | None,
    output_table: str | None,
    use_gpus: bool | None,
    mst_key: int | None,
    replace: bool | None,
) -> None:
    """Count which classes models take for which, on a packed table."""
    host = Host.apart(plpy, gd)
    arguments = (model_table, test_table, output_table, use_gpus, mst_key, replace)
    request = EvaluationRequest(*arguments, search_path=host.search_path, styles=host.styles)
    confusion.confusion_matrix(host.pool, host.dialect, request, host.notice)


@entry_of("cerebro_predict")
def predict(
    plpy: Any,
    gd: dict[str, Any],
    model_table: str | None,
    test_table: str | None,
    id_col: str | None,
    independent_varname: str | None,
    output_table: str | None,
    pred_type: str | float | None,
    use_gpus: bool | None,
    mst_key: int | None,
    num_workers: int | None,
    ensemble: int | None,
    replace: bool | None,
    on_error: str | None,
) -> None:
    """Ask a model about the rows of a table."""
    host = Host.apart(plpy, gd)
    request = PredictionRequest(
        model_table,
        test_table,
        id_col,
        independent_varname,
        output_table,
        pred_type,
        use_gpus,
        mst_key,
        num_workers,
        ensemble,
        replace,
        on_error=on_error,
        search_path=host.search_path,
        styles=host.styles,
    )
    prediction.predict(host.pool, host.dialect, request, host.notice)


@entry_of("cerebro_predict_byom")
def predict_byom(plpy: Any, gd: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Ask a model that was trained elsewhere; the arguments are those of the SQL function."""
    host = Host.apart(plpy, gd)
    request = ByomRequest(**arguments, search_path=host.search_path)
    prediction_byom.predict_byom(host.pool, host.dialect, request, host.notice)
