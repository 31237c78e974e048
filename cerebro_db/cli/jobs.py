"""The commands about schedules: the daemon that is their timer, and those for other timers."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from cerebro_db.cli.commands import Dsn, called, command_of, database_of, session_of
from cerebro_db.cli.output import show, show_result, to_stderr
from cerebro_db.errors import CerebroError, InvalidArgument
from cerebro_db.requests.jobs import ScheduleRequest, StartScheduleRequest, UnscheduleRequest

if TYPE_CHECKING:
    from cerebro_db.postgres.sessions.connections import Connections

SECONDS = 15.0
_SCHEDULES = (
    "SELECT owner::text, name, cron FROM cerebro.schedules WHERE timer = 'daemon' "
    "ORDER BY owner, name"
)


# Settings of a role, or what it holds, may keep its own schedule from starting; those of others are started next.
_MOST_SECONDS = 60


_TIMER = "SELECT timer FROM cerebro.schedules WHERE name = %s AND owner = current_user"
_OPTIONS = {
    "print_line": ("--print", "Print the line for crontab, which is the timer then."),
    "systemd": ("--systemd", "With --print: units of systemd instead."),
    "start": ("--start", "Start a schedule that there is."),
    "remove": ("--remove", "End a schedule."),
}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(daemon)
    more = {
        name: (Annotated[bool, typer.Option(option, help=text)], False)
        for name, (option, text) in _OPTIONS.items()
    }
    names = ("cron", "calls")
    app.command("schedule")(
        command_of(
            ScheduleRequest,
            schedule,
            help=schedule.__doc__,
            optional=names,
            places=names,
            more=more,
        )
    )


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
    with suppress(KeyboardInterrupt):  # a service manager ends it
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
    with database_of(dsn) as connections:
        started = connections.run("SELECT cerebro.cerebro_work()")[0][0]
        if started:
            show(f"{now:%Y-%m-%d %H:%M:%S} jobs started: {started}")
        for owner, name, cron in connections.run(_SCHEDULES):
            if is_due(cron, since, now):
                _start(connections, owner, name, now)


def is_due(cron: str, since: datetime, now: datetime) -> bool:
    """True if a schedule was to start after one moment, up to another."""
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(cron, since)) <= now
    except (CronSimError, StopIteration):
        return False


def _start(connections: Connections, owner: str, name: str, now: datetime) -> None:
    """Start a schedule as the role that has made it."""
    from cerebro_db.postgres.names import quote

    try:
        connections.run(f"SET statement_timeout = '{_MOST_SECONDS}s'")
        connections.run(f"SET ROLE {quote(owner)}")
        job_id = connections.run("SELECT cerebro.cerebro_start_schedule(%s)", (name,))[0][0]
        show(f"{now:%Y-%m-%d %H:%M:%S} schedule {name} of {owner}: {_started(job_id)}")
    except CerebroError as error:
        to_stderr(f"cerebro: schedule {name} of {owner}: {error.message}")
    finally:
        connections.run("RESET ROLE")
        connections.run("RESET statement_timeout")


def schedule(
    make_request: Callable[..., ScheduleRequest],
    dsn: str,
    print_line: bool,
    systemd: bool,
    start: bool,
    remove: bool,
    as_json: bool,
) -> None:
    """Has calls made again and again as jobs, or starts or ends a schedule."""
    request = make_request()
    if start or remove:
        _known(dsn, request.name or "", as_json, remove=remove)
        return
    if request.cron is None or request.calls is None:
        raise InvalidArgument("got no CRON and CALLS; allowed without them: --start or --remove")
    if systemd and not print_line:
        raise InvalidArgument("got --systemd; allowed with --print")
    if print_line and "password" in dsn:
        raise InvalidArgument(
            "--dsn: got one with a password, which the printed line would show to everybody; allowed "
            "with --print: one without",
            hint="keep it in a file of the user whose timer it is: passfile=..., or service=...",
        )
    if print_line and request.timer not in (None, "crontab"):
        raise InvalidArgument(f"--timer: got {request.timer}; allowed with --print: crontab")
    timer = "crontab" if print_line else request.timer
    called(dsn, structs.replace(request, calls=_text_of(request.calls), timer=timer))
    name, cron = str(request.name), request.cron
    if print_line:
        show(units(name, cron, dsn) if systemd else crontab_line(name, cron, dsn))
        return
    with database_of(dsn) as connections:
        ((timer,),) = connections.run(_TIMER, (name,))
    show_result(as_json, f"schedule {name}: {cron}, by {timer}", name=name, cron=cron, timer=timer)


def _known(dsn: str, name: str, as_json: bool, *, remove: bool) -> None:
    """Start a schedule that there is, or end it."""
    if remove:
        called(dsn, UnscheduleRequest(name))
        show_result(as_json, f"schedule {name} is removed", name=name, status="removed")
        return
    ((job_id,),) = called(dsn, StartScheduleRequest(name))
    status = "skipped" if job_id is None else "started"
    show_result(
        as_json, f"schedule {name}: {_started(job_id)}", name=name, status=status, job_id=job_id
    )


def _started(job_id: int | None) -> str:
    return "skipped, as the one before goes on" if job_id is None else f"job {job_id}"


def _text_of(calls: str) -> str:
    if not calls.startswith("@"):
        return calls
    try:
        return Path(calls[1:]).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"CALLS: got {calls}: {error}") from None


def starting(name: str, dsn: str) -> list[str]:
    """The program and its arguments that start a schedule."""
    program = str(Path(sys.executable).with_name("cerebro"))
    return [program, "schedule", name, "--start", *(["--dsn", dsn] if dsn else [])]


def crontab_line(name: str, cron: str, dsn: str) -> str:
    """The line for crontab, where a per cent sign would end the command."""
    return f"{cron} {shlex.join(starting(name, dsn))}".replace("%", r"\%")


def units(name: str, cron: str, dsn: str) -> str:
    """A service and a timer of systemd.

    Raises:
        InvalidArgument: systemd has no such calendar.
    """
    unit = "cerebro-" + "".join(one if one.isalnum() else "-" for one in name)
    command = " ".join(
        json.dumps(one).replace("%", "%%").replace("$", "$$") for one in starting(name, dsn)
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
