"""Ensembles: the mean of several models of a run as a registered one."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import pytest
from psycopg2 import errors

NETS = (
    "'mlp', units := 8, depth := 1",
    "'resnet', units := 8, depth := 1",
    "'tabm', units := 4, members := 3",
)
GRID = (
    "$${{'loss': ['{loss}'], 'metrics': [['{metric}']], 'loss_per_member': [True], 'optimizer_params_list': "
    "[{{'optimizer': ['Adam'], 'lr': [0.03, 0.003]}}]}}$$, $${{'batch_size': [16]}}$$"
)


def trained(db: Any, name: str, target: str, loss: str, metric: str) -> int:
    """The run of six models of three kinds of nets."""
    columns = "'a, b, c', encodings := '{\"c\": \"ids\"}', num_partitions := 2"
    db.fetch(f"SELECT cerebro_pack_columns('noisy', '{name}_packed', '{target}', {columns})")
    db.fetch(
        f"SELECT cerebro_pack_validation('noisy_val', '{name}_val', '{target}', NULL, '{name}_packed')"
    )
    for net in NETS:
        db.fetch(
            f"SELECT cerebro_load_model('{name}_nets', cerebro_tabular('{name}_packed', {net}))"
        )
    grid = GRID.format(loss=loss, metric=metric)
    db.fetch(
        f"SELECT cerebro_generate_configs('{name}_nets', '{name}_configs', ARRAY[1, 2, 3], {grid})"
    )
    return int(
        db.fetch(
            f"SELECT cerebro_fit_multiple('{name}_packed', '{name}_out', '{name}_configs', 2, validation_table := '{name}_val')"
        )[0][0]
    )


@pytest.fixture(scope="module")
def noisy(db: Any) -> Any:
    """Rows of a class and a number that three columns tell in part."""
    for table, low in (("noisy", 1), ("noisy_val", 1001)):
        db.fetch(
            f"CREATE TABLE {table} AS SELECT i AS id, sin(i * 12.9898) AS a, cos(i * 78.233) AS b, 'c' || i % 4 AS c, "
            "CASE WHEN sin(i * 12.9898) + cos(i * 78.233) * (i % 4) + sin(i * 3.7) > 0 THEN 'yes' ELSE 'no' END AS y, "
            "100 + 10 * sin(i * 12.9898) * cos(i * 78.233) + 3 * sin(i * 3.7) AS z "
            f"FROM generate_series({low}, {low + 239}) i"
        )
    return db


@pytest.fixture(scope="module")
def classes(noisy: Any) -> int:
    return trained(noisy, "yes", "y", "sparse_categorical_crossentropy", "accuracy")


@pytest.fixture(scope="module")
def numbers(noisy: Any) -> int:
    return trained(noisy, "size", "z", "mse", "mae")


def members(db: Any, name: str, version: int) -> list[tuple[int, int]]:
    rows = db.fetch(
        "SELECT lineage FROM cerebro.registered_versions WHERE name = %s AND version = %s",
        (name, version),
    )
    return [(one["mst_key"], one["count"]) for one in rows[0][0]["ensemble"]["members"]]


def predicted(db: Any, model: str, more: str = "") -> np.ndarray:
    db.fetch("DROP TABLE IF EXISTS told")
    kind = "prob" if model.startswith(("yes", "model:yes")) else "response"
    db.fetch(f"SELECT cerebro_predict('{model}', 'noisy_val', 'id', NULL, 'told', '{kind}'{more})")
    column = "prob" if kind == "prob" else "estimated"
    order = "id, class_value" if kind == "prob" else "id"
    rows = db.fetch(f"SELECT {column}::float8 FROM told ORDER BY {order}")
    return np.array([row[0] for row in rows])


def mean_of_members(db: Any, output: str, found: list[tuple[int, int]]) -> np.ndarray:
    parts = [predicted(db, output, f", mst_key := {key}") * count for key, count in found]
    return np.sum(parts, axis=0) / sum(count for _, count in found)


def test_it_predicts_the_mean_of_its_members(noisy: Any, classes: int) -> None:
    version = noisy.fetch(f"SELECT cerebro_ensemble({classes}, 'yes')")[0][0]
    found = members(noisy, "yes", version)
    assert len(found) >= 2
    assert 2 <= sum(count for _, count in found) <= 10
    ours = predicted(noisy, f"model:yes:{version}")
    np.testing.assert_allclose(ours, mean_of_members(noisy, "yes_out", found), atol=1e-6)


def test_it_is_better_than_each_of_its_members(noisy: Any, classes: int) -> None:
    version = noisy.fetch(f"SELECT cerebro_ensemble({classes}, 'yes')")[0][0]
    noisy.fetch("DROP TABLE IF EXISTS yes_scores, yes_each")
    noisy.fetch(f"SELECT cerebro_evaluate('model:yes:{version}', 'yes_val', 'yes_scores')")
    noisy.fetch("SELECT cerebro_evaluate('yes_out', 'yes_val', 'yes_each')")
    (best,) = noisy.fetch("SELECT min(loss) FROM yes_each")[0]
    assert noisy.fetch("SELECT loss FROM yes_scores")[0][0] < best


def test_numbers_have_a_mean_in_their_own_units(noisy: Any, numbers: int) -> None:
    call = f"SELECT cerebro_ensemble({numbers}, 'size', 'noisy_val', members := 6)"
    version = noisy.fetch(call)[0][0]
    found = members(noisy, "size", version)
    assert 2 <= sum(count for _, count in found) <= 6
    ours = predicted(noisy, f"model:size:{version}")
    np.testing.assert_allclose(ours, mean_of_members(noisy, "size_out", found), rtol=1e-5)


def test_it_can_be_exported_and_calibrated(noisy: Any, classes: int) -> None:
    noisy.fetch(f"SELECT cerebro_ensemble({classes}, 'yes_kept')")
    version = noisy.fetch("SELECT cerebro_calibrate('model:yes_kept', 'yes_val')")[0][0]
    assert version == 2
    before = noisy.fetch("SELECT cerebro_export('model:yes_kept:1')")[0][0]
    assert bytes(before[:2]) == b"PK"


def test_a_version_competes_for_an_alias(noisy: Any, classes: int) -> None:
    order = "SELECT mst_key FROM yes_by_key ORDER BY loss"
    noisy.fetch("SELECT cerebro_evaluate('yes_out', 'yes_val', 'yes_by_key')")
    worst = noisy.fetch(f"{order} DESC")[0][0]
    first = noisy.fetch(f"SELECT cerebro_register_model({classes}, {worst}, 'cup')")[0][0]
    call = "SELECT cerebro_promote_if_better(NULL, 'model:cup@champion', validation_table := '{}', version := {})"
    assert noisy.fetch(call.format("yes_val", first))[0][0] == first  # nobody has it
    best = noisy.fetch(order)[0][0]
    second = noisy.fetch(f"SELECT cerebro_register_model({classes}, {best}, 'cup')")[0][0]
    accuracy = dict(noisy.fetch("SELECT mst_key, metrics[1] FROM yes_by_key"))
    better = second if accuracy[best] > accuracy[worst] else None
    assert noisy.fetch(call.format("noisy_val", second))[0][0] == better
    assert noisy.fetch(call.format("yes_val", better or first))[0][0] is None  # it has it already
    assert noisy.fetch(
        "SELECT version FROM cerebro.registered_versions WHERE name = 'cup' AND 'champion' = ANY (aliases)"
    ) == [(better or first,)]


def test_a_version_that_cannot_compete(noisy: Any, classes: int) -> None:
    noisy.fetch(f"SELECT cerebro_register_model({classes}, 1, 'shut')")
    for arguments, message in (
        (f"{classes}, 'model:shut@champion', version := 1", "version: got one beside run_id"),
        (
            "NULL, 'model:shut@champion', mst_key := 1, version := 1",
            "version: got one beside mst_key",
        ),
        ("NULL, 'model:shut@champion', version := 1", "validation_table: got NULL with a version"),
    ):
        with pytest.raises(errors.InvalidParameterValue, match=message):
            noisy.fetch(f"SELECT cerebro_promote_if_better({arguments})")
    with pytest.raises(errors.UndefinedObject, match="version"):
        noisy.fetch(
            "SELECT cerebro_promote_if_better(NULL, 'model:shut@champion', validation_table := 'yes_val', version := 7)"
        )


def test_what_is_refused(noisy: Any, classes: int, numbers: int) -> None:
    for call, message in (
        (f"{classes}, 'someone.yes'", "without owner"),
        (
            f"{classes}, 'yes', metric := 'rmse'",
            "'rmse' for a target of 2 classes; allowed: 'loss', 'accuracy', 'auc'",
        ),
        (
            f"{numbers}, 'size', metric := 'auc'",
            "'auc' for a target of numbers; allowed: 'rmse', 'mae'",
        ),
        (f"{classes}, 'yes', candidates := 1", "candidates"),
        (f"{classes}, 'yes', members := 51", "members"),
    ):
        with pytest.raises(errors.InvalidParameterValue, match=message):
            noisy.fetch(f"SELECT cerebro_ensemble({call})")
    with pytest.raises(psycopg2.Error, match="run_id: got -1"):
        noisy.fetch("SELECT cerebro_ensemble(-1, 'yes')")


def test_a_run_of_one_model_has_no_ensemble(noisy: Any, classes: int) -> None:
    run_id = noisy.fetch(
        "SELECT cerebro_fit('yes_packed', 'yes_alone', 'yes_nets', 1, "
        "'loss=''sparse_categorical_crossentropy'', optimizer=''SGD''', 'batch_size=32', 1, validation_table := 'yes_val')"
    )[0][0]
    with pytest.raises(
        errors.InvalidParameterValue, match="has 1 scored model; allowed: a run of two or more"
    ):
        noisy.fetch(f"SELECT cerebro_ensemble({run_id}, 'yes')")
