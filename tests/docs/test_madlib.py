"""What users of MADlib's deep learning module find again: positions, columns, results."""

from __future__ import annotations

import pytest

from tests.docs.conftest import Documented

PAGE = "coming-from-madlib.md"
# The arguments of MADlib 2.1 in their order; those that have another name here by that one.
ARGUMENTS = {
    "cerebro_train_test_split": "source_table output_table train_proportion test_proportion "
    "grouping_cols target_cols with_replacement separate_output_tables",
    "cerebro_pack": "source_table output_table dependent_varname independent_varname buffer_size "
    "normalizing_const num_classes distribution_rules",
    "cerebro_pack_validation": "source_table output_table dependent_varname independent_varname "
    "training_table buffer_size distribution_rules",
    "cerebro_load_model": "model_arch_table model_arch model_weights name description",
    "cerebro_delete_model": "model_arch_table model_id",
    "cerebro_generate_configs": "model_arch_table model_selection_table model_id_list "
    "compile_params_grid fit_params_grid search_type num_configs random_state object_table",
    "cerebro_load_configs": "model_arch_table model_selection_table model_id_list "
    "compile_params_list fit_params_list object_table",
    "cerebro_fit_multiple": "source_table model_output_table model_selection_table num_iterations "
    "use_gpus validation_table metrics_compute_frequency warm_start name description use_caching",
    "cerebro_fit": "source_table model_output_table model_arch_table model_id compile_params "
    "fit_params num_iterations use_gpus validation_table metrics_compute_frequency warm_start name "
    "description object_table",
    "cerebro_search": "source_table model_output_table model_arch_table model_selection_table "
    "model_id_list compile_params_grid fit_params_grid automl_method automl_params random_state "
    "object_table use_gpus validation_table metrics_compute_frequency name description use_caching",
    "cerebro_evaluate": "model_table test_table output_table use_gpus mst_key",
    "cerebro_predict": "model_table test_table id_col independent_varname output_table pred_type "
    "use_gpus mst_key",
    "cerebro_predict_byom": "model_arch_table model_id test_table id_col independent_varname "
    "output_table pred_type use_gpus class_values normalizing_const dependent_count",
    "cerebro_gpu_configuration": "output_table source",
}
# The columns of MADlib's output tables, but for those that the page tells to have another name.
OF_A_MODEL = (
    "model_id compile_params fit_params model_type model_size metrics_elapsed_time metrics_type "
    "loss_type training_metrics_final training_loss_final training_metrics training_loss "
    "validation_metrics_final validation_loss_final validation_metrics validation_loss"
)
OF_A_RUN = (
    "source_table validation_table model dependent_varname independent_varname model_arch_table "
    "object_table num_iterations metrics_compute_frequency name description start_training_time "
    "end_training_time num_classes class_text_class_values dependent_vartype normalizing_const "
    "metrics_iters"
)
COLUMNS = {
    "iris_train_packed": "attributes attributes_shape class_text class_text_shape buffer_id",
    "iris_train_packed_summary": "source_table output_table dependent_varname independent_varname "
    "dependent_vartype class_text_class_values buffer_size normalizing_const num_classes "
    "distribution_rules __internal_gpu_config__",
    "model_arch_library": "model_id model_arch model_weights name description",
    "mst_table": "mst_key model_id compile_params fit_params",
    "mst_table_summary": "model_arch_table object_table",
    "iris_multi_model": "mst_key model_weights model_arch",
    "iris_multi_model_info": f"mst_key {OF_A_MODEL}",
    "iris_multi_model_summary": f"{OF_A_RUN} model_info model_selection_table warm_start",
    "hb_schedule": "s i n_i r_i",
    "automl_mst_table": "mst_key model_id compile_params fit_params",
    "automl_mst_table_summary": "model_arch_table object_table",
    "automl_output": "mst_key model_weights model_arch",
    "automl_output_info": f"mst_key {OF_A_MODEL} metrics_iters s i",
    "automl_output_summary": "source_table validation_table model model_info dependent_varname "
    "independent_varname model_arch_table model_selection_table automl_method automl_params "
    "random_state object_table use_gpus metrics_compute_frequency name description "
    "start_training_time end_training_time num_classes class_text_class_values dependent_vartype "
    "normalizing_const",
    "iris_model": "model_weights model_arch",
    "iris_model_summary": f"{OF_A_RUN} {OF_A_MODEL}",
    "iris_validate": "loss metric metrics_type loss_type",
    "iris_predict": "id class_name class_value prob rank",
    "iris_predict_byom": "id class_name class_value prob",
    "host_gpus": "hostname gpu_descr",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_have_the_places_of_madlib(documented: Documented, name: str) -> None:
    forms = documented.sql.column(
        "SELECT proargnames FROM pg_proc WHERE proname = %s "
        "AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cerebro')",
        (name,),
    )
    theirs = ARGUMENTS[name].split()
    assert forms
    assert [names[: len(theirs)] for names in forms] == [theirs] * len(forms)


@pytest.mark.parametrize("table", COLUMNS)
def test_tables_have_the_columns_of_madlib(documented: Documented, table: str) -> None:
    found = documented.sql.column(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0",
        (table,),
    )
    assert set(COLUMNS[table].split()) <= set(found)


def test_the_flowers(documented: Documented) -> None:
    """The best of 12 configurations after 10 iterations, and 30 flowers that it has not seen."""
    first, second, warm = documented.shown(PAGE, "SELECT * FROM iris_multi_model_info")
    summaries = documented.shown(PAGE, "SELECT * FROM iris_multi_model_summary")
    assert [rows[0]["num_iterations"] for rows in summaries] == [10, 10, 3]
    assert [rows[0]["metrics_iters"] for rows in summaries] == [[10], [3, 6, 9, 10], [1, 2, 3]]
    assert [len(rows) for rows in (first, second, warm)] == [12, 12, 12]
    assert all(rows[0]["training_metrics_final"] >= 0.95 for rows in (first, second, warm))
    # With a validation table training is the same, and the warm start goes on from there.
    losses = [
        {row["mst_key"]: row["training_loss_final"] for row in rows} for rows in (first, second)
    ]
    assert losses[0] == losses[1]
    assert {row["mst_key"]: row["training_loss"][0] for row in warm} != losses[1]


def test_predictions_of_the_flowers(documented: Documented) -> None:
    wrong, single, brought = (
        rows[0]["count"] for rows in documented.shown(PAGE, "SELECT COUNT(*) FROM iris_predict")
    )
    assert wrong <= 3
    assert single == brought <= 6
    predicted = documented.shown(PAGE, "SELECT * FROM iris_predict ORDER BY id, rank")[0]
    assert len(predicted) == 30 * 3
    kept = documented.shown(PAGE, "SELECT model_id, name, description, (model_weights")[0]
    assert [row["model_id"] for row in kept] == [2, 3]
    assert [row["has_model_weights"] for row in kept] == [False, True]


def test_the_schedule_of_hyperband(documented: Documented) -> None:
    (rows,) = documented.shown(PAGE, "SELECT * FROM hb_schedule")
    firsts = {row["s"]: (row["n_i"], row["r_i"]) for row in rows if row["i"] == 0}
    assert firsts == {4: (81, 1), 3: (34, 3), 2: (15, 9), 1: (8, 27), 0: (5, 81)}
    assert len(rows) == 15


def test_what_searches_find_of_the_flowers(documented: Documented, has_segments: bool) -> None:
    hyperband, hyperopt = documented.shown(PAGE, "SELECT * FROM automl_output_info")
    # Of 30 flowers; which of the rows train first is chance on segments.
    least = 0.9 if has_segments else 0.95
    assert all(rows[0]["validation_metrics_final"] >= least for rows in (hyperband, hyperopt))
    assert [len(rows) for rows in (hyperband, hyperopt)] == [3, 3]
    # The best was trained as long as any: by the schedule of R=9, or for all 10 iterations.
    assert {row["s"] for row in hyperband} <= {0, 1, 2}
    assert all(row["metrics_iters"] == list(range(1, row["model_epoch"] + 1)) for row in hyperband)
    assert all(row["model_epoch"] == 10 and row["s"] is None for row in hyperopt)
    summaries = documented.shown(PAGE, "SELECT * FROM automl_output_summary")
    assert [rows[0]["automl_method"] for rows in summaries] == ["hyperband", "hyperopt"]
    assert summaries[0][0]["automl_params"] == "R=9, eta=3, skip_last=0"
    (chosen,) = documented.shown(PAGE, "SELECT * FROM automl_mst_table")
    assert len(chosen) == 1
    assert documented.sql.value("SELECT count(*) FROM automl_output_info") == 20
