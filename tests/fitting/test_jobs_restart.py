"""What a restart of the server ends goes on by itself; schedules of the real pg_cron, and without it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest
from gates import Gate, gate_at
from pace import stretched, until
from reasons import EMBEDDED_ONLY
from servers import connected

from cerebro_db.install import installer
from cerebro_db.install.doctor import examine
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.postgres import find
from cerebro_db.install.script import Script
from tests.conftest import FAST, Sql
from tests.fitting.conftest import ADAM, _make_tables, select

pytestmark = pytest.mark.not_on_segments(EMBEDDED_ONLY)
DATABASE = "cerebro"


def has_pg_cron() -> bool:
    """Whether the server's version has the extension."""
    folder = Path(find().program("postgres")).parents[1]
    name = "extension/pg_cron.control"
    return any(path.exists() for path in (
        folder / "share" / name, Path("/usr/share/postgresql") / folder.name / name
    ))  # fmt: skip


CRON = {
    "shared_preload_libraries": "pg_cron",
    "cron.database_name": DATABASE,
    "cron.use_background_workers": "on",  # it needs no way to log in
    "max_worker_processes": "32",
}


class Home:
    """A cluster of its own, and the processes beside it."""

    def __init__(self, folder: Path, cron: bool) -> None:
        self.keepers = folder / "keepers"
        self.keepers.mkdir()
        self.keepers.chmod(0o777)
        self.cluster = Cluster(folder / "home", settings=FAST | (CRON if cron else {}))
        self.cluster.start()
        self.dsn = self.cluster.dsn(DATABASE)
        with closing(self.connect()) as sql:
            if cron:
                sql.run("CREATE EXTENSION pg_cron")
        installer.install(self.dsn, Script(keeper_directory=str(self.keepers)))

    def connect(self) -> Sql:
        """A session."""
        return Sql(connected(self.dsn), self.dsn)

    def crash(self) -> None:
        """All processes end at once, as where the machine goes down; then the server starts."""
        pid = self.cluster.pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)  # no time for anything
        self.kill_beside()
        while self.cluster.pid() is not None:
            time.sleep(0.05)
        self.cluster.start()

    def kill_beside(self) -> None:
        """End keepers, drivers and trainers."""
        for _ in range(2):  # one that was just forked
            for path in Path("/proc").glob("[0-9]*/cwd"):
                try:
                    if path.readlink().is_relative_to(self.keepers):
                        os.kill(int(path.parent.name), signal.SIGKILL)
                except OSError:
                    continue

    def drivers_of_jobs(self) -> list[int]:
        """Processes that drive jobs of this server."""
        return [
            int(comm.parent.name)
            for comm in Path("/proc").glob("[0-9]*/comm")
            if self._is_driver_of_job(comm)
        ]

    def _is_driver_of_job(self, comm: Path) -> bool:
        with suppress(OSError):
            is_ours = (comm.parent / "cwd").readlink().is_relative_to(self.keepers)
            return is_ours and comm.read_text().strip() == "driver job"
        return False

    def end(self) -> None:
        """Nothing is left."""
        self.cluster.destroy()
        self.kill_beside()


@pytest.fixture(scope="module")
def home(short_folder: Path) -> Iterator[Home]:
    """A cluster that may be restarted, with pg_cron where that is installed."""
    folder = short_folder / "restart"
    folder.mkdir()
    folder.chmod(0o755)
    made = Home(folder, has_pg_cron())
    with closing(made.connect()) as sql:
        sql.run(f'ALTER DATABASE {DATABASE} SET search_path = "$user", public, cerebro')
    yield made
    made.end()


@pytest.fixture(scope="module")
def data(home: Home, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """The tables of the runs."""
    with closing(home.connect()) as sql:
        _make_tables(sql, blobs)


@pytest.fixture
def sql(home: Home, data: None) -> Iterator[Sql]:
    """A session; after a restart there is another one."""
    sql = home.connect()
    yield sql
    sql.connection.close()


needs_pg_cron = pytest.mark.skipif(
    not has_pg_cron(), reason="the package of pg_cron for this server's version is not installed"
)
NIGHTLY = {
    "cerebro_pack": {
        "source_table": "blobs_train", "output_table": "nightly_packed", "dependent_varname": "label",
        "independent_varname": "x", "num_partitions": 2, "replace": True,
    },
    "cerebro_pack_validation": {
        "source_table": "blobs_test", "output_table": "nightly_val", "dependent_varname": "label",
        "independent_varname": "x", "training_table": "nightly_packed", "replace": True,
    },
    "cerebro_fit_multiple": {
        "source_table": "nightly_packed", "model_output_table": "nightly_out",
        "model_selection_table": "configs", "num_iterations": 2, "validation_table": "nightly_val",
        "replace": True,
    },
}  # fmt: skip
SCHEDULE = "SELECT cerebro_schedule(%s, %s, %s, on_success := %s, timer := %s)"
MODEL = "model:nightly@champion"


def calls(**changes: dict[str, Any]) -> str:
    """The calls of a schedule, some of their arguments changed."""
    return json.dumps({name: {**given, **changes.get(name, {})} for name, given in NIGHTLY.items()})


def ended(sql: Sql, job_id: int) -> None:
    """A job ends well."""
    sql.run("SELECT cerebro_wait_job(%s, '900 s')", (job_id,))
    found = sql.row("SELECT status, error FROM cerebro.jobs WHERE job_id = %s", (job_id,))
    assert found == ("finished", None)


@needs_pg_cron
def test_pg_cron_starts_schedules(sql: Sql) -> None:
    """The last test looks what became of it: a minute is the least."""
    own = calls().replace("nightly_", "minutely_")  # two schedules go on side by side
    sql.run(SCHEDULE, ("each minute", "* * * * *", own, MODEL, "pg_cron"))
    assert sql.fetch("SELECT command FROM cron.job WHERE jobname = 'cerebro each minute'") == [
        ("SELECT cerebro.cerebro_start_schedule('each minute')",)
    ]


@pytest.fixture
def gate(home: Home, data: None) -> Iterator[Gate]:
    """A gate before the commit of hops."""
    with gate_at(home.dsn) as made:
        yield made


def test_what_a_restart_ends_goes_on_by_itself(home: Home, sql: Sql, gate: Gate) -> None:
    # Those that are to be under way when all ends are longer than the others: these wait at the gate.
    epochs = {f"restarted_{number}": 40 if number < 3 else 3 for number in range(8)}
    select(sql, "two", [1, 2], [ADAM], ["batch_size=8"])
    run = "SELECT cerebro_fit_multiple('packed', %s, 'two', %s, num_workers := 1{})"
    for many in {*epochs.values()}:
        sql.run(run.format(""), (f"plain_{many}", many))
    sql.run("SELECT cerebro_set('max_jobs', '3'), cerebro_set('max_jobs_of_role', '3')")
    gate.shut(epoch=20)
    runs = [sql.value(run.format(", wait := false"), one) for one in epochs.items()]
    mine = "SELECT status, count(*) FROM cerebro.jobs WHERE run_id = ANY (%s) GROUP BY 1 ORDER BY 1"
    hops = "SELECT count(DISTINCT run_id) FROM cerebro.hops WHERE run_id = ANY (%s)"
    until(lambda: sql.value(hops, (runs,)) == 3, 60)
    assert dict(sql.fetch(mine, (runs,))) == {"running": 3, "queued": 5}
    home.crash()
    gate.open()
    with closing(home.connect()) as again:
        # Where pg_cron does not do it, the next call of anybody does.
        for run_id in runs:
            assert again.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
        assert dict(again.fetch(mine, (runs,))) == {"finished": 8}
        ends = (
            "SELECT count(*) FROM cerebro.job_log l JOIN cerebro.jobs j ON j.job_id = l.job_id "
            "WHERE j.run_id = ANY (%s) AND l.action = 'finished'"
        )
        assert again.value(ends, (runs,)) == 8
        attempts = again.column(
            "SELECT attempts FROM cerebro.jobs WHERE run_id = ANY (%s) ORDER BY job_id", (runs,)
        )
        assert sorted(attempts, reverse=True) == [2, 2, 2, 1, 1, 1, 1, 1]
        count = "SELECT count(*) FROM cerebro.hops WHERE run_id = ANY (%s) GROUP BY run_id ORDER BY run_id"
        assert again.column(count, (runs,)) == [2 * 4 * many for many in epochs.values()]
        weights = "SELECT mst_key, model_weights FROM {} ORDER BY 1"
        for name, many in epochs.items():
            assert again.fetch(weights.format(name)) == again.fetch(weights.format(f"plain_{many}"))


def test_a_driver_outlives_the_sessions_that_it_has(home: Home, sql: Sql, gate: Gate) -> None:
    gate.shut(epoch=15)
    run_id = sql.value(
        "SELECT cerebro_fit_multiple('packed', 'outlived', 'configs', 20, num_workers := 1, wait := false)"
    )
    until(lambda: sql.value("SELECT count(*) FROM cerebro.hops WHERE run_id = %s", (run_id,)), 60)
    sql.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cerebro worker'"
    )
    gate.open()
    assert sql.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
    workers = "SELECT count(DISTINCT pid) FROM cerebro.hops WHERE run_id = %s"
    assert sql.value(workers, (run_id,)) == 2


def test_after_a_shutdown_nothing_waits_for_the_server(home: Home, sql: Sql, gate: Gate) -> None:
    fit = "SELECT cerebro_fit_multiple('packed', %s, 'few', 12, num_workers := 1{})"
    select(sql, "few", [1, 2], [ADAM], ["batch_size=8"])
    sql.run(fit.format(""), ("stopped_plain",))
    gate.shut(epoch=6)
    run_id = sql.value(fit.format(", wait := false"), ("stopped",))
    until(lambda: sql.value("SELECT count(*) FROM cerebro.hops WHERE run_id = %s", (run_id,)), 60)
    began = time.monotonic()
    home.cluster.stop()
    until(lambda: not home.drivers_of_jobs(), 5)
    assert time.monotonic() - began < stretched(5)
    home.cluster.start()
    gate.open()
    with closing(home.connect()) as again:
        assert again.value("SELECT cerebro_wait(%s, '900 s')", (run_id,)) == "finished"
        weights = "SELECT mst_key, model_weights FROM {} ORDER BY 1"
        assert again.fetch(weights.format("stopped")) == again.fetch(
            weights.format("stopped_plain")
        )


def test_a_schedule_with_a_mistake_is_refused_at_once(sql: Sql) -> None:
    for changes, cron, told in (
        ({}, "61 3 * * *", "cron: got '61 3 \\* \\* \\*'"),
        ({}, "0 3 * *", "allowed: five fields"),
        ({"cerebro_fit_multiple": {"num_iteration": 3}}, "0 3 * * *", "'num_iteration'"),
        ({"cerebro_fit_multiple": {"num_iterations": "3"}}, "0 3 * * *", "allowed: a whole number"),
        (
            {"cerebro_fit_multiple": {"model_selection_table": "none_such"}},
            "0 3 * * *",
            "none_such",
        ),
        ({"cerebro_pack": {"source_table": "none_such"}}, "0 3 * * *", "none_such"),
        ({"cerebro_pack": {"replace": False}}, "0 3 * * *", "allowed in a schedule: true"),
        # What no table is there for yet is looked at as well: columns, names of outputs, configurations.
        (
            {"cerebro_pack": {"dependent_varname": "lable"}},
            "0 3 * * *",
            "got 'lable'; the columns of",
        ),
        (
            {"cerebro_pack": {"independent_varname": "label"}},
            "0 3 * * *",
            "the column 'label' is of",
        ),
        (
            {"cerebro_pack": {"output_table": "nowhere.x"}},
            "0 3 * * *",
            "cerebro_pack: output_table: got the schema 'nowhere'",
        ),
        (
            {"cerebro_pack_validation": {"independent_varname": "y"}},
            "0 3 * * *",
            "got 'y'; the columns of",
        ),
        (
            {"cerebro_fit_multiple": {"model_output_table": "blobs_test"}},
            "0 3 * * *",
            "replaces trained models only",
        ),
        (
            {"cerebro_fit_multiple": {"model_selection_table": "blobs_test"}},
            "0 3 * * *",
            "has no column mst_key",
        ),
        ({}, "0 3 L * *", "allowed with timer := 'crontab'"),
        ({}, "5/10 3 * * *", "allowed with timer := 'crontab'"),
        ({"cerebro_fit_multiple": {"validation_table": None}}, "0 3 * * *", "no validation_table"),
    ):
        # Of tables that are made one after another, and have not been made yet.
        given = calls(**changes).replace("nightly_", "wrong_")
        with pytest.raises(psycopg2.Error, match=told):
            sql.run(SCHEDULE, ("wrong", cron, given, MODEL, "crontab"))
    later = {"cerebro_predict": {
        "model_table": "nightly_out", "test_table": "blobs_test", "id_col": "number",
        "independent_varname": "x", "output_table": "nightly_answers", "replace": True,
    }}  # fmt: skip
    with pytest.raises(psycopg2.Error, match="id_col: got 'number'; the columns of"):
        sql.run(SCHEDULE, ("wrong", "0 3 * * *", json.dumps(NIGHTLY | later), MODEL, "crontab"))
    for text in (
        "[]",
        "{}",
        '{"cerebro_wait": {}}',
        '{"cerebro_export": {}}',
        '{"pg_sleep": {}}',
        '{"cerebro_pack": {"seed": 1, "seed": 2}}',
    ):
        with pytest.raises(psycopg2.Error, match=r"calls: (got|unknown)|got it twice"):
            sql.run(SCHEDULE, ("wrong", "0 3 * * *", text, None, "crontab"))
    with pytest.raises(psycopg2.Error, match="on_success: got"):
        sql.run(SCHEDULE, ("wrong", "0 3 * * *", calls(), "model:nightly", "crontab"))
    assert sql.value("SELECT count(*) FROM cerebro.schedules WHERE name = 'wrong'") == 0


def test_without_pg_cron_that_is_reported(bench: Any) -> None:
    with pytest.raises(
        psycopg2.Error, match="got 'pg_cron'; the server has not loaded it"
    ) as refused:
        bench.run(
            "SELECT cerebro_schedule('nightly', '0 3 * * *', %s, timer := 'pg_cron')",
            (json.dumps({"cerebro_pack": NIGHTLY["cerebro_pack"]}),),
        )
    assert refused.value.pgcode == "0A000"
    for word in ("cerebro schedule --print", "timer := 'daemon'", "postgresql-15-cron"):
        assert word in refused.value.diag.message_hint


def test_without_pg_cron_the_daemon_is_the_timer(bench: Any) -> None:
    del bench.connection.notices[:]
    bench.run(
        "SELECT cerebro_schedule('nightly', '0 3 * * *', %s)",
        (json.dumps({"cerebro_pack": NIGHTLY["cerebro_pack"]}),),
    )
    timer = "SELECT timer FROM cerebro.schedules WHERE name = 'nightly'"
    assert bench.value(timer) == "daemon"
    assert "while the program cerebro daemon runs" in "".join(bench.connection.notices)
    bench.run("SELECT cerebro_unschedule('nightly')")


def test_a_schedule_promotes_what_is_better_and_skips_what_overlaps(sql: Sql) -> None:
    sql.run(SCHEDULE, ("by hand", "0 3 * * *", calls(), "model:byhand@champion", "crontab"))
    first = sql.value("SELECT cerebro_start_schedule('by hand')")
    assert sql.value("SELECT cerebro_start_schedule('by hand')") is None
    assert "schedule by hand was skipped" in "".join(sql.notices)
    assert sql.value("SELECT status FROM cerebro.jobs ORDER BY job_id DESC LIMIT 1") == "skipped"
    ended(sql, first)
    versions = (
        "SELECT version, aliases, lineage -> 'promotion' ->> 'champion' FROM cerebro.registered_versions "
        "WHERE name = 'byhand' ORDER BY 1"
    )
    assert sql.fetch(versions) == [(1, ["champion"], None)]
    # The same again is no better, and what trains for longer is.
    second = sql.value("SELECT cerebro_start_schedule('by hand')")
    ended(sql, second)
    assert len(sql.fetch(versions)) == 1
    run_id = sql.value(
        "SELECT cerebro_fit_multiple('nightly_packed', 'longer', 'configs', 20, validation_table := 'nightly_val')"
    )
    assert (
        sql.value("SELECT cerebro_promote_if_better(%s, 'model:byhand@champion')", (run_id,)) == 2
    )
    (one, _, _), (two, aliases, champion) = sql.fetch(versions)
    assert (one, two, aliases) == (1, 2, ["champion"])
    assert json.loads(champion)["version"] == 1
    schedules = sql.row(
        "SELECT cron, timer, last_job_id, last_status FROM cerebro.schedules WHERE name = 'by hand'"
    )
    assert schedules == ("0 3 * * *", "crontab", second, "finished")
    sql.run("SELECT cerebro_unschedule('by hand')")
    with pytest.raises(psycopg2.Error, match="you have no schedule of that name"):
        sql.run("SELECT cerebro_start_schedule('by hand')")


@needs_pg_cron
def test_pg_cron_has_started_the_schedule(sql: Sql) -> None:
    job_id = until(
        lambda: sql.value("SELECT min(job_id) FROM cerebro.jobs WHERE schedule = 'each minute'"), 70
    )
    name, next_start, is_overdue = sql.row(
        "SELECT name, next_start > last_start, is_overdue FROM cerebro.schedules WHERE name = 'each minute'"
    )
    assert (name, next_start, is_overdue) == ("each minute", True, False)
    sql.run("SELECT cerebro_unschedule('each minute')")
    assert sql.value("SELECT count(*) FROM cron.job WHERE jobname = 'cerebro each minute'") == 0
    ended(sql, job_id)
    columns = "name, version"
    found = sql.fetch(f"SELECT {columns} FROM cerebro.registered_versions WHERE name = 'nightly'")
    assert ("nightly", 1) in found


def found(home: Home, name: str) -> list[tuple[str, str, str]]:
    """What doctor finds about something."""
    told = examine(home.dsn, None)
    return [(one.state, one.value, one.advice or "") for one in told if name in one.name]


@needs_pg_cron
def test_doctor_looks_at_what_pg_cron_does(home: Home, sql: Sql) -> None:
    """A role that is renamed ends its launcher, and with it all schedules of the server."""
    assert found(home, "of pg_cron") == []
    sql.run("CREATE ROLE cron_eve LOGIN; GRANT USAGE ON SCHEMA cron TO cron_eve")
    sql.run("SET SESSION AUTHORIZATION cron_eve")
    number = sql.value("SELECT cron.schedule('eve', '* * * * *', 'SELECT 1')")
    sql.run("RESET SESSION AUTHORIZATION; ALTER ROLE cron_eve RENAME TO cron_renamed")
    ((state, value, advice),) = found(home, "timers of pg_cron")
    assert state == "missing"
    assert f'job {number} ("eve") is of role "cron_eve", which does not exist' in value
    assert f"SELECT cron.unschedule({number})" in advice
    sql.run("DELETE FROM cron.job WHERE jobname = 'eve'")
    assert found(home, "timers of pg_cron") == []
    # Its own record of what it starts: nothing for ten minutes, or an error.
    sql.run(
        "INSERT INTO cron.job_run_details (jobid, runid, status, return_message, start_time) "
        "SELECT jobid, 1000000, 'succeeded', '1 row', now() - interval '10 minutes' FROM cron.job "
        "WHERE jobname = 'cerebro jobs'"
    )
    ((state, value, _),) = found(home, 'timer "cerebro jobs"')
    assert (state, value.startswith("is due each minute; last start")) == ("missing", True)
    sql.run(
        "UPDATE cron.job_run_details SET status = 'failed', return_message = 'no way' WHERE runid = 1000000"
    )
    ((state, value, _),) = found(home, 'timer "cerebro jobs"')
    assert (state, value.endswith(": no way")) == ("warning", True)
    sql.run("DELETE FROM cron.job_run_details WHERE runid = 1000000")
    sql.run("REVOKE USAGE ON SCHEMA cron FROM cron_renamed; DROP ROLE cron_renamed")


@pytest.mark.parametrize("timer", ["daemon", "crontab"])
def test_a_schedule_that_no_timer_starts_is_overdue(home: Home, sql: Sql, timer: str) -> None:
    name = f"late {timer}"
    sql.run(SCHEDULE, (name, "*/5 * * * *", calls(), None, timer))
    due = (
        "SELECT next_start > now(), next_start < now() + interval '5 minutes', is_overdue, last_end "
        "FROM cerebro.schedules WHERE name = %s"
    )
    assert sql.row(due, (name,)) == (True, True, False, None)
    assert found(home, f'schedule "{name}"') == []
    sql.run(
        "UPDATE cerebro.catalog_schedules SET due = now() - interval '6 minutes' WHERE name = %s",
        (name,),
    )
    assert sql.value("SELECT is_overdue FROM cerebro.schedules WHERE name = %s", (name,)) is True
    ((state, value, advice),) = found(home, f'schedule "{name}"')
    assert (state, f"its timer {timer} has not started it" in value) == ("warning", True)
    assert {"daemon": "cerebro daemon", "crontab": "cerebro schedule --print"}[timer] in advice
    sql.run("SELECT cerebro_set('max_jobs', '0')")
    try:
        job_id = sql.value("SELECT cerebro_start_schedule(%s)", (name,))
        assert sql.row(due, (name,))[:3] == (True, True, False)
        sql.run("SELECT cerebro_cancel_job(%s)", (job_id,))
    finally:
        sql.run("SELECT cerebro_set('max_jobs', NULL)")
    assert sql.value("SELECT last_end IS NOT NULL FROM cerebro.schedules WHERE name = %s", (name,))
    sql.run("SELECT cerebro_unschedule(%s)", (name,))


def test_a_schedule_that_its_role_may_not_start_is_reported(sql: Sql) -> None:
    """A timer that is refused leaves no job: who looks what waits writes that down, once a day."""
    sql.run("CREATE ROLE nightly_eve LOGIN IN ROLE cerebro_user")
    sql.run(
        "CREATE SCHEMA own AUTHORIZATION nightly_eve; GRANT SELECT ON blobs_train TO nightly_eve"
    )
    only = json.dumps({"cerebro_pack": NIGHTLY["cerebro_pack"] | {"output_table": "own.x"}})
    sql.run("SET SESSION AUTHORIZATION nightly_eve")
    try:
        sql.run(SCHEDULE, ("eve", "0 3 * * *", only, None, "crontab"))
    finally:
        sql.run("RESET SESSION AUTHORIZATION")
    told = (
        "SELECT owner::text, status, error FROM cerebro.jobs WHERE schedule = 'eve' ORDER BY job_id"
    )
    sql.run("SELECT cerebro_work()")
    assert sql.fetch(told) == []
    cannot = "the schedule cannot be started: role nightly_eve "
    wanted = [("nightly_eve", "failed", cannot + "is no member of cerebro_user")]
    sql.run("REVOKE cerebro_user FROM nightly_eve")
    for _ in range(2):
        sql.run("SELECT cerebro_work()")
        assert sql.fetch(told) == wanted
    sql.run("ALTER ROLE nightly_eve NOLOGIN")
    sql.run("SELECT cerebro_work()")
    wanted.append(("nightly_eve", "failed", cannot + "may not log in"))
    assert sql.fetch(told) == wanted
    last = "SELECT last_status FROM cerebro.schedules WHERE name = 'eve'"
    assert sql.value(last) == "failed"
    sql.run("DROP OWNED BY nightly_eve; DROP ROLE nightly_eve")
    sql.run("SELECT cerebro_work()")
    assert sql.fetch(told)[2][1:] == (
        "failed", "the schedule cannot be started: the role that made it was dropped",
    )  # fmt: skip
    sql.run("DELETE FROM cerebro.catalog_schedules WHERE name = 'eve'")


@needs_pg_cron
def test_uninstalling_ends_the_timers(home: Home, sql: Sql) -> None:
    """The last test of this server: nothing is called that is not there any more."""
    sql.run(SCHEDULE, ("each night", "0 3 * * *", calls(), MODEL, "pg_cron"))
    sql.run("SELECT cron.schedule('mine', '0 3 * * *', 'SELECT 1')")
    names = "SELECT jobname::text FROM cron.job ORDER BY 1"
    assert sql.column(names) == ["cerebro each night", "cerebro jobs", "cerebro jobs at start", "mine"]  # fmt: skip
    installer.uninstall(home.dsn, force=True)
    assert sql.column(names) == ["mine"]
