"""Workers that join a run by "cerebro worker": the same bits, whoever makes a hop, and whoever dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import stretched, until
from reasons import EMBEDDED_ONLY

from tests.fitting.conftest import ADAM, select
from tests.fitting.test_progress import Background
from tests.fitting.test_resume import results

PROGRAM = Path(sys.executable).parent / "cerebro"
pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)
EPOCHS = 10
GIVEN = "validation_table := 'val', metrics_compute_frequency := 2, num_workers := 1"


class Worker:
    """A process of ``cerebro worker``."""

    def __init__(self, dsn: str, run_id: int, folder: Path, *options: str) -> None:
        command = [PROGRAM, "worker", "--dsn", dsn, "--run", str(run_id)]
        command += ["--keeper-directory", str(folder), "--idle-seconds", "60", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ended(self) -> tuple[int, str, str]:
        """Its exit code and what it has told."""
        told, errors = self.process.communicate(timeout=stretched(60))
        return self.process.returncode, told, errors


@pytest.fixture(scope="module")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the keepers of these workers, which end when it is gone."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="cw-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def worker(bench: Any, keepers: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers, and ends those that are left."""
    made: list[Worker] = []

    def start(run_id: int, *options: str, dsn: str = "") -> Worker:
        made.append(Worker(dsn or bench.dsn, run_id, keepers, *options))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.communicate()


@pytest.fixture(scope="module")
def calm(bench: Any) -> list[Any]:
    """What a run leaves to which nobody comes."""
    select(bench, "direct", [2], [ADAM, ADAM.replace("0.01", "0.003")], ["batch_size=1, epochs=20"])
    run_id = bench.value(
        f"SELECT cerebro_fit_multiple('packed', 'direct_calm', 'direct', {EPOCHS}, {GIVEN})"
    )
    return results(bench, "direct_calm", run_id)


def paused(bench: Any, out: str, more: str = "") -> int:
    """A run that has begun, and waits."""
    call = f"SELECT cerebro_fit_multiple('packed', '{out}', 'direct', {EPOCHS}, {GIVEN}{more}, max_seconds := 0.2)"
    return int(bench.value(call))


def hops_of(bench: Any, run_id: int) -> list[int]:
    """How many hops each direct worker has made."""
    sql = "SELECT hops FROM cerebro.direct_workers WHERE run_id = %s ORDER BY joined"
    return [int(hops) for hops in bench.column(sql, (run_id,))]


def status(bench: Any, run_id: int) -> list[str]:
    """How the direct workers of a run stand."""
    sql = "SELECT status FROM cerebro.direct_workers WHERE run_id = %s ORDER BY joined"
    return [str(one) for one in bench.column(sql, (run_id,))]


def test_workers_come_die_and_leave_and_nothing_else_changes(
    bench: Any, calm: list[Any], worker: Callable[..., Worker]
) -> None:
    run_id = paused(bench, "direct_out")
    first = worker(run_id)
    until(lambda: status(bench, run_id) == ["joining"])
    caller = Background(bench.dsn, "SELECT cerebro_resume(%s)", (run_id,))
    until(lambda: hops_of(bench, run_id)[0] >= 3)
    ordered = "SELECT count(*) FROM cerebro._direct_orders WHERE run_id = %s AND answer IS NULL"
    until(lambda: bench.value(ordered, (run_id,)))
    first.process.send_signal(signal.SIGKILL)
    second = worker(run_id)
    until(lambda: hops_of(bench, run_id)[1:] > [3])
    second.process.send_signal(signal.SIGTERM)
    code, told, errors = second.ended()
    assert (code, errors) == (0, "")
    assert "it was asked to leave" in told
    caller.join()
    assert results(bench, "direct_out", run_id) == calm
    assert status(bench, run_id) == ["left", "left"]
    reasons = "SELECT reason FROM cerebro.direct_workers WHERE run_id = %s ORDER BY joined"
    assert bench.column(reasons, (run_id,)) == ["its session has ended", "it was asked to leave"]
    made = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND worker > 0"
    assert bench.value(made, (run_id,)) == sum(hops_of(bench, run_id)) > 6
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    for table in ("workers", "orders"):
        assert bench.value(f"SELECT count(*) FROM cerebro.catalog_direct_{table}") == 0
