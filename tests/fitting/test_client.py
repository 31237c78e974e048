"""The commands ``cerebro fit`` and ``cerebro resume``: the driver is a process of its own."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gates import Gate
from pace import stretched

from tests.fitting.test_progress import until
from tests.fitting.test_resume import EPOCHS, leftovers, results

_names = (f"client_{number}" for number in itertools.count(1))
PROGRAM = Path(sys.executable).parent / "cerebro"


@pytest.fixture(scope="module")
def right(bench: Any) -> list[Any]:
    """What a run leaves whose driver is in the server."""
    run_id = bench.value(
        f"SELECT cerebro_fit_multiple('packed', 'served', 'configs', {EPOCHS}, "
        "validation_table := 'val', metrics_compute_frequency := 2, num_workers := 2)"
    )
    return results(bench, "served", run_id)


def start(bench: Any, out: str, workers: int = 1) -> subprocess.Popen[str]:
    """Train in a process."""
    arguments = ["--dsn", bench.dsn, "packed", out, "configs", str(EPOCHS), "--name", out]
    options = ["--validation-table", "val", "--metrics-compute-frequency", "2"]
    return subprocess.Popen(
        # A shell may have started the tests such that SIGINT is ignored, which is inherited.
        [
            "/usr/bin/env",
            "--default-signal=INT",
            PROGRAM,
            "fit",
            *arguments,
            *options,
            "--num-workers",
            str(workers),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_of(bench: Any, out: str, hops: int = 1) -> int:
    """The run_id, once there are some hops."""
    seen = (
        "SELECT (SELECT r.run_id FROM cerebro.runs r JOIN cerebro.hops h USING (run_id) "
        "WHERE r.name = %s GROUP BY 1 HAVING count(*) >= %s)"
    )
    return int(until(bench, seen, (out, hops)))


def resume(bench: Any, run_id: int) -> subprocess.CompletedProcess[str]:
    """Go on in a process."""
    command = [PROGRAM, "resume", "--dsn", bench.dsn, str(run_id)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=stretched(120), check=False
    )


def test_the_driver_survives_its_workers(bench: Any, gate: Gate, right: list[Any]) -> None:
    out = next(_names)
    gate.shut(hops=30)
    process = start(bench, out, workers=2)
    run_id = run_of(bench, out, hops=5)
    pids = bench.column("SELECT DISTINCT pid FROM cerebro.hops WHERE run_id = %s", (run_id,))
    assert any(bench.column("SELECT pg_terminate_backend(p) FROM unnest(%s) AS p", (pids,)))
    gate.open()
    lines, errors = process.communicate(timeout=stretched(120))
    assert (process.returncode, errors) == (0, "")
    assert f"run {run_id} lost its sessions" in lines
    assert lines.splitlines()[-1] == f"run {run_id}: finished"
    assert results(bench, out, run_id) == right


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_is_stopped_leaves_a_run_that_goes_on(
    bench: Any, gate: Gate, right: list[Any], number: signal.Signals
) -> None:
    out = next(_names)
    gate.shut(hops=30)
    process = start(bench, out)
    run_id = run_of(bench, out, hops=5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=stretched(60))
    if number is not signal.SIGKILL:
        assert process.returncode == 130
        told, hint = errors.splitlines()
        assert told == f"cerebro: run {run_id} was cancelled by its caller"
        assert f"SELECT cerebro.cerebro_resume({run_id}) goes on with it" in hint
    status = "interrupted" if number is signal.SIGKILL else "cancelled"
    until(bench, "SELECT status = %s FROM cerebro.runs WHERE run_id = %s", (status, run_id))
    gate.open()
    done = resume(bench, run_id)
    assert (done.returncode, done.stderr) == (0, "")
    assert results(bench, out, run_id) == right
    again = resume(bench, run_id)
    assert again.returncode == 1
    assert f"got {run_id}, which is finished" in again.stderr
    assert leftovers(bench) == []
