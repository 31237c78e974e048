"""Event files for TensorBoard: what is in them, once, and nowhere else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cerebro_db.errors import InvalidArgument
from cerebro_db.training.events import EventsTask, value_of
from cerebro_db.training.folders import Folder
from cerebro_db.wire import decode

LOGS = {"loss": 0.5, "accuracy": 0.25, "val_loss": 0.75}


def task(epochs: Any, log_dir: str = "fit/first", mst_key: Any = 2) -> EventsTask:
    one = {"mst_key": mst_key, "log_dir": log_dir, "epochs": epochs}
    return decode(EventsTask, json.dumps({"run_id": 7, "configurations": [one]}), "task")


def values(folder: Path) -> list[tuple[int, str, float]]:
    """What TensorBoard would find."""
    import tensorflow as tf

    return [
        (event.step, value.tag, tf.make_ndarray(value.tensor).item())
        for path in sorted(folder.glob("events.out.tfevents.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]


def test_an_epoch_is_written_once(tmp_path: Path) -> None:
    from cerebro_db.training.events import series_of, write

    place = Folder.of_caller(tmp_path)
    write(place, series_of(task([[1, LOGS]])))
    folder = tmp_path / "fit/first/run_7/configuration_2"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.cerebro")}
    assert len(before) == 2
    write(place, series_of(task([[1, LOGS], [3, LOGS | {"loss": 0.125}]])))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert values(folder / "train") == [
        (1, "epoch_loss", 0.5), (1, "epoch_accuracy", 0.25),
        (3, "epoch_loss", 0.125), (3, "epoch_accuracy", 0.25),
    ]  # fmt: skip
    assert values(folder / "validation") == [(1, "epoch_loss", 0.75), (3, "epoch_loss", 0.75)]
    assert sorted(p.name for p in folder.iterdir()) == ["train", "validation"]


@pytest.mark.parametrize(
    "log_dir", ["", "..", "../x", "a/../../x", "/tmp/x", ".x", "a//b", "a/", "a\nb", "ä", "a/./b"]
)
def test_nothing_leads_out_of_the_folder(log_dir: str) -> None:
    from cerebro_db.configs.grids.parameters import parse_fit_params
    from cerebro_db.training.events import series_of

    with pytest.raises(InvalidArgument, match=r"log_dir: got .*; allowed: a relative path"):
        series_of(task([], log_dir))
    with pytest.raises(InvalidArgument, match=r"must be a relative path|not allowed"):
        parse_fit_params(f"callbacks=[TensorBoard({log_dir!r})]")


@pytest.mark.parametrize(
    "epochs", [7, [1], [[0, {}]], [[1, {"loss": "x"}]], [["1", {}]], [[1, []]]]
)
def test_tasks_are_checked(epochs: Any) -> None:

    with pytest.raises(InvalidArgument, match=r"task\.configurations\[0\]\.epochs.*: got "):
        task(epochs)
    with pytest.raises(
        InvalidArgument, match=r"configurations\[0\]\.mst_key: got .*a whole number"
    ):
        task([], mst_key="../x")


def test_numbers_that_are_not_finite_are_written(tmp_path: Path) -> None:
    from cerebro_db.training.events import series_of, write

    logs = {"loss": math.inf, "mae": math.nan, "mse": -math.inf}
    written = task([[1, {name: value_of(one) for name, one in logs.items()}]])
    write(Folder.of_caller(tmp_path), series_of(written))
    found = values(tmp_path / "fit/first/run_7/configuration_2/train")
    assert [repr(value) for _, _, value in found] == ["inf", "nan", "-inf"]
