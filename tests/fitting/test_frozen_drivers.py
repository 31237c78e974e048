"""A driver that is frozen in the middle of a run: a cancel ends the call, and the run goes on to the same bits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from gates import Gate
from pace import joined, stretched, until
from servers import connected

from cerebro_db.install.embedded import Cluster
from cerebro_db.relay.keepers import DRIVER_SECONDS
from tests.conftest import Sql

SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cerebro worker' "
    "AND datname = current_database()"
)
COMPILE = (
    "{'loss': ['sparse_categorical_crossentropy'], 'metrics': ['accuracy'], 'optimizer_params_list': "
    "[{'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']}]}"
)
SEARCH = (
    "SELECT cerebro_search('packed', %s, 'models', NULL, ARRAY[1, 2], "
    f"$${COMPILE}$$, $${{'batch_size': [8]}}$$, 'asha', 'num_configs=6, R=9, eta=3', name := %s, "
    "validation_table := 'val')"
)
FIT = "SELECT cerebro_fit_multiple('packed', %s, 'configs', 12, name := %s)"


class Call:
    """A statement in a session of its own, and its driver."""

    def __init__(self, dsn: str, query: str, name: str) -> None:
        self.sql = Sql(connected(dsn), dsn)
        self.pid = self.sql.connection.info.backend_pid
        self.error: psycopg2.Error | None = None
        self._thread = threading.Thread(target=self._run, args=(query, name), daemon=True)
        self._thread.start()

    def _run(self, query: str, name: str) -> None:
        try:
            self.sql.run(query, (name, name))
        except psycopg2.Error as error:
            self.error = error

    def ended(self, seconds: float) -> float:
        """Wait for its end; the seconds that it took."""
        began = time.monotonic()
        joined(self._thread, seconds)
        return time.monotonic() - began

    @property
    def drivers(self) -> list[int]:
        """Its drivers that live."""
        return [int(one.parent.name) for one in Path("/proc").glob("[0-9]*/comm") if self._is(one)]

    def _is(self, comm: Path) -> bool:
        with suppress(OSError):
            return comm.read_text().strip() == f"driver {self.pid}"[:15]
        return False


@pytest.fixture
def frozen(bench: Any, cluster: Any, gate: Gate) -> Iterator[Callable[[str, str], Call]]:
    """Begins a run and freezes its driver after some hops."""
    if not isinstance(cluster, Cluster):
        pytest.skip("processes of a server elsewhere cannot be frozen")
    made: list[Call] = []

    def begin(query: str, name: str) -> Call:
        gate.shut(hops=3)
        made.append(Call(bench.dsn, query, name))
        until(lambda: bench.value(HOPS, (name,)) >= 3)
        (driver,) = made[-1].drivers
        os.kill(driver, signal.SIGSTOP)
        return made[-1]

    yield begin
    for call in made:
        for driver in call.drivers:
            os.kill(driver, signal.SIGKILL)
        call.sql.connection.close()


HOPS = "SELECT count(*) FROM cerebro.hops JOIN cerebro.runs USING (run_id) WHERE name = %s"


def outcome(bench: Any, name: str) -> list[Any]:
    """The models and the measures that a run has left."""
    run_id = bench.value("SELECT run_id FROM cerebro.runs WHERE name = %s", (name,))
    measures = "SELECT mst_key, epoch, dataset, loss FROM cerebro.metrics WHERE run_id = %s"
    return [
        bench.fetch(f"SELECT mst_key, md5(model_weights) FROM {name} ORDER BY 1"),
        bench.fetch(f"{measures} ORDER BY 1, 2, 3", (run_id,)),
    ]


@pytest.mark.parametrize(("kind", "query"), [("search", SEARCH), ("fit", FIT)])
def test_a_cancel_ends_the_call_and_the_run_goes_on(
    bench: Any, frozen: Callable[[str, str], Call], gate: Gate, kind: str, query: str
) -> None:
    calm, stormy = f"frozen_{kind}_calm", f"frozen_{kind}"
    bench.run(query, (calm, calm))
    call = frozen(query, stormy)
    bench.run("SELECT pg_cancel_backend(%s)", (call.pid,))
    call.ended(DRIVER_SECONDS + 1)
    run_id, status = bench.row("SELECT run_id, status FROM cerebro.runs WHERE name = %s", (stormy,))
    assert isinstance(call.error, psycopg2.errors.QueryCanceled)
    assert f"cerebro_resume({run_id})" in str(call.error)
    assert call.drivers == []
    until(lambda: bench.value(SESSIONS) == 0, 2)
    assert status == "interrupted"
    gate.open()
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert outcome(bench, stormy) == outcome(bench, calm)


@pytest.fixture(scope="module")
def calm_job(bench: Any) -> list[Any]:
    """What a run leaves whose driver nothing stops."""
    bench.run(FIT, ("frozen_calm_job", "frozen_calm_job"))
    return outcome(bench, "frozen_calm_job")


@pytest.mark.parametrize("what", ["cerebro_cancel", "cerebro_pause", "cerebro_cancel_job"])
def test_a_job_is_cancelled_whatever_its_driver_does(
    bench: Any, cluster: Any, gate: Gate, calm_job: list[Any], what: str
) -> None:
    if not isinstance(cluster, Cluster):
        pytest.skip("processes of a server elsewhere cannot be frozen")
    name = f"frozen_{what}"
    gate.shut(hops=3)
    run_id = bench.value(f"{FIT[:-1]}, wait := false)", (name, name))
    until(lambda: bench.value(HOPS, (name,)) >= 3)
    job_id, key = bench.row(
        "SELECT job_id, lock_key FROM cerebro.jobs JOIN cerebro.catalog_jobs USING (job_id) WHERE run_id = %s",
        (run_id,),
    )
    driver = driver_of(job_id, key)
    os.kill(driver, signal.SIGSTOP)
    began = time.monotonic()
    status = bench.value(f"SELECT {what}(%s)", (job_id if what.endswith("job") else run_id,))
    assert time.monotonic() - began < stretched(5)
    wanted = "paused" if what == "cerebro_pause" else "cancelled"
    assert status == wanted
    stands = "SELECT j.status, r.status FROM cerebro.jobs j JOIN cerebro.runs r USING (run_id) WHERE job_id = %s"
    assert bench.row(stands, (job_id,)) == (wanted, wanted)
    until(lambda: not Path(f"/proc/{driver}").exists() and bench.value(SESSIONS) == 0, 5)
    gate.open()
    bench.run("SELECT cerebro_resume(%s)", (run_id,))
    assert outcome(bench, name) == calm_job


def driver_of(job_id: int, lock_key: int) -> int:
    """The process that drives a job, by the file that it holds where it works."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            file = comm.parent / "cwd" / f"job-{job_id}-{lock_key % 2**64:016x}.pid"
            if file.read_text() == comm.parent.name:
                return int(comm.parent.name)
    raise AssertionError("no such driver")


def test_a_terminate_ends_it_at_once(bench: Any, frozen: Callable[[str, str], Call]) -> None:
    call = frozen(FIT, "frozen_terminated")
    bench.run("SELECT pg_terminate_backend(%s)", (call.pid,))
    assert call.ended(1) < stretched(1)
    until(lambda: not call.drivers and bench.value(SESSIONS) == 0, DRIVER_SECONDS + 1.5)
    bench.run("SELECT cerebro_drop_run(run_id) FROM cerebro.runs WHERE name = 'frozen_terminated'")


def test_very_many_configurations_are_begun_lazily_and_stopped_by_a_timeout(bench: Any) -> None:
    name = "very_many"
    limit = stretched(5)  # until the run is there, on a machine that is busy
    bench.run("SET statement_timeout = %s", (round(1000 * limit),))
    began = time.monotonic()
    with pytest.raises(psycopg2.errors.QueryCanceled) as caught:
        bench.run(
            "SELECT cerebro_search('packed', %s, 'models', NULL, ARRAY[1], "
            f"$${COMPILE}$$, $${{'batch_size': [8]}}$$, 'random', 'num_configs=100000', name := %s)",
            (name, name),
        )
    bench.run("RESET statement_timeout")
    assert time.monotonic() - began < limit + stretched(DRIVER_SECONDS)
    run_id, status = bench.row("SELECT run_id, status FROM cerebro.runs WHERE name = %s", (name,))
    configurations = bench.value(
        "SELECT count(*) FROM cerebro.catalog_configurations WHERE run_id = %s", (run_id,)
    )
    assert (status, configurations) == ("cancelled", 1000)
    assert f"cerebro_resume({run_id})" in str(caught.value)
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
