"""The commands about jobs: the daemon, schedules, waiting."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, console, print_json, show, tell, to_stderr
from cerebro_db.cli.training import cancellable, client_of, session_of
from cerebro_db.errors import CerebroError, InvalidArgument

if TYPE_CHECKING:
    from cerebro_db.postgres.calls.host import Client
    from cerebro_db.postgres.sessions.session import Session

SECONDS = 15.0
_SCHEDULES = (
    "SELECT owner::text, name, cron FROM cerebro.schedules WHERE timer = 'daemon' "
    "ORDER BY owner, name"
)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (daemon, schedule, jobs, wait):
        app.command()(command)


def daemon(
    dsn: Dsn = "",
    seconds: Annotated[float, typer.Option(help="Between looks.")] = SECONDS,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="A port for Prometheus to scrape.", show_default=False),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(help="The address of this machine that it is on.")
    ] = "127.0.0.1",
) -> None:
    """Starts jobs that wait, goes on with those that a restart of the server has ended, and is the timer of schedules."""
    if not seconds > 0:
        raise InvalidArgument(f"--seconds: got {seconds:g}; allowed: above 0")
    if metrics_port is not None:
        _serve_metrics(dsn, metrics_address, metrics_port)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # it is told to end
        _watch(dsn, seconds, once=once)


def _serve_metrics(dsn: str, address: str, port: int) -> None:
    """Answer Prometheus from a thread, which reads through a session of its own."""
    from cerebro_db.postgres.sessions.dsn import with_keepalives
    from cerebro_db.watching.prometheus import serve

    if not 1 <= port <= 65535:
        raise InvalidArgument(f"--metrics-port: got {port}; allowed: 1 to 65535")
    try:
        serve(lambda: session_of(with_keepalives(dsn)), address, port)
    except OSError as error:
        raise InvalidArgument(
            f"--metrics-port: got {port} of {address}; {error.strerror or error}"
        ) from None


def _watch(dsn: str, seconds: float, *, once: bool) -> None:
    since = datetime.now().astimezone()
    while True:
        now = datetime.now().astimezone()
        try:
            _look(dsn, since, now)
            since = now
        except CerebroError as error:  # the server restarts, for example
            if once:
                raise
            to_stderr(f"cerebro: {error.message}")
            since = max(since, now - timedelta(hours=1))
        if once:
            return
        time.sleep(seconds)


def _look(dsn: str, since: datetime, now: datetime) -> None:
    client = client_of(dsn)
    (session,) = client.pool.take(1)
    try:
        started = session.run("SELECT cerebro.cerebro_work()")[0][0]
        if started:
            show(f"{now:%Y-%m-%d %H:%M:%S} jobs started: {started}")
        for owner, name, cron in session.run(_SCHEDULES):
            if is_due(cron, since, now):
                _start(session, owner, name, now)
    finally:
        session.close()
        client.pool.close()


def is_due(cron: str, since: datetime, now: datetime) -> bool:
    """True if a schedule was to start after one moment, up to another."""
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(cron, since)) <= now
    except (CronSimError, StopIteration):
        return False


def _start(session: Session, owner: str, name: str, now: datetime) -> None:
    """Start a schedule as the role that has made it."""
    from cerebro_db.postgres.names import quote

    try:
        session.run(f"SET ROLE {quote(owner)}")
        job_id = session.run("SELECT cerebro.cerebro_start_schedule(%s)", (name,))[0][0]
        done = "skipped, as the one before goes on" if job_id is None else f"job {job_id}"
        show(f"{now:%Y-%m-%d %H:%M:%S} schedule {name} of {owner}: {done}")
    except CerebroError as error:
        to_stderr(f"cerebro: schedule {name} of {owner}: {error.message}")
    finally:
        session.reset()
        session.run("RESET ROLE")


def schedule(
    name: Annotated[str, typer.Argument(help="Of the schedule.")],
    cron: Annotated[str | None, typer.Argument(help="Such as '0 3 * * *'.")] = None,
    calls: Annotated[
        str | None, typer.Argument(help="JSON of the calls, or @FILE with it.", show_default=False)
    ] = None,
    dsn: Dsn = "",
    on_success: Annotated[
        str | None, typer.Option(help="Such as model:digits@champion.", show_default=False)
    ] = None,
    priority: Annotated[int, typer.Option(help="Of the jobs.")] = 0,
    print_line: Annotated[
        bool, typer.Option("--print", help="Print the line for crontab, which is the timer then.")
    ] = False,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="With --print: units of systemd instead.")
    ] = False,
    timer: Annotated[str | None, typer.Option(help="pg_cron, crontab or daemon.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Start a schedule that there is.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="End a schedule.")] = False,
    as_json: AsJson = False,
) -> None:
    """Has calls made again and again as jobs, or starts or ends a schedule."""
    if start or remove:
        _known(client_of(dsn), name, as_json, remove=remove)
        return
    if cron is None or calls is None:
        raise InvalidArgument("got no CRON and CALLS; allowed without them: --start or --remove")
    if systemd and not print_line:
        raise InvalidArgument("got --systemd; allowed with --print")
    chosen = timer or ("crontab" if print_line else None)
    if print_line and "password" in dsn:
        raise InvalidArgument(
            "--dsn: got one with a password, which the printed line would show to everybody; allowed "
            "with --print: one without",
            hint="keep it in a file of the user whose timer it is: passfile=..., or service=...",
        )
    if print_line and chosen != "crontab":
        raise InvalidArgument(f"--timer: got {chosen}; allowed with --print: crontab")
    values = [name, cron, _text_of(calls), on_success, priority, chosen]
    sql = "SELECT cerebro.cerebro_schedule(%s, %s, %s::json, %s, %s, %s)"
    _statement(client_of(dsn), sql, values)
    if print_line:
        lines = units(name, cron, dsn) if systemd else crontab_line(name, cron, dsn)
        show(lines)
    else:
        of_name = "SELECT timer FROM cerebro.schedules WHERE name = %s AND owner = current_user"
        chosen = _statement(client_of(dsn), of_name, [name])[0][0]
        tell(as_json, f"schedule {name}: {cron}, by {chosen}", name=name, cron=cron, timer=chosen)


def _known(client: Client, name: str, as_json: bool, *, remove: bool) -> None:
    if remove:
        _statement(client, "SELECT cerebro.cerebro_unschedule(%s)", [name])
        tell(as_json, f"schedule {name} is removed", name=name, status="removed")
        return
    job_id = _statement(client, "SELECT cerebro.cerebro_start_schedule(%s)", [name])[0][0]
    done = "skipped, as the one before goes on" if job_id is None else f"job {job_id}"
    status = "skipped" if job_id is None else "started"
    tell(as_json, f"schedule {name}: {done}", name=name, status=status, job_id=job_id)


def _text_of(calls: str) -> str:
    if not calls.startswith("@"):
        return calls
    try:
        return Path(calls[1:]).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"CALLS: got {calls}: {error}") from None


def _statement(client: Client, sql: str, values: list[Any]) -> list[tuple[Any, ...]]:
    """Run a statement with the search path of a plain session of this role."""
    (session,) = client.pool.take(1)
    try:
        session.run("SELECT pg_catalog.set_config('search_path', %s, false)", (client.search_path,))
        return session.run(sql, values)
    finally:
        session.close()
        client.pool.close()


def command_of(name: str, dsn: str) -> list[str]:
    """The program and its arguments that start a schedule."""
    program = str(Path(sys.executable).with_name("cerebro"))
    return [program, "schedule", name, "--start", *(["--dsn", dsn] if dsn else [])]


def crontab_line(name: str, cron: str, dsn: str) -> str:
    """The line for crontab, where a per cent sign would end the command."""
    return f"{cron} {shlex.join(command_of(name, dsn))}".replace("%", r"\%")


def units(name: str, cron: str, dsn: str) -> str:
    """A service and a timer of systemd.

    Raises:
        InvalidArgument: systemd has no such calendar.
    """
    unit = "cerebro-" + "".join(one if one.isalnum() else "-" for one in name)
    command = " ".join(
        json.dumps(one).replace("%", "%%").replace("$", "$$") for one in command_of(name, dsn)
    )
    return (
        f"# /etc/systemd/system/{unit}.service\n[Unit]\nDescription=Cerebro-DB: schedule {unit}\n\n"
        f"[Service]\nType=oneshot\nExecStart={command}\n\n"
        f"# /etc/systemd/system/{unit}.timer\n[Timer]\nOnCalendar={calendar_of(cron)}\nPersistent=true\n\n"
        "[Install]\nWantedBy=timers.target"
    )


_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def calendar_of(cron: str) -> str:
    """A cron expression as OnCalendar of systemd.

    Raises:
        InvalidArgument: it has what systemd lacks: both kinds of days, or names.
    """
    minute, hour, day, month, weekday = cron.split()
    if not set("".join((minute, hour, day, month, weekday))) <= set("0123456789*,-/"):
        raise InvalidArgument(f"cron: got {cron!r}; allowed with --systemd: numbers, *, /, - and ,")
    if day != "*" and weekday != "*":
        raise InvalidArgument(
            f"cron: got {cron!r}; allowed with --systemd: days of the month or of the week, not both"
        )
    fields = [_spread(one, 1) for one in (month, day)] + [_spread(one, 0) for one in (hour, minute)]
    days = "" if weekday == "*" else _weekdays(cron, weekday) + " "
    return f"{days}*-{fields[0]}-{fields[1]} {fields[2]}:{fields[3]}:00"


def _spread(field: str, first: int) -> str:
    """A field whose values begin with the first one, with ranges as systemd writes them."""
    return field.replace("-", "..").replace("*/", f"{first}/")


def _weekdays(cron: str, field: str) -> str:
    days = []
    for part in field.split(","):
        ends = part.split("-")
        if not all(one.isdigit() and int(one) <= 7 for one in ends):
            raise InvalidArgument(f"cron: got {cron!r}; allowed with --systemd: days 0 to 7")
        # One by one: a week of systemd begins on Monday, and no range goes over its end.
        days += [_DAYS[day] for day in range(int(ends[0]), int(ends[-1]) + 1)]
    return ",".join(dict.fromkeys(days))


_JOBS = """
SELECT j.job_id, j.owner::text, j.call, j.run_id, j.status, j.priority, j.schedule, j.submitted, j.started, j.finished,
       j.place, j.estimated_start, j.error
  FROM (SELECT * FROM cerebro.jobs ORDER BY job_id DESC LIMIT %s) j ORDER BY j.job_id
"""
_COLUMNS = (
    "job_id", "owner", "call", "run_id", "status", "priority", "schedule", "submitted", "started", "finished",
    "place", "estimated_start", "error",
)  # fmt: skip
_SHOWN = ("job_id", "owner", "call", "run_id", "status", "schedule", "place", "submitted", "finished", "error")  # fmt: skip


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else str(value)


def jobs(
    dsn: Dsn = "",
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """Shows the jobs: what waits, what goes on, what has ended."""
    from rich.table import Table
    from rich.text import Text

    rows = _statement(client_of(dsn), _JOBS, [limit])
    found = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    if as_json:
        print_json(found)
        return
    table = Table(pad_edge=False, box=None, header_style="bold")
    for name in _SHOWN:
        table.add_column(name, overflow="fold", no_wrap=name in ("submitted", "finished"))
    for one in found:
        table.add_row(*(Text(_shown(one[name])) for name in _SHOWN))
    console().print(table)


def wait(
    run_id: Annotated[int, typer.Argument(help="As cerebro.runs shows it.")],
    dsn: Dsn = "",
    timeout: Annotated[float | None, typer.Option(help="Seconds.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Waits until a run has ended; the exit code is 1 where it has not finished."""
    with cancellable():
        sql = "SELECT cerebro.cerebro_wait(%s, %s * interval '1 second')"
        status = _statement(client_of(dsn), sql, [run_id, timeout])[0][0]
    tell(as_json, f"run {run_id}: {status}", run_id=run_id, status=status)
    if status != "finished":
        raise typer.Exit(1)
