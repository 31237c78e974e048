"""Ids for embeddings and averages of the target: any number of categories, rare ones together, training rows by folds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from psycopg2 import errors
from sklearn.preprocessing import TargetEncoder

ROWS = 600


@pytest.fixture(scope="module")
def towns(db: Any) -> Any:
    """Some towns with many rows, others with one; some missing; targets of two classes, three classes, and a number."""
    db.fetch(
        "CREATE TABLE towns AS SELECT id, CASE WHEN id % 10 = 0 THEN NULL WHEN id % 11 = 0 THEN 'lonely ' || id "
        "ELSE 'town ' || id * id % 97 END AS town, id % 3 AS third, "
        "CASE WHEN id * id % 97 < 40 OR id % 13 = 0 THEN 'yes' ELSE 'no' END AS answer, "
        "(id * id % 97 / 10.0 + id % 7)::float8 AS amount, ARRAY[id, 1]::real[] AS pair "
        f"FROM generate_series(1, {ROWS}) id"
    )
    return db


def packed(db: Any, methods: dict[str, str], target: str = "answer", **more: str) -> None:
    listed = "".join(f", {name} := {value}" for name, value in more.items())
    methods = {"id": "none", **methods}
    db.fetch(
        f"SELECT cerebro_pack_columns('towns', 'p', %s, %s, encodings := %s, replace := true{listed})",
        (target, ", ".join(methods), json.dumps(methods)),
    )


def inputs(db: Any, target: str = "answer", table: str = "p") -> list[np.ndarray]:
    """Features of each input in the order of the rows' ids."""
    names = db.value(f"SELECT independent_varname FROM {table}_summary")
    found = [db.unpack(table, name, target).features for name in names]
    order = np.argsort(found[0][:, 0])
    return [one[order] for one in found]


def column(db: Any, name: str) -> list[Any]:
    return [row[0] for row in db.fetch(f"SELECT {name} FROM towns ORDER BY id")]


def test_ids_are_an_input_of_their_own(towns: Any) -> None:
    packed(towns, {"town": "ids", "third": "ids(1)", "amount": "robust"})
    features, ids = inputs(towns)
    assert (features.shape[1], ids.shape[1]) == (2, 2)
    found = column(towns, "town")
    kept = sorted({town for town in found if town and found.count(town) >= 2})
    codes = {town: place + 2 for place, town in enumerate(kept)}
    assert list(ids[:, 0]) == [0 if town is None else codes.get(town, 1) for town in found]
    assert list(ids[:, 1]) == [2 + third for third in column(towns, "third")]
    assert any(town not in codes for town in found if town)
    assert towns.value("SELECT input_columns FROM p_summary") == [
        [
            {"column": "id", "encoding": "none", "first": 0, "width": 1, "ids": 0, "has_missing": False},
            {"column": "amount", "encoding": "robust", "first": 1, "width": 1, "ids": 0, "has_missing": False},
        ],
        [
            {"column": "town", "encoding": "ids", "first": 0, "width": 1, "ids": len(kept) + 2, "has_missing": True},
            {"column": "third", "encoding": "ids(1)", "first": 1, "width": 1, "ids": 5, "has_missing": False},
        ],
    ]  # fmt: skip
    rows = towns.fetch(
        "SELECT input, position, category, code FROM p_encoding WHERE column_name = 'third' ORDER BY code"
    )
    assert rows == [
        ("ids", 2, None, 0), ("ids", 2, None, 1), ("ids", 2, "0", 2), ("ids", 2, "1", 3), ("ids", 2, "2", 4),
    ]  # fmt: skip


def test_there_is_no_limit_of_categories(towns: Any) -> None:
    towns.fetch(
        "CREATE TABLE crowd AS SELECT id, 'é\"''\\ %' || id % 12000 AS name, id % 2 AS y FROM generate_series(1, 30000) id"
    )
    towns.fetch("SELECT cerebro_pack_columns('crowd', 'c', 'y', 'name', categories := 'ids(3)')")
    ids = towns.unpack("c", "ids", "y").features[:, 0]
    counts = np.bincount(ids.astype(int))
    # 6,000 names have three rows, all others two.
    assert counts[0] == 0
    assert counts[1] == 12000
    assert np.array_equal(counts[2:], np.full(6000, 3))


def test_a_column_of_rare_values_is_one_id_and_reported(towns: Any) -> None:
    towns.connection.notices.clear()
    packed(towns, {"amount": "none", "town": "ids(500)"})
    notices = "".join(towns.connection.notices)
    assert "column 'town' is other in most rows: if they name rows, exclude them" in notices
    assert set(inputs(towns)[1][:, 0]) == {0, 1}


@pytest.mark.parametrize("target", ["answer", "third", "amount"])
def test_averages_of_the_target_are_those_of_scikit_learn(towns: Any, target: str) -> None:
    """Those of rows that are no training rows, in the unit of the target."""
    packed(towns, {"town": "target(4, 10)"}, target)
    towns.fetch(
        f"SELECT cerebro_pack_columns('towns', 'again', '{target}', NULL, encoding_of := 'p', replace := true)"
    )
    found = inputs(towns, target, "again")[0][:, 1:]
    values = column(towns, target)
    kinds = np.array(["" if one is None else one for one in column(towns, "town")])
    names, counts = np.unique(kinds, return_counts=True)
    kinds = np.where(np.isin(kinds, names[counts < 2]), "rare", kinds)[:, None]
    encoder = TargetEncoder(
        smooth=10,
        target_type={"answer": "binary", "third": "multiclass", "amount": "continuous"}[target],
    )
    wanted = encoder.fit(kinds, values).transform(kinds)
    numbers = {
        "answer": lambda: np.array(values)[:, None] == "yes",
        "third": lambda: np.array(values)[:, None] == np.arange(3),
        "amount": lambda: np.array(values)[:, None],
    }[target]().astype(float)
    np.testing.assert_allclose(
        found, (wanted - numbers.mean(0)) / numbers.std(0), rtol=1e-5, atol=1e-6
    )


def test_training_rows_do_not_know_their_own_target(towns: Any) -> None:
    """Each gets the average of the rows outside of its fold: of a town with one row per target none is left."""
    packed(towns, {"town": "target(5, 0)"}, "amount")
    own = inputs(towns, "amount")[0][:, 1]
    amounts = np.array(column(towns, "amount"))
    names = np.array(["" if one is None else one for one in column(towns, "town")])
    kinds, counts = np.unique(names, return_counts=True)
    names = np.where(np.isin(names, kinds[counts < 2]), "rare", names)
    scaled = (amounts - amounts.mean()) / amounts.std()
    for name in set(names):
        rows = np.flatnonzero(names == name)
        # Rows of a fold have the same average, which is that of the rows with another one.
        for average in set(own[rows]):
            inside = rows[own[rows] == average]
            outside = rows[own[rows] != average]
            if len(outside) and len(set(own[rows])) == 5:
                np.testing.assert_allclose(average, scaled[outside].mean(), atol=1e-5)
                assert len(inside) < len(rows)
    packed(towns, {"town": "target(5, 0)"}, "amount")
    assert np.array_equal(own, inputs(towns, "amount")[0][:, 1])


def test_the_target_has_to_be_a_number_or_a_class(towns: Any) -> None:
    for method in ("target", "ple(target)"):
        name = "town" if method == "target" else "amount"
        with pytest.raises(
            errors.InvalidParameterValue, match=f"column '{name}': got an encoding that depends"
        ):
            packed(towns, {name: method}, "pair")


def test_a_row_is_predicted_with_the_features_of_all_inputs(towns: Any) -> None:
    """By a function of the row, whose features are those of one input after another."""
    from tests.networks import side_by_side

    packed(towns, {"town": "ids", "third": "ids"}, "amount")
    towns.fetch("SELECT cerebro_load_model('nets', %s)", (side_by_side(1, 2),))
    towns.fetch(
        "SELECT cerebro_fit('p', 'm', 'nets', 1, 'loss=''mse'',optimizer=''SGD(1e-9)''', 'batch_size=64', 1)"
    )
    towns.fetch("SELECT cerebro_create_encoder('towns', 'm', 'features_of')")
    towns.fetch("SELECT cerebro_predict('m', 'towns', 'id', NULL, 'guesses', 'response')")
    found = towns.fetch("SELECT id, estimated FROM guesses WHERE id < 10 ORDER BY id")
    features = "features_of((SELECT t FROM towns t WHERE id = %s))"
    one = [estimated for _, estimated in found]
    other = [
        towns.value(f"SELECT estimated[1] FROM cerebro_predict_row('m', {features})", [row_id])
        for row_id, _ in found
    ]
    assert len(other) > 5
    np.testing.assert_allclose(one, other, rtol=1e-5)
    with pytest.raises(
        errors.InvalidParameterValue, match=r"got 2 elements .* one after another, 1 \+ 2"
    ):
        towns.fetch("SELECT cerebro_predict_row('m', ARRAY[1, 2])")
    towns.fetch("SELECT cerebro_evaluate('m', 'towns', 'scores')")
    assert towns.value("SELECT count(*) FROM scores") == 1
