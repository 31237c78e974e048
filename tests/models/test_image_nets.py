"""Nets for images: made from what a packed table says of its rows, and loaded and trained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg2 import errors

GRID = (
    "$${'loss':['sparse_categorical_crossentropy'],'metrics':['accuracy'],'optimizer_params_list':"
    "[{'optimizer':['Adam'],'lr':[0.02]}]}$$, $${'batch_size':[12]}$$"
)
# Stripes that lie or stand, shifted by the number of the row; grey images of 6 by 7, and the same with two channels.
STRIPES = """
CREATE TABLE stripes AS
SELECT id, id % 2 AS lie, id::float8 AS place,
       (SELECT array_agg(line ORDER BY y) FROM (
            SELECT y, array_agg(((CASE id % 2 WHEN 0 THEN y ELSE x END + id) % 3 = 0)::integer::real ORDER BY x) AS line
              FROM generate_series(1, 7) x, generate_series(1, 6) y GROUP BY y) q) AS image
  FROM generate_series(1, 72) id
"""


@pytest.fixture(scope="module")
def stripes(db: Any) -> Any:
    db.fetch(STRIPES)
    db.fetch(
        "CREATE TABLE coloured AS SELECT id, lie, place, (SELECT array_agg(line ORDER BY y) FROM (SELECT y, "
        "array_agg(ARRAY[image[y][x], 1 - image[y][x]] ORDER BY x) AS line FROM generate_series(1, 7) x, "
        "generate_series(1, 6) y GROUP BY y) q) AS image FROM stripes"
    )
    db.fetch("SELECT cerebro_pack('stripes', 'grey_packed', 'lie', 'image', num_partitions := 2)")
    db.fetch("SELECT cerebro_pack('coloured', 'two_packed', 'place', 'image', num_partitions := 2)")
    db.fetch("CREATE TABLE flat AS SELECT lie, ARRAY[place] AS x FROM stripes")
    db.fetch("SELECT cerebro_pack('flat', 'flat_packed', 'lie', 'x', num_partitions := 2)")
    return db


def made(db: Any, *arguments: str) -> dict[str, dict[str, Any]]:
    """Layers of a net by name, once it has loaded for its packed table."""
    call = f"cerebro_image({', '.join(arguments)})"
    found = db.fetch(f"SELECT {call}")[0][0]
    db.fetch("DROP TABLE IF EXISTS image_nets")
    db.fetch(f"SELECT cerebro_load_model('image_nets', {call}, packed_table := {arguments[0]})")
    model = found if isinstance(found, dict) else json.loads(found)
    return {layer["config"]["name"]: layer["config"] for layer in model["config"]["layers"]}


def test_each_stage_has_twice_the_filters_and_half_the_size(stripes: Any) -> None:
    found = made(stripes, "'grey_packed'", "filters := 4", "units := 8")
    assert found["grey"]["target_shape"] == [6, 7, 1]
    filters = {name: one["filters"] for name, one in found.items() if "filters" in one}
    assert filters == {
        f"conv_{stage}_{place}": 2 ** (stage + 1) for stage in (1, 2, 3) for place in (1, 2)
    }
    assert [name for name in found if name.startswith("halved")] == ["halved_1", "halved_2"]
    assert (found["hidden"]["units"], found["dropout"]["rate"], found["outputs"]["units"]) == (
        8,
        0.2,
        2,
    )


def test_small_images_are_not_halved_away(stripes: Any) -> None:
    found = made(
        stripes,
        "'grey_packed'",
        "'resnet'",
        "filters := 2",
        "depth := 6",
        "units := 0",
        "dropout := 0",
    )
    assert [name for name in found if name.startswith("halved")] == ["halved_1", "halved_2"]
    assert [one["filters"] for name, one in found.items() if "shortcut" in name] == [
        4,
        8,
        16,
        32,
        64,
    ]
    assert not {"hidden", "dropout"} & set(found)


def test_channels_and_numbers(stripes: Any) -> None:
    found = made(stripes, "'two_packed'", "'resnet'", "filters := 2", "depth := 2")
    assert "grey" not in found
    assert found["images"]["batch_shape"] == [None, 6, 7, 2]
    assert found["outputs"]["offset"] == [36.5]


@pytest.mark.parametrize("kind", ["convnet", "resnet"])
def test_it_tells_stripes_that_lie_from_those_that_stand(stripes: Any, kind: str) -> None:
    net = f"cerebro_image('grey_packed', '{kind}', filters := 4, depth := 2, units := 0, dropout := 0)"
    stripes.fetch(f"SELECT cerebro_load_model('{kind}_nets', {net})")
    stripes.fetch(
        f"SELECT cerebro_generate_configs('{kind}_nets', '{kind}_configs', ARRAY[1], {GRID})"
    )
    run_id = stripes.fetch(
        f"SELECT cerebro_fit_multiple('grey_packed', '{kind}_out', '{kind}_configs', 12)"
    )[0][0]
    (accuracy,) = stripes.fetch(
        "SELECT training_metrics[1] FROM cerebro.leaderboard WHERE run_id = %s", (run_id,)
    )[0]
    assert accuracy > 0.95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'grey_packed', 'convent'", "kind: got 'convent'; allowed: 'convnet', 'resnet'"),
        ("'grey_packed', filters := 0", "filters: got 0"),
        ("'grey_packed', depth := 11", "depth: got 11"),
        ("'grey_packed', units := -1", "units: got -1"),
        ("'grey_packed', dropout := 1", "dropout: got 1.0"),
        ("'grey_packed', activation := 'rleu'", "activation: got 'rleu'"),
        ("'flat_packed'", r"has rows of \[1\]; allowed: one input of images"),
        ("NULL", "packed_table: got NULL"),
    ],
)
def test_wrong_arguments(stripes: Any, arguments: str, message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        stripes.fetch(f"SELECT cerebro_image({arguments})")
