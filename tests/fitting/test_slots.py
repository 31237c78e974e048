"""Workers are bounded by connections and by a setting, which is told before any work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from pace import stretched, until
from reasons import EMBEDDED_ONLY
from servers import as_role, connected

from cerebro_db.install.embedded import Cluster
from cerebro_db.install.postgres import find
from cerebro_db.postgres.calls.slots import _FREE
from tests.fitting.sizes import PARTITIONS

Fit = Callable[..., tuple[str, int]]
WORKERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cerebro worker' "
    "AND datname = current_database()"
)


@pytest.fixture
def setting(bench: Any) -> Any:
    names = []

    def change(name: str, value: int) -> None:
        names.append(name)
        bench.run("SELECT cerebro_set(%s, %s)", (name, str(value)))

    yield change
    for name in names:
        bench.run("SELECT cerebro_set(%s, NULL)", (name,))


def test_a_role_has_so_many_workers(bench: Any, fit: Fit, setting: Any) -> None:
    setting("max_workers", 1)
    bench.connection.notices.clear()
    _, run_id = fit(epochs=1, num_workers=3)
    wanted = min(3, PARTITIONS)  # on segments there are no more workers than these
    assert f"1 workers instead of {wanted}: all calls of a role may use 1 together" in "".join(
        bench.connection.notices
    )
    hops = "SELECT count(DISTINCT worker) FROM cerebro.hops WHERE run_id = %s"
    assert bench.value(hops, (run_id,)) == 1


def test_runs_of_a_role_share_its_workers(bench: Any, fit: Fit, setting: Any) -> None:
    setting("max_workers", 1)
    out, _ = fit(epochs=1)
    other = connected(bench.dsn)
    errors: list[BaseException] = []

    def train() -> None:
        try:
            with other.cursor() as cursor:
                cursor.execute(
                    "SELECT cerebro_fit_multiple('packed', 'shared_out', 'configs', 2000)"
                )
        except psycopg2.Error as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        until(lambda: bench.value("SELECT count(*) FROM cerebro.runs WHERE status = 'running'"))
        with pytest.raises(psycopg2.errors.ObjectInUse, match="allowed: 1 together") as refused:
            fit(epochs=1)
        assert refused.value.diag.message_hint
        for scoring in ("cerebro_evaluate", "cerebro_confusion_matrix"):
            with pytest.raises(psycopg2.errors.ObjectInUse, match="allowed: 1 together"):
                bench.run(f"SELECT {scoring}(%s, 'packed', 'scores_of_too_many')", (out,))
    finally:
        run_id = bench.value("SELECT run_id FROM cerebro.runs WHERE status = 'running'")
        bench.run("SELECT cerebro_cancel(%s)", (run_id,))
        thread.join()
        other.close()
    assert isinstance(errors[0], psycopg2.errors.QueryCanceled)
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))
    fit(epochs=1)


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_few_connections_mean_few_workers_or_an_error_at_once(
    bench: Any, administrator: Any
) -> None:
    administrator.run("DROP ROLE IF EXISTS narrow")
    administrator.run("CREATE ROLE narrow LOGIN IN ROLE cerebro_user")
    bench.run("GRANT ALL ON SCHEMA public TO narrow")
    bench.run("GRANT SELECT ON ALL TABLES IN SCHEMA public TO narrow")
    administrator.run("ALTER ROLE narrow CONNECTION LIMIT 3")
    connection = connected(as_role(bench.dsn, "narrow"))
    call = "SELECT cerebro_fit_multiple('packed', %s, 'configs', 1, num_workers := 4)"
    try:
        with connection.cursor() as cursor:
            cursor.execute(call, ("narrow_out",))
            told = "".join(connection.notices)
            assert "1 workers instead of 4: 1 connections are free" in told
        administrator.run("ALTER ROLE narrow CONNECTION LIMIT 2")
        connection.close()
        sessions = "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'narrow'"
        until(lambda: administrator.value(sessions))  # they take a moment to end
        connection = connected(as_role(bench.dsn, "narrow"))
        started = time.monotonic()
        with (
            connection.cursor() as cursor,
            pytest.raises(
                psycopg2.errors.TooManyConnections, match="no free connection for a worker"
            ),
        ):
            cursor.execute(call, ("narrower_out",))
        assert time.monotonic() - started < stretched(10)
        administrator.run("ALTER ROLE narrow CONNECTION LIMIT 1")
        pack = "SELECT cerebro_pack('blobs_train', 'narrow_packed', 'label', 'x')"
        with (
            connection.cursor() as cursor,
            pytest.raises(
                psycopg2.errors.TooManyConnections, match=r"too many connections for role"
            ),
        ):
            cursor.execute(pack)
    finally:
        connection.close()
        bench.run("DROP OWNED BY narrow")
        administrator.run("DROP ROLE narrow")


@pytest.mark.skipif(int(find().major) < 16, reason="PostgreSQL 16 has reserved_connections")
def test_reserved_connections_are_not_free(own_folder: Path) -> None:
    cluster = Cluster(own_folder / "few", settings={"reserved_connections": "5"})
    cluster.start()
    try:
        session = connected(cluster.dsn())
        with session.cursor() as cursor:
            cursor.execute("CREATE ROLE alice; SET ROLE alice")
            cursor.execute(_FREE)
            few = cursor.fetchone()[0]
            cursor.execute("RESET ROLE; GRANT pg_use_reserved_connections TO alice; SET ROLE alice")
            cursor.execute(_FREE)
            assert cursor.fetchone()[0] == few + 5
        session.close()
    finally:
        cluster.destroy()


@pytest.mark.not_on_segments(EMBEDDED_ONLY)
def test_sessions_end_with_their_call(bench: Any, fit: Fit) -> None:
    connection = connected(bench.dsn)
    try:
        until(lambda: not bench.value(WORKERS))  # those of other tests take a moment to end
        with connection.cursor() as cursor:
            for call in (
                "cerebro_pack('blobs_train', 'idle_packed', 'label', 'x')",
                "cerebro_fit_multiple('packed', 'idle_out', 'configs', 1)",
                "cerebro_predict('idle_out', 'blobs_test', 'id', 'x', 'idle_predicted', mst_key := 1)",
            ):
                cursor.execute(f"SELECT {call}")
                until(lambda: not bench.value(WORKERS))
    finally:
        connection.close()
