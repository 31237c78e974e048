"""Jobs of any function that changes data: which they are, how their arguments are checked, and what is done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest

from cerebro_db.server.job_calls import schedulable

SUBMIT = "SELECT cerebro_submit(%s, on_success := %s)"
COLUMNS = {
    "source_table": "flowers", "output_table": "flowers_packed", "dependent_varname": "kind",
    "independent_varname": "size,colour", "num_partitions": 2, "replace": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def flowers(bench: Any) -> Iterator[Any]:
    """A table with columns of two types."""
    bench.run(
        "CREATE TABLE flowers AS SELECT i AS id, i / 8.0 AS size, "
        "(ARRAY['red', 'blue', 'white'])[1 + i % 3] AS colour, i % 2 AS kind FROM generate_series(1, 40) i"
    )
    yield bench
    bench.run("DROP TABLE flowers")


def submitted(sql: Any, calls: dict[str, Any], on_success: str | None = None) -> tuple[Any, ...]:
    """Status, error and run_id of a job when it has ended."""
    job_id = sql.value(SUBMIT, (json.dumps(calls), on_success))
    sql.run("SELECT cerebro_wait_job(%s, '900 s')", (job_id,))
    found: tuple[Any, ...] = sql.row(
        "SELECT status, error, run_id, job_id FROM cerebro.jobs WHERE job_id = %s", (job_id,)
    )
    return found


def test_each_function_is_declared(bench: Any) -> None:
    """What changes data can be scheduled; what cannot only reads, or is for a session."""
    names = bench.column(
        "SELECT DISTINCT proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE nspname = 'cerebro' AND proname LIKE 'cerebro\\_%%' "
        "AND NOT EXISTS (SELECT 1 FROM pg_aggregate a WHERE a.aggfnoid = p.oid)"
    )
    kinds: dict[str, str] = {}
    for name in names:
        with pytest.raises(psycopg2.Error) as refused:  # an argument that no function has
            bench.run(SUBMIT, (json.dumps({name: {"no_such_argument": 1}}), None))
        kinds[name] = refused.value.diag.message_primary
    changing = {name for name, told in kinds.items() if "unknown argument" in told}
    assert changing == set(schedulable())
    reading = {name for name, told in kinds.items() if "which changes nothing" in told}
    attended = {
        name for name, told in kinds.items() if "which is for a session that waits for it" in told
    }
    assert reading == {
        "cerebro_convert_bytea_to_integer_array", "cerebro_convert_bytea_to_real_array", "cerebro_export",
        "cerebro_image", "cerebro_image_array", "cerebro_importance", "cerebro_mlp", "cerebro_predict_outputs",
        "cerebro_predict_row", "cerebro_tabular", "cerebro_version",
    }  # fmt: skip
    assert attended == {
        "cerebro_cancel_job", "cerebro_reassign_owned", "cerebro_schedule", "cerebro_start_schedule", "cerebro_submit",
        "cerebro_unschedule", "cerebro_wait", "cerebro_wait_job", "cerebro_work",
    }  # fmt: skip
    assert changing | reading | attended == set(names)


def test_columns_are_packed_trained_scored_and_registered(flowers: Any) -> None:
    """The path of mixed columns, as one job; a run_id that is left out is the run before."""
    net = "cerebro_mlp(4, ARRAY[4], 2, output_activation := 'softmax')"
    flowers.run(f"SELECT cerebro_load_model('flower_nets', {net})")
    calls = {
        "cerebro_pack_columns": COLUMNS | {"encodings": {"size": "minmax"}},
        "cerebro_pack_validation": {
            "source_table": "flowers", "output_table": "flowers_val", "dependent_varname": "kind",
            "independent_varname": "size,colour", "training_table": "flowers_packed", "replace": True,
        },
        "cerebro_fit": {
            "source_table": "flowers_packed", "model_output_table": "flowers_out",
            "model_arch_table": "flower_nets", "model_id": 1, "num_iterations": 1,
            "compile_params": "loss='sparse_categorical_crossentropy',optimizer='SGD(lr=0.1)',metrics=['accuracy']",
            "fit_params": "batch_size=8", "validation_table": "flowers_val", "replace": True,
        },
        "cerebro_evaluate": {
            "model_table": "flowers_out", "test_table": "flowers_val", "output_table": "flowers_scores",
            "replace": True,
        },
        "cerebro_register_model": {"name": "flowers", "mst_key": 1},
        "cerebro_set_alias": {"name": "flowers", "alias": "tonight", "version": 1},
        "cerebro_predict": {
            "model_table": "model:flowers@tonight", "test_table": "flowers", "id_col": "id",
            "independent_varname": "*", "output_table": "flowers_told", "pred_type": "response",
        },
    }  # fmt: skip
    with pytest.raises(psycopg2.Error, match=r"model:flowers@tonight|has no version|no model"):
        flowers.run(SUBMIT, (json.dumps(calls), None))  # it is not there yet
    del calls["cerebro_predict"]
    status, error, run_id, job_id = submitted(flowers, calls)
    assert (status, error) == ("finished", None)
    assert flowers.value("SELECT count(*) FROM flowers_scores") == 1
    lineage = "SELECT run_id, aliases FROM cerebro.registered_versions WHERE name = 'flowers'"
    assert flowers.row(lineage) == (run_id, ["tonight"])
    log = flowers.column("SELECT action FROM cerebro.job_log WHERE job_id = %s", (job_id,))
    assert log.count("done") == 6
    told = "".join(
        flowers.column(
            "SELECT message FROM cerebro.job_log WHERE job_id = %s AND message IS NOT NULL",
            (job_id,),
        )
    )
    assert "packed 40 rows of 4 features" in told
    assert flowers.value("SELECT count(*) FROM flowers_packed_encoding") >= 1
    predicted = {"cerebro_predict": {
        "model_table": "model:flowers@tonight", "test_table": "flowers_val", "id_col": None,
        "independent_varname": None, "output_table": "flowers_told", "pred_type": "response",
    }}  # fmt: skip
    assert submitted(flowers, predicted)[:2] == ("finished", None)
    assert flowers.value("SELECT count(*) FROM flowers_told") == 40
    flowers.run("SELECT cerebro_drop_model('flowers')")


def test_images_are_packed_and_tables_are_split(flowers: Any) -> None:
    flowers.run(
        "CREATE TABLE pixels AS SELECT i AS id, i % 2 AS kind, decode(repeat('0a', 12), 'hex') AS image "
        "FROM generate_series(1, 12) i"
    )
    calls = {
        "cerebro_train_test_split": {
            "source_table": "pixels", "output_table": "pixels", "train_proportion": 0.5,
            "separate_output_tables": True,
        },
        "cerebro_pack_images": {
            "source_table": "pixels_train", "output_table": "pixels_packed", "dependent_varname": "kind",
            "independent_varname": "image", "image_shape": [2, 2, 3], "image_format": "raw", "num_partitions": 1,
        },
        "cerebro_drop_outputs": {"output_table": "pixels_packed"},
        "cerebro_vacuum": {"older_than": "700 days"},
    }  # fmt: skip
    assert submitted(flowers, calls)[:2] == ("finished", None)
    assert flowers.value("SELECT count(*) FROM pixels_train") == 6
    assert flowers.value("SELECT to_regclass('pixels_packed')") is None
    flowers.run("DROP TABLE pixels, pixels_train, pixels_test")


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ({"cerebro_pack_columns": COLUMNS | {"source_table": "none_such"}}, "none_such"),
        ({"cerebro_pack_columns": COLUMNS | {"numbers": "cubed"}}, "cerebro_pack_columns: numbers: got"),
        ({"cerebro_pack_columns": COLUMNS | {"independent_varname": "siez"}}, "Did you mean 'size'|got 'siez'"),
        ({"cerebro_pack_columns": COLUMNS | {"max_categories": "3"}}, "max_categories: got '3'; allowed: a whole number"),
        ({"cerebro_pack_images": {"source_table": "flowers"}}, "cerebro_pack_images: output_table is missing"),
        ({"cerebro_encode": {"source_table": "flowers", "training_table": "none_such", "output_table": "e", "id_col": "id"}}, "none_such"),
        ({"cerebro_evaluate": {"model_table": "flowers", "test_table": "flowers", "output_table": "flowers"}}, "flowers exists already"),
        ({"cerebro_evaluate": {"model_table": "flowers", "test_table": "flowers", "output_table": "nowhere.x"}}, "got the schema 'nowhere'"),
        ({"cerebro_register_model": {"name": "x", "mst_key": 1}}, "cerebro_register_model: run_id is missing"),
        ({"cerebro_vacuum": {"older_than": 7}}, "older_than: got 7; allowed: a text"),
        ({"cerebro_vacumm": {}}, "Did you mean 'cerebro_vacuum'"),
        ({"cerebro_predict_row": {}}, "which changes nothing; allowed: a function that changes data"),
    ],
)  # fmt: skip
def test_mistakes_are_found_when_it_is_submitted(flowers: Any, calls: Any, told: str) -> None:
    before = flowers.value("SELECT count(*) FROM cerebro.jobs")
    with pytest.raises(psycopg2.Error) as refused:
        flowers.run(SUBMIT, (json.dumps(calls), None))
    text = f"{refused.value.diag.message_primary} {refused.value.diag.message_hint}"
    assert re.search(told, text), text
    assert flowers.value("SELECT count(*) FROM cerebro.jobs") == before


def test_a_call_and_the_record_of_it_are_one(flowers: Any) -> None:
    """A call that fails leaves nothing of itself, and its error is that of the function."""
    calls = {
        "cerebro_register_expression": {"name": "submitted_loss", "expression": "mean(square(y_true - y_pred))"},
        "cerebro_drop_model": {"name": "none_such"},
    }  # fmt: skip
    status, error, _, job_id = submitted(flowers, calls)
    assert status == "failed"
    assert "none_such" in error
    log = flowers.column("SELECT action FROM cerebro.job_log WHERE job_id = %s", (job_id,))
    assert log.count("done") == 1
    flowers.run("SELECT cerebro_unregister_function('submitted_loss')")


def test_names_are_those_of_the_session_that_submits(flowers: Any) -> None:
    flowers.run("CREATE SCHEMA garden; CREATE TABLE garden.roses AS TABLE flowers")
    flowers.run("SET search_path = garden, public, cerebro")
    try:
        calls = {
            "cerebro_pack_columns": COLUMNS
            | {"source_table": "roses", "output_table": "roses_packed"}
        }
        assert submitted(flowers, calls)[:2] == ("finished", None)
        assert flowers.value("SELECT count(*) > 0 FROM garden.roses_packed")
    finally:
        flowers.run("RESET search_path; DROP SCHEMA garden CASCADE")
