"""Nets for tables: made from what a packed table says of its columns, and loaded, trained and predicted with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from psycopg2 import errors

GRID = "$${'loss':['%s'],'optimizer_params_list':[{'optimizer':['Adam'],'lr':[0.01]}]}$$, $${'batch_size':[32]}$$"


@pytest.fixture(scope="module")
def trips(db: Any) -> Any:
    """A packed table of numbers and ids, whose class is decided by both, and one with two targets."""
    db.fetch(
        "CREATE TABLE trips AS SELECT i AS id, 'town ' || i % 40 AS town, 'way ' || i % 3 AS way, "
        "(i % 7)::float8 AS km, CASE WHEN (i % 40 < 20) = (i % 7 < 4) THEN 'late' ELSE 'early' END AS came, "
        "(i % 5)::float8 AS cost FROM generate_series(1, 840) AS i"
    )
    encodings = """'{"town": "ids", "way": "ids", "km": "standardize"}'"""
    columns = f"'town, way, km', encodings := {encodings}, num_partitions := 2"
    db.fetch(f"SELECT cerebro_pack_columns('trips', 'trips_packed', 'came', {columns})")
    db.fetch(
        "CREATE TABLE arrays AS SELECT i % 2 AS y, i::float8 AS cost, ARRAY[[i, 1], [2, 3]]::real[] AS x "
        "FROM generate_series(1, 20) i"
    )
    db.fetch("SELECT cerebro_pack('arrays', 'costs_packed', 'y, cost', 'x', num_partitions := 2)")
    db.fetch(
        "CREATE TABLE long AS SELECT i % 2 AS y, array_fill(i::real, ARRAY[201]) AS x FROM generate_series(1, 20) i"
    )
    db.fetch("SELECT cerebro_pack('long', 'long_packed', 'y', 'x', num_partitions := 2)")
    return db


def made(db: Any, table: str, *more: str) -> dict[str, Any]:
    """The JSON of a net, and that it loads for its packed table."""
    call = f"cerebro_tabular({', '.join([repr(table), *more])})"
    found = db.fetch(f"SELECT {call}")[0][0]
    db.fetch("DROP TABLE IF EXISTS loaded_nets")
    db.fetch(f"SELECT cerebro_load_model('loaded_nets', {call}, packed_table := '{table}')")
    return found if isinstance(found, dict) else json.loads(found)


def layers(model: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {layer["config"]["name"]: layer["config"] for layer in model["config"]["layers"]}


def test_ids_of_all_columns_share_an_embedding_and_none_of_its_rows(trips: Any) -> None:
    found = layers(made(trips, "trips_packed", "embedding := 3"))
    inputs = trips.fetch("SELECT input_columns FROM trips_packed_summary")[0][0]
    counts = [column["ids"] for columns in inputs for column in columns if column["ids"]]
    assert counts == [42, 5]  # the categories, missing values, and what is none of them
    (starts,) = [one["offset"] for one in found.values() if "offset" in one]
    (embedding,) = [one for one in found.values() if "input_dim" in one]
    assert starts == [0, 42]
    assert (embedding["input_dim"], embedding["output_dim"]) == (47, 3)


@pytest.mark.parametrize(
    ("more", "dense"),
    [
        ((), [("hidden_1", 256), ("hidden_2", 256), ("outputs", 2)]),
        (("units := 8", "depth := 1"), [("hidden_1", 8), ("outputs", 2)]),
        (("depth := 0",), [("outputs", 2)]),
        (
            ("'resnet'", "units := 8", "depth := 1"),
            [("first", 8), ("widened_1", 16), ("narrowed_1", 8), ("outputs", 2)],
        ),
    ],
)
def test_sizes_are_those_that_are_named(trips: Any, more: Any, dense: Any) -> None:
    found = layers(made(trips, "trips_packed", *more))
    assert [(name, one["units"]) for name, one in found.items() if "units" in one] == dense


def test_each_target_has_an_output_and_arrays_are_rows(trips: Any) -> None:
    found = layers(made(trips, "costs_packed", "'resnet'"))
    ends = {
        name: (one["units"], one["activation"])
        for name, one in found.items()
        if "outputs" in name and "units" in one
    }
    assert ends == {"outputs_1": (2, "softmax"), "outputs_2_raw": (1, "linear")}
    assert "features_flat" in found


@pytest.mark.parametrize("kind", ["mlp", "tabm"])
def test_numbers_are_predicted_in_their_own_units(db: Any, kind: str) -> None:
    """Mean and deviation of the target, with numbers so large that sums of squares would lose them."""
    db.fetch("DROP TABLE IF EXISTS large")
    db.fetch(
        "CREATE TABLE large AS SELECT ARRAY[i]::real[] AS x, "
        "(1000000 + i % 5 * 100)::float8 AS y, 3::float8 AS same, (i % 4)::float8 AS w FROM generate_series(1, 200) i"
    )
    db.fetch(
        f"SELECT cerebro_pack('large', 'large_{kind}', 'y, same', 'x', num_partitions := 3, "
        "buffer_size := 11, sample_weight := 'w')"
    )
    found = layers(made(db, f"large_{kind}", f"'{kind}'"))
    ends = [(one["scale"], one["offset"]) for one in found.values() if "scale" in one]
    deviation = float(np.std([i % 5 * 100 for i in range(200)]))
    assert ends == [
        ([pytest.approx(deviation, rel=1e-5)], [pytest.approx(1000200, rel=1e-6)]),
        ([1.0], [3.0]),
    ]


def test_each_column_has_a_token_and_each_two_a_product(trips: Any) -> None:
    found = layers(made(trips, "trips_packed", "'pnn'", "embedding := 3", "units := 8"))
    assert found["ids_of_all_embedded_unstacked"]["num"] == 2
    assert found["token_3"]["units"] == 3  # of km, beside the two towns and ways
    assert found["products"]["subscripts"] == "bid,bjd->bij"
    assert found["hidden_1"]["units"] == 8


def test_a_token_is_made_of_all_numbers_of_its_column(trips: Any) -> None:
    trips.fetch(
        "SELECT cerebro_pack_columns('trips', 'wide_packed', 'came', 'town, km, cost', "
        """encodings := '{"town": "onehot", "km": "ple(4)", "cost": "standardize"}', num_partitions := 2)"""
    )
    found = layers(made(trips, "wide_packed", "'transformer'", "units := 12", "depth := 2"))
    assert found["features_split"]["indices_or_sections"] == [40, 44]
    assert [found[f"token_{place}"]["units"] for place in (1, 2, 3)] == [12, 12, 12]
    attention = found["attention_2"]
    assert (attention["num_heads"], attention["key_dim"], attention["dropout"]) == (4, 3, 0.1)


def test_numbers_of_an_array_are_columns(db: Any) -> None:
    db.fetch(
        "CREATE TABLE lists AS SELECT i % 2 AS y, ARRAY[i, 1, 2]::real[] AS x FROM generate_series(1, 20) i"
    )
    db.fetch("SELECT cerebro_pack('lists', 'lists_packed', 'y', 'x', num_partitions := 2)")
    found = layers(made(db, "lists_packed", "'pnn'"))
    assert found["features_split"]["indices_or_sections"] == [1, 2]


@pytest.mark.parametrize("kind", ["mlp", "resnet", "tabm", "pnn", "transformer"])
def test_it_learns_what_numbers_and_ids_decide_together(trips: Any, kind: str) -> None:
    net = f"cerebro_tabular('trips_packed', '{kind}', units := 32, depth := 1, dropout := 0)"
    trips.fetch(f"DROP TABLE IF EXISTS {kind}_nets, {kind}_configs, {kind}_configs_summary")
    trips.fetch(f"SELECT cerebro_load_model('{kind}_nets', {net})")
    grid = GRID % "sparse_categorical_crossentropy"
    if kind == "tabm":
        grid = grid.replace("{'loss'", "{'loss_per_member': [True], 'loss'")
    trips.fetch(
        f"SELECT cerebro_generate_configs('{kind}_nets', '{kind}_configs', ARRAY[1], {grid})"
    )
    trips.fetch(f"SELECT cerebro_fit_multiple('trips_packed', '{kind}_out', '{kind}_configs', 12)")
    trips.fetch(
        f"SELECT cerebro_predict('{kind}_out', 'trips', 'id', NULL, '{kind}_predicted', 'response', mst_key := 1)"
    )
    right = (
        f"SELECT avg((p.class_value = t.came)::int) FROM {kind}_predicted p JOIN trips t USING (id)"
    )
    assert trips.fetch(right)[0][0] > 0.97


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "'trips_packed', 'mpl'",
            "kind: got 'mpl'; allowed: 'mlp', 'resnet', 'tabm', 'pnn', 'transformer'",
        ),
        ("'costs_packed', 'transformer'", r"compares columns, for rows of the shape \[2, 2\]"),
        ("'long_packed', 'pnn'", "for more than 200 columns"),
        ("'trips_packed', units := 0", "units: got 0"),
        ("'trips_packed', depth := -1", "depth: got -1"),
        ("'trips_packed', dropout := 1", "dropout: got 1.0"),
        ("'trips_packed', embedding := 5000", "embedding: got 5000"),
        ("'trips_packed', members := 0", "members: got 0"),
        ("'trips_packed', activation := 'rleu'", "activation: got 'rleu'"),
        ("NULL", "packed_table: got NULL"),
    ],
)
def test_wrong_arguments(trips: Any, arguments: str, message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        trips.fetch(f"SELECT cerebro_tabular({arguments})")


def test_a_table_that_is_not_packed(trips: Any) -> None:
    with pytest.raises(errors.WrongObjectType, match="packed_table"):
        trips.fetch("SELECT cerebro_tabular('trips')")
