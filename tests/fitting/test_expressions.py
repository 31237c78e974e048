"""Expressions that an administrator registers, in runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest

Fit = Callable[..., tuple[str, int]]
# As MADlib's documentation has them, without the pickling around them.
SQUARED_ERROR = """
def squared_error(y_true, y_pred):
    import tensorflow.keras.backend as K
    return K.square(y_pred - y_true)
"""
RMSE = """
def rmse(y_true, y_pred):
    import tensorflow.keras.backend as K
    return K.sqrt(K.mean(K.square(y_pred - y_true), axis=-1))
"""
OURS = "loss='custom.squared_error',optimizer='Adam(lr=0.01)',metrics=['custom.root']"


@pytest.fixture
def registered(bench: Any) -> Iterator[None]:
    for name, text in (
        ("squared_error", SQUARED_ERROR),
        ("root", RMSE),
        ("bent", "x / (1 + abs(x))"),
    ):
        bench.run("SELECT cerebro_register_expression(%s, %s)", (name, text))
    yield
    bench.run("DELETE FROM cerebro.catalog_functions")


def test_the_custom_loss_and_metric_of_madlib(
    bench: Any, fit: Fit, selection: Callable[..., str], weights: Any, registered: None
) -> None:
    of_keras = OURS.replace("custom.squared_error", "mse")
    out, run_id = fit(configs=selection([1], [OURS, of_keras]), epochs=2, seed=1)
    names, losses, values = bench.row(
        f"SELECT metrics_type, training_loss, training_metrics FROM {out}_info WHERE mst_key = 1"
    )
    assert names == ["root"]
    assert all(0 < value < 1 for value in (*losses, *values))
    manifest = bench.value("SELECT manifest FROM cerebro.runs WHERE run_id = %s", (run_id,))
    assert manifest["functions"] == {
        "squared_error": {"expression": SQUARED_ERROR},
        "root": {"expression": RMSE},
    }
    alone, _ = fit(configs=selection([1], [OURS]), epochs=2, seed=1)
    unmeasured = selection([1], [OURS.replace("custom.root", "mae")])
    assert weights(alone)[1] == weights(fit(configs=unmeasured, epochs=2, seed=1)[0])[1]
    assert bench.value(f"SELECT count(*) FROM {out}_info WHERE status = 'finished'") == 2
    bench.run("SELECT cerebro_unregister_function('squared_error')")
    bench.run(f"SELECT cerebro_predict('{out}', 'blobs', 'id', 'x', '{out}_p', mst_key := 1)")
    assert bench.value(f"SELECT count(DISTINCT id) FROM {out}_p") == 150


def test_an_object_table_of_madlib_trains_as_the_registered_names_do(
    bench: Any, selection: Callable[..., str], weights: Any, registered: None
) -> None:
    theirs = OURS.replace("custom.", "")
    for name in ("squared_error", "root"):
        bench.run("SELECT cerebro_load_custom_function('objects', 'x', %s)", (name,))
    for out, params, objects in (("named", theirs, "'objects'"), ("ours", OURS, "NULL")):
        bench.run(
            f"SELECT cerebro_fit('packed', %s, 'models', 1, %s, 'batch_size=8', 1, object_table := {objects})",
            (out, params),
        )
    assert weights("named") == weights("ours")
    found = "SELECT object_table FROM {0}_summary UNION ALL SELECT compile_params FROM {0}_info"
    assert bench.column(found.format("named")) == ["public.objects", OURS]
    assert bench.column(found.format("ours")) == [None, OURS]
    # A table that MADlib made has its names, and tells where their functions are.
    by_hand = selection([1], [OURS])
    bench.run(f"UPDATE {by_hand} SET compile_params = %s", (theirs,))
    bench.run(f"UPDATE {by_hand}_summary SET object_table = 'objects'")
    bench.run("SELECT cerebro_fit_multiple('packed', 'by_hand', %s, 1)", (by_hand,))
    assert bench.column(found.format("by_hand")) == ["public.objects", OURS]
    grid = (
        "{'loss': ['squared_error'], 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.01]}], "
        "'metrics': [['root']]}"
    )
    bench.run(
        "SELECT cerebro_search('packed', 'searched', 'models', 'best_of_them', ARRAY[1], %s, "
        "$${'batch_size': [8]}$$, 'grid', object_table := 'objects', objective := 'root(mode=min)')",
        (grid,),
    )
    custom = grid.replace("squared_error", "custom.squared_error").replace("root", "custom.root")
    stored = "SELECT spec -> 'search' -> 'space' ->> 'compile_params_grid' FROM cerebro._runs WHERE (spec -> 'search') IS NOT NULL"
    assert bench.value(f"{stored} ORDER BY run_id DESC LIMIT 1") == custom
    assert bench.value("SELECT object_table FROM searched_summary") == "public.objects"
    assert bench.value("SELECT object_table FROM best_of_them_summary") == "public.objects"
    bench.run("DROP TABLE objects")  # what is stored needs it no more
    bench.run("SELECT cerebro_fit_multiple('packed', 'by_stored_names', 'best_of_them', 1)")
    assert bench.value("SELECT object_table FROM by_stored_names_summary") is None


def test_an_activation_is_a_part_of_the_model(bench: Any, registered: None) -> None:
    bench.run(
        "SELECT cerebro_load_model('bent_models', cerebro_mlp(2, ARRAY[4], 3, activation := 'custom.bent'))"
    )
    stored = bench.value("SELECT model_arch FROM bent_models")
    assert stored["config"]["layers"][1]["config"]["activation"] == "expression:x / (1 + abs(x))"
    bench.run("SELECT cerebro_unregister_function('bent')")
    bench.run("SELECT cerebro_load_model('bent_models', %s::text)", (json.dumps(stored),))
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=r"activation 'custom\.bent'"):
        bench.run(
            "SELECT cerebro_load_model('bent_models', cerebro_mlp(2, ARRAY[4], 3, activation := 'custom.bent'))"
        )
    bench.run("DROP TABLE bent_models")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mse", "x", "name: got 'mse', which Keras has"),
        ("root", "x", "registered already"),
        ("Ours", "x", "allowed: lower-case"),
        ("ours", "__import__('os').system(y_pred)", "calls of functions by their names"),
        ("ours", "open(y_pred)", "function 'open', which is not allowed"),
        ("ours", "y_true", "must use y_pred"),
        ("ours", None, "expression: got NULL"),
        (None, "x", "name: got NULL"),
    ],
)
def test_what_is_refused(
    bench: Any, registered: None, name: str | None, text: str | None, message: str
) -> None:
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=message):
        bench.run("SELECT cerebro_register_expression(%s, %s)", (name, text))


def test_an_expression_is_no_schedule_and_an_activation_no_loss(
    bench: Any, fit: Fit, selection: Callable[..., str], registered: None
) -> None:
    for params, fits, message in (
        (OURS.replace("squared_error", "bent"), ["batch_size=8"], "of one argument"),
        (OURS, ["callbacks=[LearningRateScheduler(custom.root)]"], "allowed for a schedule"),
    ):
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=message):
            fit(configs=selection([1], [params], fits))
