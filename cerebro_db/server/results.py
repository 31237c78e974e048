"""What cerebro_evaluate and cerebro_predict call."""

from __future__ import annotations

from typing import Any

from cerebro_db.driver import evaluation, prediction
from cerebro_db.driver.evaluation import EvaluationRequest
from cerebro_db.driver.prediction import PredictionRequest
from cerebro_db.server.host import Host, entry


@entry
def evaluate(
    plpy: Any,
    gd: dict[str, Any],
    model_table: str | None,
    test_table: str | None,
    output_table: str | None,
    use_gpus: bool | None,
    mst_key: int | None,
) -> None:
    """Score models on a packed table."""
    host = Host.of(plpy, gd)
    request = EvaluationRequest(
        model_table, test_table, output_table, use_gpus, mst_key, search_path=host.search_path
    )
    evaluation.evaluate(host.pool, host.dialect, request, host.tick)


@entry
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
) -> None:
    """Ask a model about the rows of a table."""
    host = Host.of(plpy, gd)
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
        search_path=host.search_path,
    )
    prediction.predict(host.pool, host.dialect, request, host.tick)
