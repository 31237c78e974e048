"""Kinds of numbers: their features are those of scikit-learn, or of a formula."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from psycopg2 import errors
from sklearn.preprocessing import QuantileTransformer, RobustScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

ROWS = 2000


@pytest.fixture(scope="module")
def numbers(db: Any) -> Any:
    """Numbers with a heavy tail, with many zeros, few values, and two targets that depend on them."""
    db.fetch(
        "CREATE TABLE numbers AS SELECT id, (CASE WHEN id % 3 = 0 THEN -1 ELSE 1 END * "
        "exp((id * 7919 % 2003) / 250.0))::float8 AS tail, greatest(id * 31 % 97 - 40, 0) AS zeros, "
        "id * 17 % 40 AS few, 7 AS same, CASE WHEN id % 4 > 0 THEN id * 13 % 101 END AS gaps "
        f"FROM generate_series(1, {ROWS}) id"
    )
    db.fetch(
        "CREATE TABLE labelled AS SELECT n.*, CASE WHEN few < 11 OR few > 31 THEN 'in' "
        "WHEN id * 7 % 50 < few THEN 'between' ELSE 'out' END AS class, "
        "(abs(few - 17) + id % 5 / 9.0)::float8 AS height FROM numbers n"
    )
    return db


def column(db: Any, name: str, source: str = "labelled") -> np.ndarray:
    rows = db.fetch(f"SELECT {name}::float8 FROM {source} ORDER BY id")
    return np.array([np.nan if row[0] is None else row[0] for row in rows])


def encoded(db: Any, encodings: dict[str, str], target: str = "class", **more: Any) -> np.ndarray:
    """Features of the packed table in the order of the rows' ids, without these."""
    methods = {"id": "none", **encodings}
    db.fetch(
        "SELECT cerebro_pack_columns('labelled', 'p', %s, %s, encodings := %s, num_partitions := 1, replace := true)",
        (target, ", ".join(methods), json.dumps(methods)),
    )
    features = db.unpack("p", "features", target).features
    found: np.ndarray = features[np.argsort(features[:, 0])][:, 1:]
    return found


def edges(db: Any) -> np.ndarray:
    (_, recorded) = db.value("SELECT encoding FROM p_summary")["columns"]
    return np.array(recorded["edges"])


def test_robust_is_a_scaler_and_a_smooth_clip(numbers: Any) -> None:
    found = encoded(numbers, {"tail": "robust", "same": "robust", "zeros": "robust"})
    for place, name in enumerate(("tail", "same", "zeros")):
        scaled = RobustScaler().fit_transform(column(numbers, name)[:, None])[:, 0]
        np.testing.assert_allclose(
            found[:, place], scaled / np.sqrt(1 + (scaled / 3) ** 2), rtol=2e-6, atol=1e-9
        )
    assert np.abs(found).max() <= 3


def test_log1p_keeps_the_sign(numbers: Any) -> None:
    found = encoded(numbers, {"tail": "log1p"})[:, 0]
    values = column(numbers, "tail")
    logs = np.sign(values) * np.log1p(np.abs(values))
    np.testing.assert_allclose(found, (logs - logs.mean()) / logs.std(), rtol=2e-6)


@pytest.mark.parametrize("to", ["uniform", "normal"])
def test_quantiles_are_those_of_scikit_learn(numbers: Any, to: str) -> None:
    found = encoded(numbers, {"tail": f"quantile({to}, 50)", "gaps": f"quantile(100, {to})"})
    values = column(numbers, "tail")[:, None]
    wanted = QuantileTransformer(
        n_quantiles=51, output_distribution=to, subsample=None
    ).fit_transform(values)
    # Between points of the normal curve a line is drawn.
    np.testing.assert_allclose(found[:, 0], wanted[:, 0], atol=2e-7 if to == "uniform" else 0.03)
    gaps = column(numbers, "gaps")
    known = ~np.isnan(gaps)
    wanted = QuantileTransformer(n_quantiles=101, output_distribution=to, subsample=None).fit(
        gaps[known][:, None]
    )
    inner = (
        known & (gaps > 2) & (gaps < 98)
    )  # the extremes, which many rows have, are there in the middle of their share
    np.testing.assert_allclose(
        found[inner, 1], wanted.transform(gaps[inner][:, None])[:, 0], atol=0.03
    )
    middle = np.median(gaps[known])
    np.testing.assert_allclose(found[~known, 1], wanted.transform([[middle]])[0, 0], atol=0.03)
    assert np.array_equal(found[:, 2], ~known)


def ple(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The formula of the paper; nothing is beyond the bounds."""
    found = (values[:, None] - bounds[:-1]) / np.diff(bounds)
    return np.clip(found, 0, 1)


@pytest.mark.parametrize("name", ["tail", "zeros", "few"])
def test_piecewise_linear_by_quantiles(numbers: Any, name: str) -> None:
    found = encoded(numbers, {name: "ple(12)"})
    values = column(numbers, name)
    bounds = np.unique(np.quantile(values, np.linspace(0, 1, 13)))
    np.testing.assert_allclose(edges(numbers), bounds, rtol=1e-12)
    np.testing.assert_allclose(found, ple(values, bounds), atol=1e-6)


@pytest.mark.parametrize(
    ("target", "leaves", "tree"),
    [("class", 4, DecisionTreeClassifier), ("height", 6, DecisionTreeRegressor)],
)
def test_piecewise_linear_by_the_leaves_of_a_tree(
    numbers: Any, target: str, leaves: int, tree: Any
) -> None:
    """With few values every cut is looked at, so that the leaves are those of scikit-learn's tree."""
    found = encoded(numbers, {"few": f"ple({leaves}, target)"}, target)
    values = column(numbers, "few")
    wanted = [row[0] for row in numbers.fetch(f"SELECT {target} FROM labelled ORDER BY id")]
    known = tree(max_leaf_nodes=leaves, min_samples_leaf=64, random_state=0).fit(
        values[:, None], wanted
    )
    bounds = edges(numbers)
    assert len(bounds) == leaves + 1
    assert np.array_equal(np.searchsorted(bounds[1:-1], values, "right"), _leaves(known, values))
    np.testing.assert_allclose(found, ple(values, bounds), atol=1e-6)


def _leaves(tree: Any, values: np.ndarray) -> np.ndarray:
    """The leaves of the values, numbered from the left."""
    thresholds = np.sort(tree.tree_.threshold[tree.tree_.children_left >= 0])
    return np.searchsorted(thresholds, values)


def test_a_column_that_is_the_same_everywhere(numbers: Any) -> None:
    for method, wanted in (
        ("ple", [0]),
        ("ple(target)", [0]),
        ("quantile(uniform)", [0.5]),
        ("robust", [0]),
        ("log1p", [0]),
    ):
        found = encoded(numbers, {"same": method})
        assert np.array_equal(found, np.full((ROWS, 1), wanted, np.float32)), method


def test_an_indicator_of_missing_values_is_an_option(numbers: Any) -> None:
    for method in ("standardize", "robust", "ple", "quantile", "log1p", "onehot"):
        usual = encoded(numbers, {"few": method}).shape[1]
        opener = f"{method}(missing)"
        found = encoded(numbers, {"few": opener})
        assert found.shape[1] == usual + 1
        assert not found[:, -1].any()
        usual = encoded(numbers, {"gaps": method}).shape[1]
        assert encoded(numbers, {"gaps": f"{method}(no_missing)"}).shape[1] == usual - 1


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "ple(1)",
            r"got 'ple\(1\)'; allowed: ple\(bins from 2 to 256, quantiles or target, missing or no_missing\)",
        ),
        ("ple(8, 9)", "allowed: ple"),
        ("ple(bins=x)", "allowed: ple"),
        ("ple(8, tree)", "allowed: ple"),
        ("ple(8", r"got 'ple\(8'; allowed: standardize, minmax, none"),
        ("quantile(8, normal, uniform)", "allowed: quantile"),
        ("robust(3)", r"allowed: robust\(missing or no_missing\)"),
    ],
)
def test_options_that_there_are_not(numbers: Any, method: str, message: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        encoded(numbers, {"few": method})


def test_an_encoding_for_all_numbers_may_have_options(numbers: Any) -> None:
    numbers.fetch(
        "SELECT cerebro_pack_columns('labelled', 'p', 'class', 'few, tail', numbers := 'ple(4)', replace := true)"
    )
    assert numbers.value("SELECT input_shapes FROM p_summary") == [[8]]
    assert numbers.fetch("SELECT DISTINCT encoding FROM p_encoding") == [("ple(4)",)]
