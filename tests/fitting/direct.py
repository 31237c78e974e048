"""Workers of "cerebro worker" for tests of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from gates import Gate
from pace import stretched, until

from tests.fitting.conftest import ADAM, select
from tests.fitting.test_resume import results

PROGRAM = Path(sys.executable).parent / "cerebro"
# So many, and each hop so slow, that neither configuration has ended when the last driver begins.
EPOCHS = 20
SECONDS = 0.1
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


_calm: dict[str, list[Any]] = {}


@pytest.fixture(scope="module")
def calm(bench: Any) -> list[Any]:
    """What a run leaves to which nobody comes; made once for all files."""
    rates = [ADAM, ADAM.replace("0.01", "0.003")]
    select(bench, "direct", [2], rates, ["batch_size=8"])
    if bench.dsn not in _calm:
        call = f"SELECT cerebro_fit_multiple('packed', 'direct_calm', 'direct', {EPOCHS}, {GIVEN})"
        _calm[bench.dsn] = results(bench, "direct_calm", bench.value(call))
    return _calm[bench.dsn]


@pytest.fixture
def gate(gate: Gate) -> Iterator[Gate]:
    """A gate at which hops are slow until the test has it otherwise: there is time to look at each."""
    gate.slow_down(SECONDS)
    yield gate
    gate.slow_down(0)


@pytest.fixture(scope="module")
def keepers() -> Iterator[Path]:
    """The folder of the keepers of these workers, which end when it is gone."""
    folder = Path(tempfile.mkdtemp(prefix="cw-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@contextmanager
def starting(dsn: str, keepers: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers, and ends those that are left."""
    made: list[Worker] = []

    def start(run_id: int, *options: str, dsn: str = dsn) -> Worker:
        made.append(Worker(dsn, run_id, keepers, *options))
        return made[-1]

    try:
        yield start
    finally:
        for one in made:
            one.process.kill()
            one.process.communicate()


@pytest.fixture
def worker(bench: Any, keepers: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers, and ends those that are left."""
    with starting(bench.dsn, keepers) as start:
        yield start


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


def trainer_of(worker: Worker) -> int:
    """The process id of the trainer that works for a worker."""
    name = f"trainer {worker.process.pid}"
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "comm").read_text().strip() == name[:15]:
                return int(folder.name)
        except OSError:  # it has ended
            continue
    return 0


def ordered(sql: Any, run_id: int) -> Any:
    """An order that has no answer yet, of which configuration it is, and the key of its lock."""
    rows = sql.fetch(
        "SELECT o.order_id, (o.hop::json ->> 'mst_key')::int, o.fence FROM cerebro._direct_orders o "
        "LEFT JOIN cerebro._direct_answers a ON a.run_id = o.run_id AND a.order_id = o.order_id "
        "WHERE o.run_id = %s AND a.order_id IS NULL",
        (run_id,),
    )
    return rows[0] if rows else None


@contextmanager
def still(sql: Any, gate: Gate, run_id: int, one: Worker) -> Iterator[Any]:
    """An order whose trainer computes nothing meanwhile, and goes on afterwards."""
    with gate:
        until(lambda: ordered(sql, run_id))
        trainer = trainer_of(one)
        os.kill(trainer, signal.SIGSTOP)

    def same() -> Any:
        # The first one may be computed, and only be waiting at the gate.
        found = ordered(sql, run_id)
        time.sleep(0.5)
        return found and found == ordered(sql, run_id) and found

    try:
        yield until(same)
    finally:
        with suppress(ProcessLookupError):  # its keeper ends one that nobody waits for
            os.kill(trainer, signal.SIGCONT)


@contextmanager
def stuck(sql: Any, gate: Gate, run_id: int, one: Worker) -> Iterator[int]:
    """A hop whose trainer computes on and on, and is killed afterwards; the number of its configuration."""
    with still(sql, gate, run_id, one) as (_, mst_key, _):
        trainer = trainer_of(one)
        try:
            yield mst_key
        finally:
            with suppress(ProcessLookupError):
                os.kill(trainer, signal.SIGKILL)
