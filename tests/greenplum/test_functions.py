"""Functions that an administrator has registered, in processes of segments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import psycopg2
import psycopg2.extensions
import pytest

from conftest import Sql
from tests.fitting.conftest import ADAM, PLAIN

OURS = ADAM.replace("sparse_categorical_crossentropy", "custom.ours").replace(
    "metrics=['accuracy']", "metrics=['custom.ours','accuracy']"
)
KERAS_OWN = OURS.replace("custom.ours", "log_cosh")
SCHEDULE = "LearningRateScheduler(custom.shrunk)"
ROLE = f"cerebro_test_{os.getpid()}"


@pytest.fixture
def user(segments: Sql, connect: Callable[[str], Sql]) -> Iterator[Sql]:
    """An ordinary role, with a table that lies on all segments."""
    segments.run(f"CREATE ROLE {ROLE} LOGIN; GRANT cerebro_user TO {ROLE}")
    segments.run("CREATE TABLE spread AS SELECT generate_series(1, 50) AS id DISTRIBUTED BY (id)")
    segments.run(f"GRANT SELECT ON spread TO {ROLE}")
    sql = connect(psycopg2.extensions.make_dsn(segments.dsn, user=ROLE))
    yield sql
    sql.connection.close()
    segments.run(f"DROP TABLE spread; DROP ROLE {ROLE}")


@pytest.fixture
def registered(segments: Sql) -> Iterator[Sql]:
    for name, path in (("ours", "keras.losses:log_cosh"), ("shrunk", "keras.ops:exp")):
        segments.run("SELECT cerebro_register_function(%s, %s)", (name, path))
    yield segments
    segments.run("DELETE FROM cerebro.catalog_functions")


@pytest.mark.parametrize("rows", ["", " FROM spread"], ids=["coordinator", "segments"])
def test_only_the_catalog_says_what_is_imported(user: Sql, rows: str) -> None:
    told = json.dumps({"functions": {"evil": ["os:system", "os", "1"]}})
    refused = ("_know_functions", "42501"), ("_know_network", "42501"), ("_with_functions", "22P02")
    for function, pgcode in refused:
        with pytest.raises(psycopg2.Error) as caught:
            user.fetch(f"SELECT cerebro.{function}(%s){rows}", (told,))
        assert caught.value.pgcode == pgcode
    asked = json.dumps({"functions": True})
    answers = user.column(f"SELECT cerebro._with_functions(%s){rows}", (asked,))
    assert answers == [asked] * (50 if rows else 1)
    with pytest.raises(psycopg2.Error, match="permission denied"):
        user.fetch("SELECT * FROM cerebro.catalog_functions")


@pytest.fixture
def tables(registered: Sql) -> Iterator[Sql]:
    """Rows and a model; each configuration of ``ours`` has its twin of Keras' own loss."""
    registered.run("SET extra_float_digits = 3")
    registered.run(
        "CREATE TABLE ours_rows AS SELECT id, ARRAY[sin(id), cos(id), sin(2 * id), cos(2 * id), 1, "
        "id % 3]::real[] AS x, id % 3 AS y FROM generate_series(1, 60) id DISTRIBUTED BY (id)"
    )
    registered.run("SELECT cerebro_pack('ours_rows', 'ours_packed', 'y', 'x', 10)")
    registered.run("SELECT cerebro_load_model('ours_models', %s)", (PLAIN,))
    for name, parameters in (("ours_configs", OURS), ("ours_twins", KERAS_OWN)):
        registered.run(
            "SELECT cerebro_load_configs('ours_models', %s, ARRAY[1], %s, %s)",
            (name, [parameters], ["batch_size=8", f"batch_size=8,callbacks=[{SCHEDULE}]"]),
        )
    yield registered
    made = registered.column(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'ours\\_%'"
    )
    registered.run(f"DROP TABLE {', '.join(made)} CASCADE")


def _weights(sql: Sql, out: str, configs: str, more: str = "") -> list[bytes]:
    """What a new run gives."""
    sql.run(f"SELECT cerebro_fit_multiple('ours_packed', '{out}', '{configs}', 2, seed := 1{more})")
    found = sql.column(f"SELECT model_weights FROM {out} ORDER BY mst_key")
    return [bytes(weights) for weights in found]


@pytest.mark.slow
def test_registered_functions_train_and_score_on_segments(tables: Sql) -> None:
    trained = _weights(tables, "ours_out", "ours_configs")
    assert len(set(trained)) == 2
    assert _weights(tables, "ours_whole", "ours_configs", ", strategy := 'task'") == trained
    assert _weights(tables, "ours_turned", "ours_configs", ", schedule := 'rotation'") == trained
    assert _weights(tables, "ours_keras", "ours_twins") == trained
    told = "SELECT {} FROM ours_{} ORDER BY mst_key"
    names, losses = "metrics_type", "training_loss, training_metrics"
    assert tables.column(told.format(names, "out_info")) == [["ours", "accuracy"]] * 2
    wanted = tables.fetch(told.format(losses, "keras_info"))
    assert tables.fetch(told.format(losses, "out_info")) == wanted
    assert tables.fetch(told.format(losses, "turned_info")) == wanted
    tables.run("SELECT cerebro_evaluate('ours_out', 'ours_packed', 'ours_scores')")
    scores = tables.fetch("SELECT loss, metric FROM ours_scores ORDER BY mst_key")
    finals = tables.fetch(told.format("training_loss_final, training_metrics_final", "out_info"))
    assert [pytest.approx(row) for row in finals] == scores

    # The processes that are there hear that the name means something else by now.
    tables.run("SELECT cerebro_unregister_function('ours')")
    tables.run("SELECT cerebro_register_function('ours', 'keras.losses:mean_squared_error')")
    others = _weights(tables, "ours_squared", "ours_configs")
    assert all(one != two for one, two in zip(others, trained, strict=True))

    tables.run("SELECT cerebro_unregister_function('ours')")
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=r"1: got custom\.ours; all"):
        _weights(tables, "ours_not", "ours_configs")
    predict = (
        "SELECT cerebro_predict('ours_out', 'ours_rows', 'id', 'x', 'ours_said', mst_key := 1)"
    )
    tables.run(predict)
    assert tables.value("SELECT count(DISTINCT id) FROM ours_said") == 60
