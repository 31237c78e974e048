"""Rows of a fold are left out of hops, and scored apart; as if the packed table had been made without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.fields import Fields
from cerebro_db.training.folds import Fold, fold_of
from cerebro_db.training.partitions import Buffers
from tests.training.conftest import Data, net
from tests.training.conftest import hop as made


def without(data: Data, fold: Fold) -> Data:
    """The data without the rows of a fold."""
    left = Data()
    places, start = [], 0
    for buffer_id, rows in data.buffers.rows_of.items():
        places.append(start + fold.kept(buffer_id, rows))
        start += rows
    left.buffers = Buffers(data.buffers.ids, tuple(map(len, places)))
    left.features = data.features[:, np.concatenate(places)]
    left.targets = data.targets[:, np.concatenate(places)]
    return left


@pytest.mark.parametrize("count", [2, 3, 5, 17])
def test_each_row_is_held_out_once_and_folds_are_of_a_size(count: int) -> None:
    for buffer_id, rows in ((0, 20), (1, 17), (7, 100)):
        held = [Fold(number, count).held_out(buffer_id, rows) for number in range(count)]
        assert sorted(np.concatenate(held)) == list(range(rows))
        assert max(map(len, held)) - min(map(len, held)) <= 1
        for number, one in enumerate(held):
            kept = Fold(number, count).kept(buffer_id, rows)
            assert sorted([*one, *kept]) == list(range(rows))
            assert len(one) == len(range((number - buffer_id) % count, rows, count))


@pytest.mark.parametrize("fit", ["batch_size=4,epochs=2", "batch_size=5,shuffle=False"])
@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_a_hop_equals_that_over_a_table_without_the_fold(
    recipe: Callable[..., Any], data: Data, fit: str, cache_bytes: int
) -> None:
    given, fold = recipe(net(), fit_params=fit), Fold(1, 3)
    state, report = made(given, data, None, cache_bytes=cache_bytes, fold=fold)
    left = without(data, fold)
    wanted, of_left = made(given, left, None, cache_bytes=cache_bytes)
    assert state == wanted
    assert report.rows == of_left.rows == left.buffers.total * given.fit_params.epochs
    assert (report.loss, report.cached) == (of_left.loss, of_left.cached)


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_a_scan_scores_each_model_on_its_own_rows(
    recipe: Callable[..., Any], data: Data, cache_bytes: int
) -> None:
    fold = Fold(2, 3)
    kept = scanned(recipe, data, {"fold": [2, 3], "held_out": False}, cache_bytes)
    held = scanned(recipe, data, {"fold": [2, 3], "held_out": True}, cache_bytes)
    whole = scanned(recipe, data, {}, cache_bytes)
    assert kept == pytest.approx(scanned(recipe, without(data, fold), {}, cache_bytes))
    assert kept["rows"] + held["rows"] == whole["rows"] == 37
    assert kept["loss"] + held["loss"] == pytest.approx(whole["loss"])


def scanned(
    recipe: Callable[..., Any], data: Data, more: dict[str, Any], cache_bytes: int
) -> dict[str, float]:
    """Rows and the sum of losses of a scan over the first partition."""
    from cerebro_db.training.partitions import PartitionCache
    from cerebro_db.training.programs import Scorers
    from cerebro_db.training.scores.scan import Scan
    from cerebro_db.training.tasks import Architectures, ScanTask

    given = recipe(net())
    state, _ = made(given, Data(), None)
    text = {
        "mst_key": 1, "architecture": json.dumps(given.architecture), "architecture_id": given.architecture_id,
        "compile_params": "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']",
        "fit_params": "batch_size=4", "jit": False, "steps_per_call": 1,
        "targets": {"kind": "class", "num_classes": given.targets.num_classes, "shape": []},
    }  # fmt: skip
    task = ScanTask(data.buffers, (1, "training", 0), given.targets)
    scan = Scan(task, Scorers(), PartitionCache(cache_bytes), lambda: None)
    scan.add(json.dumps(text | more), state, Architectures())
    for buffer_id, piece in zip(data.buffers.ids, data.pieces(0), strict=True):
        scan.feed(buffer_id, *piece)
    answer = json.loads(scan.finish(list))
    assert answer["errors"] == {}
    partial = answer["partials"]["1"]
    return {"rows": partial["rows"], "loss": partial["loss_sum"]}


@pytest.mark.parametrize("value", [[3, 3], [0], [-1, 3], [0, 1, 2], "x", [0.5, 2], [2**31, 2**32]])
def test_what_is_no_fold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        fold_of(Fields({"fold": value}), 0)


def test_folds_take_turns_in_what_is_left_over_in_partitions() -> None:
    assert fold_of(Fields({}), 0) is None
    found = [fold_of(Fields({"fold": [0, 3]}), key) for key in range(4)]
    assert found == [Fold(0, 3), Fold(2, 3), Fold(1, 3), Fold(0, 3)]
