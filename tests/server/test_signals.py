"""The server's signals reach no thread but the main one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import Sql
from tests.server.conftest import DEEP, PLAIN, WORKERS, Caller

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("good_ends")]

SERVER_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGURG,
    signal.SIGIO,
    signal.SIGWINCH,
)


def masks(pid: int) -> dict[int, int]:
    """The signals that each thread of a process blocks, as bits."""
    return {
        int(task.name): int(_field(task / "status", "SigBlk"), 16)
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


def _field(status: Path, name: str) -> str:
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return fields[name].strip()


def assert_only_main_hears(pid: int, watcher: Sql) -> int:
    """Returns how many other threads there are."""
    of_threads = masks(pid)
    fresh = watcher.connection.info.backend_pid
    assert of_threads.pop(pid) == masks(fresh)[fresh]
    for number in SERVER_SIGNALS:
        hearing = [tid for tid, mask in of_threads.items() if not mask >> (number - 1) & 1]
        assert hearing == [], signal.Signals(number).name
    return len(of_threads)


def test_a_session_that_trains(caller: Caller, watcher: Sql) -> None:
    threads = 3
    caller.prepare(threads)
    assert assert_only_main_hears(caller.pid, watcher) > 0
    caller.hop()
    trained = assert_only_main_hears(caller.pid, watcher)
    caller.hop(net=DEEP, jit=True)
    assert assert_only_main_hears(caller.pid, watcher) >= trained >= threads


def test_a_session_that_looks_into_a_model(caller: Caller, watcher: Sql) -> None:
    caller.sql.run("SELECT cerebro._inspect_model(%s, NULL)", [PLAIN])
    assert assert_only_main_hears(caller.pid, watcher) > 0


def test_sessions_of_a_run(caller: Caller, watcher: Sql) -> None:
    caller.fit("short", validation_table="val")
    out = watcher.value("SELECT model_output_table FROM cerebro.runs ORDER BY run_id DESC LIMIT 1")
    caller.sql.run(f"SELECT cerebro_evaluate('{out}', 'val', 'scores')")
    caller.sql.run(f"SELECT cerebro_predict('{out}', 'points', 'id', 'x', 'guesses', mst_key := 1)")
    pids = [caller.pid, *watcher.column(WORKERS)]
    found = [assert_only_main_hears(pid, watcher) for pid in pids]
    assert sum(found) > 0
