"""What a kind of input promises: rows are packed, followed, predicted, scored and refused without another line for it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest
from servers import Caller, row_named

from cerebro_db.columns import inputs
from cerebro_db.columns.values import Column
from cerebro_db.errors import InvalidData
from cerebro_db.packing import pack
from cerebro_db.requests.packing import PackRequest, PackValidationRequest
from cerebro_db.requests.predicting import EvaluationRequest, PredictionRequest
from cerebro_db.scoring.evaluation import evaluate
from cerebro_db.scoring.prediction import predict
from tests.models.conftest import Network

ROWS = 20


class ListInput(inputs.Input, frozen=True, kw_only=True):
    """Numbers in a text, such as ``1,2.5``: all that a new kind of input has to say."""

    @classmethod
    def of(cls, column: Column) -> Self | None:
        return cls(column) if column.base_type == "text" else None

    def expression(self, alias: str) -> str:
        text = f"nullif({super().expression(alias)}, 'none')"
        return f"pg_catalog.string_to_array({text}, ',')::double precision[]"


@pytest.fixture(autouse=True)
def with_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is known while a test runs."""
    monkeypatch.setattr(inputs, "INPUTS", [*inputs.INPUTS, ListInput])


@pytest.fixture(scope="module")
def lists(db: Any) -> Any:
    """A table of texts with two numbers each."""
    db.fetch(
        "CREATE TABLE lists AS SELECT id, id || ',' || id / 4.0 AS x, id / 8.0::real AS y "
        f"FROM generate_series(1, {ROWS}) id"
    )
    return db


@pytest.fixture
def packed(lists: Any, caller: Caller) -> Any:
    """The table packed."""
    request = PackRequest("lists", "lists_p", "y", "x", num_partitions=2, replace=True)
    pack.pack(caller, request)
    return lists


def test_rows_are_packed_and_followed(packed: Any, caller: Caller) -> None:
    request = PackValidationRequest("lists", "lists_v", "y", "x", "lists_p", replace=True)
    pack.pack(caller, request)
    for table in ("lists_p", "lists_v"):
        features = packed.unpack(table, "x", "y").features
        wanted = np.array([[i, i / 4] for i in range(1, ROWS + 1)], np.float32)
        assert np.array_equal(features[np.argsort(features[:, 0])], wanted)


def test_models_predict_and_are_scored_on_its_rows(
    packed: Any, caller: Caller, network: Network
) -> None:
    packed.fetch("SELECT cerebro_load_model('nets', %s)", (network((2,), (1, "linear")),))
    packed.fetch(
        "SELECT cerebro_fit('lists_p', 'm', 'nets', 1, 'loss=''mse'',optimizer=''SGD(1e-9)''', "
        "'batch_size=64', 1)"
    )
    predict(caller, PredictionRequest("m", "lists", "id", "x", "raw", "response"))
    predict(caller, PredictionRequest("m", "lists_p", None, None, "of_packed", "response"))
    raw, of_packed = (
        sorted(np.ravel(row[0])[0] for row in packed.fetch(f"SELECT estimated FROM {table}"))
        for table in ("raw", "of_packed")
    )
    assert raw == of_packed
    (on_raw,) = evaluate(caller, EvaluationRequest("m", "lists", "on_raw", independent_varname="x"))
    (on_packed,) = evaluate(caller, EvaluationRequest("m", "lists_p", "on_packed"))
    assert on_raw.loss == pytest.approx(on_packed.loss, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("'1,2,3'", r"row 21 .*'x' has shape \(3,\); allowed: \(2,\)"),
        ("'none'", "row 21 .*'x' is NULL"),
        ("'1,NaN'", "row 21 .*'x' holds a value that is NaN"),
    ],
)
def test_a_row_is_refused_by_its_name(
    lists: Any, caller: Caller, has_segments: bool, value: str, message: str
) -> None:
    lists.fetch("DROP TABLE IF EXISTS bad; CREATE TABLE bad AS TABLE lists")
    lists.fetch(f"INSERT INTO bad VALUES (0, {value}, 1)")
    with pytest.raises(InvalidData, match=row_named(message, has_segments)):
        pack.pack(caller, PackRequest("bad", "bad_p", "y", "x", num_partitions=1))
