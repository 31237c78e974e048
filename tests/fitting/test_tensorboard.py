"""TensorBoard: files where an administrator allows them, of each epoch once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.fitting.conftest import ADAM
from tests.fitting.test_callbacks import broken

Fit = Callable[..., tuple[str, int]]


@pytest.fixture
def allowed(bench: Any) -> Iterator[Path]:
    """A directory that the server may write to."""
    with tempfile.TemporaryDirectory(prefix="cerebro_events") as name:
        Path(name).chmod(0o777)
        bench.run("SELECT cerebro_set('tensorboard_dir', %s)", (name,))
        yield Path(name)
        bench.run("SELECT cerebro_set('tensorboard_dir', NULL)")


def test_each_epoch_is_written_once_however_often_a_run_breaks_off(
    bench: Any, fit: Fit, selection: Callable[..., str], allowed: Path
) -> None:
    fits = ["batch_size=8,callbacks=[TensorBoard('fit/first')]", "batch_size=8"]
    configs = selection([1], [ADAM], fits)
    with broken(bench, "metrics", "INSERT", "NEW.mst_key = 1 AND NEW.epoch = 3"):
        fit(configs=configs, epochs=3, validation_table="val", metrics_compute_frequency=1)
    with broken(bench, "runs", "UPDATE", "NEW.status = 'finished'"):
        run_id = bench.value("SELECT max(run_id) FROM cerebro.runs")
        bench.run("SELECT cerebro_resume(%s)", (run_id,))
    files = _files(allowed)
    folder = f"postgres/fit/first/run_{run_id}/configuration_1"
    assert sorted(files) == [
        f"{folder}/{part}/events.out.tfevents.{epoch:010d}.cerebro"
        for part in ("train", "validation")
        for epoch in (1, 2, 3)
    ]
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert _files(allowed) == files


def _files(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*.cerebro")
    }


def test_without_a_directory_it_is_refused_before_any_work(
    bench: Any, fit: Fit, selection: Callable[..., str]
) -> None:
    configs = selection([1], [ADAM], ["callbacks=[TensorBoard()]"])
    before = bench.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(
        psycopg2.errors.InvalidParameterValue, match="administrator has named a dir"
    ):
        fit(configs=configs)
    bench.run("SELECT cerebro_set('tensorboard_dir', '/nowhere/at/all')")
    try:
        with pytest.raises(
            psycopg2.errors.InvalidParameterValue, match="is /nowhere/at/all; allowed"
        ):
            fit(configs=configs)
    finally:
        bench.run("SELECT cerebro_set('tensorboard_dir', NULL)")
    assert bench.value("SELECT count(*) FROM cerebro.runs") == before


def test_a_file_that_cannot_be_written_does_not_stop_a_run(
    bench: Any, fit: Fit, selection: Callable[..., str], allowed: Path
) -> None:
    (allowed / "postgres").write_text("in the way")
    del bench.connection.notices[:]
    fit(configs=selection([1], [ADAM], ["callbacks=[TensorBoard()]"]), epochs=1)
    assert any("TensorBoard: cannot write to" in line for line in bench.connection.notices)
