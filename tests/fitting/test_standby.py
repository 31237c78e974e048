"""A hot standby: it shows what the primary does, waits for it, and refuses what would change something."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest
from gates import Gate, gate_at
from pace import joined, until
from reasons import EMBEDDED_ONLY
from servers import connected

from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from cerebro_db.server.job_calls import schedulable
from tests.conftest import FAST, Sql
from tests.fitting.conftest import _make_tables

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)
PORT = 5433
# A call that waits has a snapshot: without feedback a VACUUM of the primary cancels it after half a minute.
WAITING = "-c hot_standby=on -c hot_standby_feedback=on"
STREAMING = {"wal_level": "replica", "max_wal_senders": "4"}


@pytest.fixture(scope="module")
def primary(short_folder: Path) -> Iterator[Cluster]:
    """A server that streams to standbys."""
    folder = short_folder / "streaming"
    folder.mkdir()
    folder.chmod(0o755)
    cluster = Cluster(folder / "home", settings=FAST | STREAMING)
    cluster.start()
    authentication = cluster.data / "pg_hba.conf"
    authentication.write_text(authentication.read_text() + "local replication all trust\n")
    installer.install(cluster.dsn(), Script())
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="module")
def bench(primary: Cluster, blobs: tuple[np.ndarray, np.ndarray]) -> Iterator[Sql]:
    """A session on the primary, with the tables of the runs."""
    sql = Sql(connected(primary.dsn()), primary.dsn())
    sql.run('ALTER DATABASE cerebro SET search_path = "$user", public, cerebro')
    sql.run("SET search_path = public, cerebro; SELECT pg_reload_conf()")
    _make_tables(sql, blobs)
    yield sql
    sql.close()


@pytest.fixture(scope="module")
def standby(bench: Sql, primary: Cluster) -> Iterator[str]:
    """A streaming standby; its connection string."""
    data, programs = primary.home.parent / "standby", Path(primary.psql()).parent
    socket, log = primary.socket_directory, primary.log.parent / "standby.log"

    def run(name: str, *arguments: str) -> None:
        command = [str(programs / name), "-D", str(data), *arguments]
        done = primary.account.run(command, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
        assert done.returncode == 0, done.stdout

    primary.account.make_private(data)
    copied = ["-h", str(socket), "-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync"]
    run("pg_basebackup", *copied)
    run("pg_ctl", "start", "-w", "-l", str(log), "-o", f"-c port={PORT} {WAITING}")
    yield bench.dsn.replace("port=5432", f"port={PORT}")
    run("pg_ctl", "stop", "-w", "-m", "immediate")


@pytest.fixture
def there(standby: str, bench: Any) -> Iterator[Sql]:
    """A session on the standby."""
    sql = Sql(connected(standby), standby)
    yield sql
    sql.close()


@pytest.fixture
def gate(bench: Any) -> Iterator[Gate]:
    """A gate before the commit of hops, at the primary."""
    with gate_at(bench.dsn) as made:
        yield made


def caught_up(bench: Any, there: Sql) -> None:
    """The standby has all that the primary has written."""
    lsn = bench.value("SELECT pg_current_wal_lsn()")
    until(lambda: there.value("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (lsn,)), 60)


def test_a_run_at_the_primary_goes_on_and_is_waited_for(
    bench: Any, there: Sql, standby: str, gate: Gate
) -> None:
    assert there.value("SELECT pg_is_in_recovery()")
    gate.shut(epoch=2)
    run_id = bench.value(
        "SELECT cerebro_fit_multiple('packed', 'of_primary', 'configs', 2, validation_table := 'val', wait := false)"
    )
    hops = "SELECT count(*) > 0 FROM cerebro.hops WHERE run_id = %s"
    until(lambda: bench.value(hops, (run_id,)), 60)
    caught_up(bench, there)
    states = (
        "SELECT r.status, j.status, p.status FROM cerebro.runs r JOIN cerebro.jobs j USING (run_id) "
        "JOIN cerebro.progress p USING (run_id) WHERE run_id = %s"
    )
    assert there.row(states, (run_id,)) == bench.row(states, (run_id,)) == ("running",) * 3
    assert there.value("SELECT cerebro_wait(%s, '1 s')", (run_id,)) == "running"
    ends: list[str] = []

    def wait() -> None:
        with closing(connected(standby)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT cerebro_wait(%s, '300 s')", (run_id,))
            ends.append(cursor.fetchone()[0])

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(2)
    assert waiting.is_alive()
    gate.open()
    joined(waiting)
    assert ends == ["finished"]
    assert there.row(states, (run_id,))[:2] == ("finished", "finished")
    bench.run("SELECT cerebro_drop_run(%s)", (run_id,))


PACK = "'blobs', 'x', 'label', 'x'"
ADAM = "$$loss='sparse_categorical_crossentropy',optimizer='Adam'$$"
CHANGES = [
    f"cerebro_pack({PACK})",
    f"cerebro_pack_columns({PACK})",
    "cerebro_fit_multiple('packed', 'o', 'configs', 1)",
    "cerebro_fit_multiple('packed', 'o', 'configs', 1, wait := false)",
    f"cerebro_fit('packed', 'o', 'models', 1, {ADAM}, 'batch_size=8', 1)",
    "cerebro_predict('o', 'blobs', 'id', 'x', 'p')",
    "cerebro_evaluate('o', 'val', 'p')",
    "cerebro_train_test_split('blobs', 'b', 0.5)",
    "cerebro_resume(1)", "cerebro_cancel(1)", "cerebro_pause(1)", "cerebro_drop_run(1)", "cerebro_vacuum()",
    "cerebro_set('cache_mb', '1')", "cerebro_register_model(1, 1, 'm')", "cerebro_drop_model('m')",
    "cerebro_promote_if_better(1, 'model:m@a')", "cerebro_register_expression('e', 'mean(square(y_true - y_pred))')",
    "cerebro_delete_model('models', 1)", "cerebro_cancel_job(1)", "cerebro_start_schedule('s')",
    "cerebro_unschedule('s')",
    f"cerebro_submit('{json.dumps({'cerebro_vacuum': {}})}')",
    f"cerebro_schedule('s', '0 3 * * *', '{json.dumps({'cerebro_vacuum': {}})}')",
]  # fmt: skip


@pytest.mark.parametrize("call", CHANGES)
def test_what_changes_something_is_refused(there: Sql, call: str) -> None:
    with pytest.raises(psycopg2.Error) as refused:
        there.run(f"SELECT {call}")
    told = refused.value.diag
    assert (refused.value.pgcode, told.message_primary.removeprefix("cerebro: ")) == (
        "25006",
        "this server is a hot standby, where nothing can be changed; allowed: at its primary",
    )
    assert "connect to the primary" in told.message_hint


def test_so_is_any_function_that_can_be_scheduled(there: Sql) -> None:
    """With NULLs, of which some have to say something first."""
    functions = there.fetch(
        "SELECT p.proname::text, array_to_string(ARRAY(SELECT 'NULL::' || format_type(t, NULL) "
        "FROM unnest(p.proargtypes) t), ', ') FROM pg_proc p "
        "WHERE p.pronamespace = 'cerebro'::regnamespace AND p.proname = ANY (%s)",
        (schedulable(),),
    )
    assert len(functions) > 40
    codes = {}
    for name, nulls in functions:
        with pytest.raises(psycopg2.Error) as refused:
            there.run(f"SELECT cerebro.{name}({nulls})")
        codes[name] = refused.value.pgcode
    assert set(codes.values()) <= {"25006", "22023"}, codes


def test_work_is_left_to_the_primary(there: Sql) -> None:
    assert there.value("SELECT cerebro._start_jobs()") == 0
    assert there.value("SELECT cerebro.cerebro_work()") == 0
