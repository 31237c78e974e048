"""Ids beyond an embedding in SQL: the row by its id, the value and what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg2 import errors

from tests.models.conftest import layer

FAULT = "got 7, the id 7 of the embedding 'words'; allowed: 0 to 4"
PLACE = f"column 'x': place 3 of its features: {FAULT}"


@pytest.fixture(scope="module")
def words(db: Any, network: Any) -> Any:
    """A model with an embedding, trained on good rows, and tables with a bad one."""
    net = network(
        (4,),
        layer("Embedding", input_dim=5, output_dim=2, name="words"),
        layer("Flatten", name="flat"),
        (2, "softmax"),
    )
    db.fetch(
        "CREATE TABLE rows AS SELECT i AS id, ARRAY[i % 5, i % 3, i % 4, 1]::real[] AS x, i % 2 AS y "
        "FROM generate_series(1, 60) i; "
        "CREATE TABLE bad AS SELECT id + 1000 AS id, CASE WHEN id = 41 THEN '{1,2,7,0}' ELSE x END AS x, y FROM rows"
    )
    db.fetch("SELECT cerebro_pack('rows', 'packed', 'y', 'x', num_partitions := 2)")
    db.fetch(
        "SELECT cerebro_pack('bad', 'bad_packed', 'y', 'x', num_partitions := 2, buffer_size := 7)"
    )
    db.fetch("SELECT cerebro_load_model('nets', %s)", [net])
    db.fetch(
        "SELECT cerebro_load_configs('nets', 'configs', ARRAY[1], "
        "ARRAY['loss=''sparse_categorical_crossentropy'',optimizer=''Adam'',metrics=[''accuracy'']'], ARRAY['batch_size=8'])"
    )
    db.fetch("SELECT cerebro_fit_multiple('packed', 'models', 'configs', 1)")
    return db


def test_predict_names_the_row(words: Any) -> None:
    words.fetch("SELECT cerebro_predict('models', 'rows', 'id', 'x', 'fine')")
    with pytest.raises(errors.DataException) as caught:
        words.fetch("SELECT cerebro_predict('models', 'bad', 'id', 'x', 'never')")
    assert f"id = 1041: {PLACE}" in str(caught.value)
    assert "input_dim" in caught.value.diag.message_hint
    assert "public.never" not in words.tables()


def test_predict_of_a_packed_table_names_the_row(words: Any) -> None:
    with pytest.raises(errors.DataException) as caught:
        words.fetch("SELECT cerebro_predict('models', 'bad_packed', NULL, NULL, 'never')")
    told = str(caught.value)
    assert PLACE in told
    partition, buffer, row = words.fetch(
        "SELECT t.partition_key, t.buffer_id, (g.i + 1)::integer FROM bad_packed t, "
        "generate_series(0, t.num_rows - 1) g(i) "
        "WHERE substring(t.x, g.i * 16 + 9, 4) = '\\x0000e040'"
    )[0]
    assert f"partition_key = {partition}, buffer_id = {buffer}, row_number = {row}: " in told


def test_predict_row(words: Any) -> None:
    with pytest.raises(errors.DataException) as caught:
        words.fetch("SELECT cerebro_predict_row('models', ARRAY[1, 2, 7, 0])")
    assert f"input 1, place 3 of its features: {FAULT}" in str(caught.value)
    assert words.value("SELECT (cerebro_predict_row('models', ARRAY[1, 2, 3, 0])).prob") > 0


def test_evaluate(words: Any) -> None:
    try:
        words.fetch("SELECT cerebro_evaluate('models', 'bad_packed', 'scored')")
        told = json.dumps(words.fetch("SELECT * FROM scored"), default=str)
    except errors.Error as error:
        told = str(error)
    assert FAULT in told


def test_training(words: Any) -> None:
    words.fetch("SELECT cerebro_fit_multiple('bad_packed', 'failed', 'configs', 1)")
    told = words.value("SELECT error FROM failed_info")
    assert FAULT in told
    assert "{{" not in told
