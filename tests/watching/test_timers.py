"""Timers outside the server: lines of crontab, units of systemd, and the daemon."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from cerebro_db.cli import jobs
from cerebro_db.cli.app import app
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.sessions.errors import StatementFailed
from tests.watching.conftest import Watched

CALLS = {
    "cerebro_pack": {
        "source_table": "blobs_train", "output_table": "timed", "dependent_varname": "label",
        "independent_varname": "x", "replace": True,
    }
}  # fmt: skip


def told(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def scheduled(watched: Watched) -> Any:
    """Makes schedules of one call, which end with the test."""
    names = []

    def schedule(name: str, *more: object) -> str:
        names.append(name)
        return told("schedule", name, "* * * * *", json.dumps(CALLS), *more, "--dsn", watched.dsn)

    yield schedule
    for name in names:
        watched.sql.run("SELECT cerebro_unschedule(%s)", (name,))


def test_the_line_for_crontab_starts_the_schedule(scheduled: Any, watched: Watched) -> None:
    line = scheduled("50 % of it's", "--print").strip()
    assert line.startswith("* * * * * ")
    assert r"50 \% of" in line  # a per cent sign is the end of a command there
    # As cron hands it to the shell.
    command = line.removeprefix("* * * * * ").replace(r"\%", "%")
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    assert "schedule 50 % of it's: job" in done.stdout
    job_id = watched.sql.value("SELECT max(job_id) FROM cerebro.jobs")
    assert watched.sql.value("SELECT cerebro_wait_job(%s, '60 s')", (job_id,)) == "finished"
    timer = watched.sql.value("SELECT timer FROM cerebro.schedules WHERE name = %s", ("50 % of it's",))  # fmt: skip
    assert timer == "crontab"


@pytest.mark.parametrize(
    ("cron", "calendar"),
    [
        ("0 3 * * *", "*-*-* 3:0:00"),
        ("*/15 0-6 1 */3 *", "*-1/3-1 0..6:0/15:00"),
        ("5 4 * * 1-5", "Mon,Tue,Wed,Thu,Fri *-*-* 4:5:00"),
        ("5 4 * * 5-7", "Fri,Sat,Sun *-*-* 4:5:00"),
    ],
)
def test_calendars_of_systemd(cron: str, calendar: str) -> None:
    assert jobs.calendar_of(cron) == calendar
    if analyse := shutil.which("systemd-analyze"):
        subprocess.run([analyse, "calendar", calendar], check=True, capture_output=True)


@pytest.mark.parametrize("cron", ["0 3 1 * 1", "0 3 * JAN *", "0 3 * * 1/2", "0 3 L * *"])
def test_what_systemd_has_not_is_reported(cron: str) -> None:
    with pytest.raises(InvalidArgument, match="allowed with --systemd"):
        jobs.calendar_of(cron)


def test_units_of_systemd() -> None:
    text = jobs.units('tonight, "50 %"', "0 3 * * *", "service=sales")
    assert "# /etc/systemd/system/cerebro-tonight---50---.timer" in text
    assert '"schedule" "tonight, \\"50 %%\\"" "--start" "--dsn" "service=sales"' in text
    assert "OnCalendar=*-*-* 3:0:00" in text


def test_a_moment_is_due_once() -> None:
    at = datetime.fromisoformat("2026-03-01T03:00:00+00:00")
    second = timedelta(seconds=1)
    assert jobs.is_due("0 3 * * *", at - second, at)
    assert not jobs.is_due("0 3 * * *", at, at + 15 * second)
    assert not jobs.is_due("0 3 * * *", at - 20 * second, at - 5 * second)
    assert not jobs.is_due("no cron", at - second, at)


def test_the_daemon_starts_what_is_due_and_what_waits(
    scheduled: Any, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled("by the daemon", "--timer", "daemon")
    began = datetime.now().astimezone() - timedelta(minutes=1)  # it looked last then
    monkeypatch.setattr(jobs, "datetime", _At([began, datetime.now().astimezone()]))
    shown = told("daemon", "--once", "--dsn", watched.dsn)
    owner = watched.sql.value("SELECT current_user")
    assert f"schedule by the daemon of {owner}: job" in shown
    job_id = watched.sql.value("SELECT last_job_id FROM cerebro.schedules WHERE name = 'by the daemon'")  # fmt: skip
    assert watched.sql.value("SELECT cerebro_wait_job(%s, '60 s')", (job_id,)) == "finished"
    # A job that nobody has started.
    watched.sql.run("SELECT cerebro_set('max_jobs', '0')")
    try:
        waits = watched.sql.value("SELECT cerebro_start_schedule('by the daemon')")
        told("daemon", "--once", "--dsn", watched.dsn)
        status = "SELECT status FROM cerebro.jobs WHERE job_id = %s"
        assert watched.sql.value(status, (waits,)) == "queued"
        watched.sql.run("SELECT cerebro_set('max_jobs', NULL)")
        monkeypatch.undo()
        assert "jobs started: 1" in told("daemon", "--once", "--dsn", watched.dsn)
        assert watched.sql.value("SELECT cerebro_wait_job(%s, '60 s')", (waits,)) == "finished"
    finally:
        watched.sql.run("SELECT cerebro_set('max_jobs', NULL)")


class _At:
    """A clock that is looked at so often, and stands still then."""

    def __init__(self, moments: list[datetime]) -> None:
        self._moments = moments

    def now(self) -> datetime:
        return self._moments.pop(0) if len(self._moments) > 1 else self._moments[0]


def test_the_daemon_waits_for_no_role_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    statements: list[str] = []

    class Connections:
        def run(self, sql: str, values: object = ()) -> list[tuple[int]]:
            statements.append(sql)
            if "start_schedule" in sql:
                raise StatementFailed(
                    "canceling statement due to statement timeout", "57014", None, None
                )
            return []

    jobs._start(Connections(), "bob", "nightly", datetime.now().astimezone())  # type: ignore[arg-type]
    assert statements[0] == "SET statement_timeout = '60s'"
    assert statements[-2:] == ["RESET ROLE", "RESET statement_timeout"]
    assert "schedule nightly of bob: canceling statement" in capsys.readouterr().err


def test_wrong_options_are_reported(watched: Watched) -> None:
    calls, dsn = json.dumps(CALLS), ["--dsn", watched.dsn]
    for arguments, told_of in (
        (["x"], "got no CRON and CALLS"),
        (["x", "* * * * *", calls, "--systemd"], "got --systemd; allowed with --print"),
        (["x", "* * * * *", calls, "--print", "--timer", "daemon"], "got daemon; allowed with --print"),
        (["x", "* * * * *", calls, "--timer", "sundial"], "timer: got 'sundial'"),
        (["x", "* * * * *", "@/nowhere.json"], "CALLS: got @/nowhere.json"),
        (["x", "* * * * *", calls, "--timer", "daemon", "--priority", "500"], "priority: got 500"),
        (["none", "--start"], "you have no schedule of that name"),
        (["none", "--remove"], "you have no schedule of that name"),
    ):  # fmt: skip
        with pytest.raises(Exception, match=told_of):
            told("schedule", *arguments, *dsn)
    with pytest.raises(InvalidArgument, match="got one with a password"):
        told("schedule", "x", "* * * * *", calls, "--print", "--dsn", "dbname=x password=y")
    with pytest.raises(InvalidArgument, match="--seconds: got 0"):
        told("daemon", "--seconds", 0, *dsn)
    assert watched.sql.value("SELECT count(*) FROM cerebro.schedules WHERE name = 'x'") == 0
