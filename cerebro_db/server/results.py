"""What cerebro_evaluate and cerebro_predict call, and the worker that predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cerebro_db.driver import evaluation, prediction
from cerebro_db.driver.evaluation import EvaluationRequest
from cerebro_db.driver.prediction import PredictionRequest
from cerebro_db.errors import InvalidData
from cerebro_db.server.computing import Tick, computing
from cerebro_db.server.host import Host, entry
from cerebro_db.server.joining import take_joined
from cerebro_db.server.memory import recall
from cerebro_db.server.training import checked

if TYPE_CHECKING:  # TensorFlow is imported when a worker is made ready, not before
    from cerebro_db.training.prediction import Answers


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
        search_path=host.search_path,
    )
    prediction.predict(host.pool, host.dialect, request, host.tick)


@entry
@computing
def begin_prediction(tick: Tick, gd: dict[str, Any], task: str | None, state: int | None) -> int:
    """Load a model into this worker; returns what names it in the calls that follow."""
    from cerebro_db.training.prediction import Prediction

    memory = recall(gd)
    return memory.begin(
        Prediction(
            task or "",
            take_joined(gd, state),
            memory.scorers,
            memory.architectures,
            tick,
        )
    )


@entry
@computing
def predict_batch(
    tick: Tick,
    gd: dict[str, Any],
    token: int | None,
    data: bytes | None,
    count: int | None,
    known: int | None,
) -> Answers:
    """The predictions for one batch of rows."""
    from cerebro_db.training.prediction import Prediction

    count = checked("count", count, 1, 2**31 - 1)
    if known != count:
        raise InvalidData("a row has no id")
    work: Prediction = recall(gd).current(token, Prediction)
    return work.batch(data or b"", count)
