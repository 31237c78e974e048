"""Whatever is wrong is told before a worker starts: what was got, what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg2
import pytest
from reasons import EMBEDDED_ONLY

from tests.fitting.conftest import ADAM, DENSE, SOFTMAX, layer, model

Fit = Callable[..., tuple[str, int]]


@pytest.fixture(scope="module", autouse=True)
def wrong_tables(bench: Any) -> None:
    bench.run("CREATE TABLE taken (a int)")
    bench.run("CREATE TABLE no_selection (a int)")
    bench.run("CREATE TABLE bare (mst_key int, model_id int, compile_params text, fit_params text)")
    wide = model(DENSE, SOFTMAX, shape=(7,))
    five = model(DENSE, layer("Dense", units=5, activation="softmax"))
    two = model(DENSE, layer("Dense", units=2, activation="softmax"))
    for text in (wide, five, two):
        bench.run("SELECT cerebro_load_model('misfits', %s)", (text,))
    for name, model_id in (("wide", 1), ("five", 2), ("two", 3)):
        loss = "categorical_crossentropy" if name == "five" else "sparse_categorical_crossentropy"
        bench.run(
            "SELECT cerebro_load_configs('misfits', %s, %s, %s, %s)",
            (name, [model_id], [f"loss='{loss}',optimizer='Adam'"], ["batch_size=8"]),
        )


@pytest.mark.parametrize(
    ("change", "sqlstate", "message"),
    [
        ({"packed": None}, "22023", "source_table: got NULL"),
        ({"packed": ""}, "22023", "source_table: got ''"),
        ({"packed": "nowhere"}, "42P01", "source_table: got 'nowhere'"),
        ({"packed": "blobs"}, "42809", "blobs is not packed"),
        ({"configs": None}, "22023", "model_selection_table: got NULL"),
        ({"configs": "nowhere"}, "42P01", "model_selection_table: got 'nowhere'"),
        ({"configs": "no_selection"}, "42809", "has no column mst_key"),
        ({"configs": "bare"}, "22023", "bare is empty"),
        ({"out": "taken"}, "42P07", "taken exists already"),
        ({"out": ""}, "22023", "model_output_table: got ''"),
        ({"out": "nowhere.out"}, "42P01", "the schema 'nowhere'"),
        ({"epochs": 0}, "22023", "num_iterations: got 0; allowed: 1 to"),
        ({"epochs": None}, "22023", "num_iterations: got NULL"),
        ({"metrics_compute_frequency": 0}, "22023", "metrics_compute_frequency: got 0; allowed: 1 to 2"),
        ({"metrics_compute_frequency": 3}, "22023", "metrics_compute_frequency: got 3; allowed: 1 to 2"),
        ({"num_workers": 0}, "22023", "num_workers: got 0"),
        ({"seed": -1}, "22023", "seed: got -1"),
        ({"schedule": "spiral"}, "22023", "schedule: got 'spiral'; allowed: 'hopper', 'rotation'"),
        ({"schedule": None}, "22023", "schedule: got NULL"),
        pytest.param({"schedule": "rotation"}, "0A000", "schedule: got 'rotation'; allowed on this server: 'hopper'", marks=pytest.mark.not_on_segments(EMBEDDED_ONLY)),
        ({"validation_table": "blobs"}, "42809", "blobs is not packed"),
        ({"validation_table": "floats"}, "22023", "validation_table: got the target target"),
        ({"warm_start": True, "out": "taken"}, "42809", "taken is no output of cerebro.cerebro_fit_multiple"),
        ({"configs": "wide"}, "22023", r"configuration 1: got model_id 1 with the input shape \[7\] for features of shape \[6\]"),
        ({"configs": "five"}, "22023", "5 outputs for 3 classes"),
        ({"configs": "two"}, "22023", "2 outputs for 3 classes"),
        ({"packed": "floats"}, "22023", r"output shape \[3\] for a target of shape \[1\]"),
    ],
)  # fmt: skip
def test_bad_arguments(
    bench: Any, fit: Fit, change: dict[str, Any], sqlstate: str, message: str
) -> None:
    runs = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=message) as caught:
        fit(**change)
    assert caught.value.pgcode == sqlstate
    assert "Traceback" not in caught.value.diag.message_primary
    assert bench.value("SELECT count(*) FROM cerebro.runs") == runs


def test_parameters_that_were_written_by_hand_are_checked_too(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    configs = selection([1], [ADAM, ADAM.replace("0.01", "0.02")])
    bench.run(
        f"UPDATE {configs} SET compile_params = replace(compile_params, 'Adam', 'Adma') WHERE mst_key = 2"
    )
    with pytest.raises(psycopg2.Error, match=r"configuration 2: .*Adma.*Adam"):
        fit(configs=configs)


def test_a_class_weight_for_a_class_that_is_not_there(
    fit: Fit, selection: Callable[..., str]
) -> None:
    configs = selection([1], [ADAM], ["batch_size=8,class_weight={3: 2.0}"])
    with pytest.raises(
        psycopg2.Error, match=r"class_weight: got the classes \[3\]; allowed: 0 to 2"
    ):
        fit(configs=configs)


def test_a_class_weight_for_a_target_of_numbers(bench: Any, fit: Fit) -> None:
    bench.run("SELECT cerebro_load_model('scales', %s)", (model(layer("Dense", units=1)),))
    bench.run(
        "SELECT cerebro_load_configs('scales', 'scale_configs', ARRAY[1], "
        "ARRAY['loss=mse,optimizer=Adam'], ARRAY['class_weight={0: 2.0}'])"
    )
    with pytest.raises(psycopg2.Error, match="class_weight: got one for a target of numbers"):
        fit("floats", "scale_configs")


@pytest.mark.parametrize(
    "metric", ["MeanIoU(num_classes=3)", "IoU(num_classes=3, target_class_ids=[0])"]
)
def test_a_metric_that_wants_predicted_ids(
    fit: Fit, selection: Callable[..., str], metric: str
) -> None:
    configs = selection([1], [ADAM.replace("'accuracy'", f"'{metric}'")], ["batch_size=8"])
    told = "IoU: got sparse_y_pred=True, which is its default, for a model that tells 3 numbers"
    with pytest.raises(psycopg2.Error, match=f"model_id 1, .*{told}.*allowed: sparse_y_pred=False"):
        fit(configs=configs)


def test_a_target_of_one_class(bench: Any, fit: Fit) -> None:
    bench.run("CREATE VIEW alike AS SELECT x, 'a'::text AS label FROM blobs")
    bench.run("SELECT cerebro_pack('alike', 'alike_packed', 'label', 'x', num_partitions := 2)")
    one = model(DENSE, layer("Dense", units=1, activation="softmax"))
    bench.run("SELECT cerebro_load_model('ones', %s)", (one,))
    bench.run(
        "SELECT cerebro_load_configs('ones', 'one_configs', ARRAY[1], "
        "ARRAY['loss=categorical_crossentropy,optimizer=Adam'], ARRAY[''])"
    )
    told = "got a target of one class; allowed: of two classes or more"
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=told):
        fit("alike_packed", "one_configs")


def test_a_null_among_configurations_is_reported_with_its_row_and_column(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    configs = selection([1, 2], [ADAM])
    loose = f"{configs}_loose"  # without its constraints
    bench.run(f"CREATE TABLE {loose} AS SELECT * FROM {configs} WHERE mst_key = 1")
    bench.run(f"CREATE TABLE {loose}_summary AS TABLE {configs}_summary")
    for given, told in (
        ("2, model_id, compile_params, NULL", "the row of mst_key 2 {} in the column fit_params"),
        ("NULL, model_id, compile_params, ''", "a row {} in the column mst_key"),
    ):
        bench.run(f"INSERT INTO {loose} SELECT {given} FROM {loose} WHERE mst_key = 1")
        told = told.format(f"of public.{loose} has NULL")
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=told):
            fit(configs=loose)
        bench.run(f"UPDATE {loose} SET fit_params = ''")
    bench.run(f"UPDATE {loose} SET mst_key = 1")
    told = "has the mst_key 1 more than once"
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match=told):
        fit(configs=loose)


def test_a_table_of_an_open_transaction_cannot_be_seen(bench: Any, fit: Fit) -> None:
    bench.run("BEGIN")
    try:
        bench.run("CREATE TABLE fresh AS TABLE packed")
        with pytest.raises(psycopg2.errors.ActiveSqlTransaction, match="has written"):
            fit(packed="fresh")
    finally:
        bench.run("ROLLBACK")


def test_a_gpu_that_is_not_there_is_reported_before_any_run(bench: Any, fit: Fit) -> None:
    before = bench.value("SELECT max(run_id) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match="got use_gpus := true; there is no GPU on ") as caught:
        fit(use_gpus=True)
    assert "use_gpus := false computes on processors" in str(caught.value)
    assert bench.value("SELECT max(run_id) FROM cerebro.runs") == before
    fit(epochs=1)


@pytest.mark.parametrize(
    "name", ['Mixed "Case"', "per%cent %s", "späce d", "public.plain", 'public."Q uoted"']
)
def test_hostile_names_simply_work(bench: Any, fit: Fit, name: str) -> None:
    _, run_id = fit(out=name, epochs=1)
    schema, table = "public", name
    if name.startswith("public."):
        table = name.removeprefix("public.").strip('"')
    found = bench.value(
        "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename = ANY (%s)",
        (schema, [table, f"{table}_info", f"{table}_summary"]),
    )
    assert found == 3
    assert bench.value("SELECT status FROM cerebro.runs WHERE run_id = %s", (run_id,)) == "finished"


def test_hostile_names_of_inputs(bench: Any, fit: Fit) -> None:
    bench.run('CREATE SCHEMA "odd %s schema"')
    bench.run(
        'CREATE VIEW "odd %s schema"."my ""rows""" AS SELECT x AS "X %s", label AS "the ""label""" FROM blobs'
    )
    source, packed = '"odd %s schema"."my ""rows"""', '"odd %s schema"."Packed %"'
    bench.run(
        "SELECT cerebro_pack(%s, %s, %s, %s, num_partitions := 2)",
        (source, packed, 'the "label"', "X %s"),
    )
    out, _ = fit(packed=packed, epochs=1)
    values = bench.value(f'SELECT "the ""label""_class_values" FROM {out}_summary')
    assert values == ["a", "b", "c"]


def test_a_tensor_without_elements_fails_its_configuration_only(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    """Somebody has put the model into the table without ``cerebro_load_model``."""
    nothing = layer("CenterCrop", height=2, width=0)
    empty = model(layer("Reshape", target_shape=[2, 3, 1]), nothing, layer("Flatten"), SOFTMAX)
    bench.run("SELECT cerebro_load_model('forged', %s)", (model(DENSE, SOFTMAX),))
    bench.run("SELECT cerebro_load_model('forged', %s)", (model(DENSE, SOFTMAX),))
    bench.run(
        "UPDATE forged SET model_arch = %s WHERE model_id = 2",  # and the facts of another
        (empty,),
    )
    bench.run("SELECT cerebro_load_configs('forged', 'forged_configs', %s, %s, %s)",
              ([1, 2], [ADAM], ["batch_size=8"]))  # fmt: skip
    started = bench.value("SELECT pg_postmaster_start_time()")
    out, _ = fit(configs="forged_configs", epochs=1)
    rows = bench.fetch(f"SELECT status, error FROM {out}_info ORDER BY mst_key")
    assert [status for status, _ in rows] == ["finished", "failed"]
    assert "every size from 1" in rows[1][1]
    assert bench.value("SELECT pg_postmaster_start_time()") == started
