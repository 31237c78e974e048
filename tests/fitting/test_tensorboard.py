"""TensorBoard: files below the root that a superuser has named, of each epoch once."""

from __future__ import annotations

import os
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
    """The folder of event files, in a root that belongs to the server's user."""
    with tempfile.TemporaryDirectory(prefix="cerebro_events") as name:
        data = Path(bench.value("SHOW data_directory")).stat()
        os.chown(name, data.st_uid, data.st_gid)
        bench.run("SELECT cerebro_set('files_root', %s)", (name,))
        folder = Path(name) / "tensorboard"
        folder.mkdir()
        os.chown(folder, data.st_uid, data.st_gid)
        yield folder
        bench.run(
            "DELETE FROM cerebro.catalog_settings WHERE name IN ('files_root', 'tensorboard_dir')"
        )


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
    folder = f"{_user(bench)}/fit/first/run_{run_id}/configuration_1"
    assert sorted(files) == [
        f"{folder}/{part}/events.out.tfevents.{epoch:010d}.cerebro"
        for part in ("train", "validation")
        for epoch in (1, 2, 3)
    ]
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert _files(allowed) == files


def _user(bench: Any) -> str:
    return str(bench.value("SELECT current_user"))


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
        psycopg2.errors.InvalidParameterValue, match="superuser has named the root"
    ) as refused:
        fit(configs=configs)
    assert "cerebro_set('files_root'" in str(refused.value.diag.message_hint)
    bench.run("INSERT INTO cerebro.catalog_settings VALUES ('files_root', '/nowhere/at/all')")
    try:
        with pytest.raises(
            psycopg2.errors.InvalidParameterValue, match="/nowhere No such file or directory"
        ):
            fit(configs=configs)
    finally:
        bench.run("SELECT cerebro_set('files_root', NULL)")
    assert bench.value("SELECT count(*) FROM cerebro.runs") == before


def test_an_administrator_can_switch_it_off(
    bench: Any, fit: Fit, selection: Callable[..., str], allowed: Path
) -> None:
    bench.run("SELECT cerebro_set('tensorboard_dir', '')")
    with pytest.raises(psycopg2.errors.InvalidParameterValue, match="names a folder for them"):
        fit(configs=selection([1], [ADAM], ["callbacks=[TensorBoard()]"]))


def test_a_file_that_cannot_be_written_does_not_stop_a_run(
    bench: Any, fit: Fit, selection: Callable[..., str], allowed: Path
) -> None:
    (allowed / _user(bench)).write_text("in the way")
    del bench.connection.notices[:]
    fit(configs=selection([1], [ADAM], ["callbacks=[TensorBoard()]"]), epochs=1)
    assert any("TensorBoard: cannot write to" in line for line in bench.connection.notices)


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_write_to_gets_nothing(
    bench: Any, fit: Fit, selection: Callable[..., str], allowed: Path, mode: int
) -> None:
    allowed.chmod(mode)
    del bench.connection.notices[:]
    fit(configs=selection([1], [ADAM], ["callbacks=[TensorBoard()]"]), epochs=1)
    assert _files(allowed) == {}
    assert any("may write to" in line for line in bench.connection.notices)


@pytest.mark.parametrize("place", [".", "{0}", "{0}/logs", "{0}/logs/run_{1}"])
def test_nothing_is_written_through_a_link(
    bench: Any, fit: Fit, selection: Callable[..., str], allowed: Path, place: str
) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        Path(elsewhere).chmod(0o777)
        last = bench.value("SELECT max(run_id) FROM cerebro.runs") or 0
        link = allowed / place.format(_user(bench), last + 1)
        if place == ".":
            allowed.rmdir()
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(elsewhere)
        del bench.connection.notices[:]
        fit(configs=selection([1], [ADAM], ["callbacks=[TensorBoard('logs')]"]), epochs=1)
        assert os.listdir(elsewhere) == []
    assert any("symbolic link" in line for line in bench.connection.notices)
