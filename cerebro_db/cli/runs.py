"""The commands that show runs and jobs, and compare runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cerebro_db.cli.commands import INTERRUPTED, Dsn, database_of, session_of
from cerebro_db.cli.output import AsJson, console, print_json
from cerebro_db.watching.view import SECONDS

NewestRun = Annotated[
    int | None,
    typer.Argument(
        help="Default: the newest that goes on, or else the newest.", show_default=False
    ),
]
Most = Annotated[int, typer.Option(help="Configurations that are shown.", min=1)]
ALL = 1_000_000


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (watch, runs, compare, jobs):
        app.command()(command)
    app.command("show")(show_run)


def watch(
    run_id: NewestRun = None,
    dsn: Dsn = "",
    once: Annotated[bool, typer.Option("--once", help="Print it once, for logs.")] = False,
    as_json: AsJson = False,
    seconds: Annotated[float, typer.Option(help="Between looks, at least.", min=0.1)] = SECONDS,
) -> None:
    """Shows how far a run is, its leaderboard, its workers, the rungs of a search, until it ends."""
    from cerebro_db.cli import watching
    from cerebro_db.watching.view import as_json as plain
    from cerebro_db.watching.view import view_of

    if as_json:
        print_json(plain(view_of(session_of(dsn), run_id, ALL)))
        return
    try:
        watching.watch(session_of(dsn), run_id, console(), seconds, once)
    except KeyboardInterrupt:  # the run goes on
        raise typer.Exit(INTERRUPTED) from None


def runs(
    dsn: Dsn = "",
    limit: Annotated[int, typer.Option(help="How many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Lists the newest runs."""
    from cerebro_db.cli.pictures import of_runs
    from cerebro_db.watching.reading import runs_facts

    found = runs_facts(session_of(dsn), limit)
    if as_json:
        print_json([one._asdict() for one in found])
    else:
        console().print(of_runs(found))


def show_run(
    run_id: NewestRun = None, dsn: Dsn = "", most: Most = 20, as_json: AsJson = False
) -> None:
    """Shows what a run was asked for, how it stands, and its leaderboard."""
    from cerebro_db.cli.pictures import of_facts, picture
    from cerebro_db.watching.reading import standings
    from cerebro_db.watching.statements import statement_of
    from cerebro_db.watching.view import view_of

    session = session_of(dsn)
    view = view_of(session, run_id, most)
    statement = statement_of(session, view.facts)
    if as_json:
        board = standings(session, view.facts.run_id)
        print_json({
            "run": view.facts._asdict(), "pace": view.pace._asdict(), "again": statement,
            "leaderboard": [one._asdict() | {"results": one.results()} for one in board],
        })  # fmt: skip
        return
    screen = console()
    hidden = ("run_id", "name", "status", "error", "manifest", "search", "active")
    facts = {name: one for name, one in view.facts._asdict().items() if name not in hidden}
    screen.print(picture(view, screen.width))
    screen.print(of_facts(facts | dict(view.facts.manifest)))
    screen.print(f"\n{statement}", markup=False, highlight=False, soft_wrap=True)


def compare(
    run_ids: Annotated[list[int], typer.Argument(help="Two runs, or more.")],
    dsn: Dsn = "",
    most: Most = 50,
    as_json: AsJson = False,
) -> None:
    """Shows what differs between runs in data, arguments, versions and results."""
    from cerebro_db.cli.pictures import of_comparison
    from cerebro_db.errors import InvalidArgument
    from cerebro_db.watching.comparing import compare as compared

    if len(run_ids) < 2:
        raise InvalidArgument(f"got {len(run_ids)} run; allowed: two or more")
    found = compared(session_of(dsn), run_ids)
    if as_json:
        print_json(found.to_json())
    else:
        console().print(of_comparison(found, most))


_JOBS = (
    "job_id", "owner", "call", "run_id", "status", "priority", "schedule", "submitted", "started", "finished",
    "place", "estimated_start", "error",
)  # fmt: skip


def jobs(
    dsn: Dsn = "",
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """Shows the jobs: what waits, what goes on, what has ended."""
    from cerebro_db.cli.pictures import of_jobs

    sql = f"SELECT {', '.join(_JOBS)} FROM cerebro.jobs ORDER BY job_id DESC LIMIT %s"
    with database_of(dsn) as connections:
        rows = connections.run(sql, (limit,))
    found = [dict(zip(_JOBS, row, strict=True)) for row in reversed(rows)]
    if as_json:
        print_json(found)
    else:
        console().print(of_jobs(found))
