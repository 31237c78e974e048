"""Importance of columns, of models whose weights and so whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from psycopg2 import errors

from tests.models.conftest import OF_KIND


def explained(db: Any, arguments: str, columns: str = "column_name, importance, deviation") -> Any:
    db.fetch("DROP TABLE IF EXISTS important")
    db.fetch(f"SELECT cerebro_explain({arguments})")
    return db.fetch(f"SELECT {columns} FROM important ORDER BY rank")


@pytest.mark.parametrize("table", ["lines", "lines_packed"])
def test_columns_are_ranked_by_what_the_loss_rises(lines: Any, table: str) -> None:
    """The mean of (w x - w x')^2 over independent rows is 2 w^2 times the variance of x."""
    found = explained(lines, f"'line', '{table}', 'important', metric := 'loss', repeats := 8")
    assert [name for name, *_ in found] == ["a", "kind", "b", "c"]
    rows = lines.fetch("SELECT 3 * a, -b, kind FROM lines")
    kinds = np.var([OF_KIND[kind] for *_, kind in rows])
    variances = {"a": np.var([a for a, *_ in rows]), "b": np.var([b for _, b, _ in rows])} | {
        "kind": kinds
    }
    for name, importance, deviation in found[:3]:
        assert importance == pytest.approx(2 * variances[name], rel=0.1), name
        assert 0 < deviation < 0.2 * importance
    assert found[3][1] == pytest.approx(0, abs=1e-6)


def test_a_metric_is_measured_by_default(lines: Any) -> None:
    columns = "column_name, importance, measure, baseline, mst_key, model, version_id IS NULL"
    found = explained(lines, "'model:line', 'lines', 'important'", columns)
    assert [row[0] for row in found] == ["a", "kind", "b", "c"]
    owner = lines.value("SELECT current_user")
    for _, _, measure, baseline, *origin in found:
        assert (measure, baseline) == ("mean_absolute_error", pytest.approx(0, abs=1e-5))
        assert origin == [1, f"model:{owner}.line:1", False]
    pairs = abs(np.subtract.outer(*[[3 * a for (a,) in lines.fetch("SELECT a FROM lines")]] * 2))
    assert found[0][1] == pytest.approx(pairs.mean(), rel=0.1)


def test_a_seed_decides(lines: Any) -> None:
    one, again, other = (
        explained(lines, f"'line', 'lines_packed', 'important', seed := {seed}, repeats := 1")
        for seed in (-7, -7, 8)
    )
    assert one == again
    assert {name: value for name, value, _ in one} != {name: value for name, value, _ in other}
    assert [deviation for *_, deviation in one] == [None] * 4


def test_more_is_better_for_some_metrics(trained: Any) -> None:
    """Numbers of arrays are columns; what they lose of the accuracy is what NumPy says within its deviation."""
    trained.fetch("DROP TABLE IF EXISTS important")
    trained.fetch("SELECT cerebro_explain('halves', 'halves_packed', 'important', repeats := 20)")
    found = trained.fetch("SELECT column_name, importance, measure, baseline FROM important")
    assert sorted(name for name, *_ in found) == ["x[1]", "x[2]", "x[3]", "x[4]"]
    assert {measure for *_, measure, _ in found} == {"accuracy"}
    assert found[0][3] == trained.value("SELECT training_metrics_final FROM halves_info")
    layers = trained.fetch("SELECT cerebro_export('halves', 1, 'npz')")
    rows = np.asarray([x for (x,) in trained.fetch("SELECT x FROM rows")])
    truth = np.asarray([half for (half,) in trained.fetch("SELECT half FROM rows")])
    kernel, bias = _arrays(bytes(layers[0][0]))
    logits = rows @ kernel[:, 0] + bias[0]
    for name, importance, *_ in found:
        column = int(name[2]) - 1
        moved = np.subtract.outer(rows[:, column], rows[:, column]) * kernel[column, 0]
        right = ((logits - moved.T > 0) == truth).mean()
        assert importance == pytest.approx(((logits > 0) == truth).mean() - right, abs=0.04), name


def _arrays(file: bytes) -> list[np.ndarray]:
    import io

    with np.load(io.BytesIO(file)) as arrays:
        found = [arrays[name] for name in arrays.files if arrays[name].dtype == np.float32]
    return sorted(found, key=lambda one: -one.ndim)[:2]


BAD = {
    "'line', 'lines_packed', 'important', metric := 'mea'": (
        errors.InvalidParameterValue,
        "metric: got 'mea'; allowed: 'loss', 'mean_absolute_error'",
    ),
    "'line', 'lines_packed', 'important', repeats := 0": (
        errors.InvalidParameterValue,
        "repeats: got 0; allowed: 1 to 1000",
    ),
    "'line', 'lines_packed', 'important', mst_key := 7": (
        errors.InvalidParameterValue,
        "mst_key: got 7",
    ),
    "'line', 'nothing', 'important'": (errors.UndefinedTable, "test_table: .*nothing"),
    "'line', 'lines', 'lines'": (errors.DuplicateTable, "public.lines exists"),
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_calls_are_refused_before_work(lines: Any, arguments: str) -> None:
    kind, message = BAD[arguments]
    lines.fetch("DROP TABLE IF EXISTS important")
    before = lines.tables()
    with pytest.raises(kind, match=message):
        lines.fetch(f"SELECT cerebro_explain({arguments})")
    assert lines.tables() == before


def test_there_are_as_many_passes_as_an_hour_may_have(lines: Any) -> None:
    columns = ", ".join(f"a + {n} AS a{n}" for n in range(25))
    lines.fetch(f"CREATE TABLE wide AS SELECT y, {columns} FROM lines")
    names = ", ".join(f"a{n}" for n in range(25))
    lines.fetch(f"SELECT cerebro_pack_columns('wide', 'wide_packed', 'y', '{names}')")
    net = "cerebro_mlp(25, ARRAY[2], 1, output_activation := 'linear')"
    lines.fetch(f"SELECT cerebro_load_model('wide_nets', {net})")
    lines.fetch(
        "SELECT cerebro_fit('wide_packed', 'wide_out', 'wide_nets', 1, $$loss='mse',optimizer='SGD()'$$, "
        "'batch_size=200', 1)"
    )
    with pytest.raises(
        errors.InvalidParameterValue, match="got 801 for 25 columns; allowed: up to 800"
    ):
        lines.fetch("SELECT cerebro_explain('wide_out', 'wide', 'important', repeats := 801)")
