"""The live view of a run: a thread with a session of its own looks, whoever drives the run."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cerebro_db.cli.output import console as screen
from cerebro_db.cli.output import show, to_stderr
from cerebro_db.cli.pictures import STATUSES, picture
from cerebro_db.core.search import SearchSpec
from cerebro_db.errors import CerebroError
from cerebro_db.models.best import best_trials
from cerebro_db.postgres.catalog.trials import Progress, TrialRow, progress_of, search_of, trials_of
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.watching import reading
from cerebro_db.watching.view import SECONDS, View, pause_after, until_stopped, view_of, wait

# Lines that are no configuration: head, headings, workers.
_OTHER_LINES, _FEWEST, _FEWEST_TRIALS = 10, 5, 3


def looked_at(
    session: Session, run_id: int | None, console: Console
) -> tuple[View, RenderableType]:
    """Standing of a run, and its picture.

    Raises:
        UndefinedRun: the caller has no such run.
    """
    view = view_of(session, run_id, fitting(console))
    if view.facts.search is None:
        return view, picture(view, console.width)
    number = view.facts.run_id
    _, spec = search_of(session, number)
    trials = trials_of(session, number)
    rungs = drawn(number, progress_of(session, number), spec, trials)
    if console.is_terminal:  # all of it is to be seen
        room = fitting(console) - len(console.render_lines(rungs, pad=False))
        view = view._replace(lines=view.lines[: max(_FEWEST_TRIALS, room)])
    return view, Group(rungs, picture(view, console.width, titled=False))


def fitting(console: Console, workers: int = 4) -> int:
    """Number of configurations that a terminal has lines for."""
    if not console.is_terminal:
        return 20
    return max(_FEWEST, console.height - _OTHER_LINES - workers)


def watch(
    session: Session,
    run_id: int | None,
    console: Console,
    seconds: float = SECONDS,
    once: bool = False,
) -> str:
    """Show a run until it has stopped; returns its status.

    Where the console is no terminal, what it looks like at the end is all that is shown.

    Args:
        session: on its database.
        run_id: None for the newest that goes on, or else the newest.
        console: where it is drawn.
        seconds: between looks, at least.
        once: whether to look once only.
    """
    view, shown = looked_at(session, run_id, console)
    if once:
        console.print(shown)
        return view.facts.status
    number = view.facts.run_id
    with Live(shown, console=console, auto_refresh=False) as live:
        while view.facts.goes_on:
            began = time.monotonic()
            view, shown = looked_at(session, number, console)
            live.update(shown, refresh=True)
            if view.facts.goes_on:
                pause = pause_after(began, seconds)
                wait(pause, seconds, lambda: not reading.goes_on(session, number))
    return view.facts.status


@contextmanager
def driven(
    connect: Callable[[], Session], live: bool, as_json: bool = False
) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Drive a run in this process; yields functions that take its run_id and the lines of its progress.

    Args:
        connect: makes a session for the thread that looks.
        live: whether a terminal shows the run meanwhile.
        as_json: whether standard output is a program's, so that lines are none of it.
    """
    if live and sys.stdout.isatty() and not as_json:
        with shown_beside(connect, screen()) as found:
            yield found
    else:
        yield (lambda run_id: None), (to_stderr if as_json else show)


@contextmanager
def shown_beside(
    connect: Callable[[], Session], console: Console
) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Show a run beside its driver; yields functions that take its run_id and the lines of its progress.

    Args:
        connect: makes a session for the thread that looks.
        console: a terminal.
    """
    known, stop = threading.Event(), threading.Event()
    runs: list[int] = []

    def registered(run_id: int) -> None:
        runs.append(run_id)
        known.set()

    with Live(console=console, auto_refresh=False) as live:

        def look() -> None:
            known.wait()
            if not runs:
                return
            with suppress(CerebroError):  # of the view only; the driver tells of its own
                session = connect()

                def draw() -> None:
                    live.update(looked_at(session, runs[-1], console)[1], refresh=True)

                try:
                    until_stopped(stop, draw, SECONDS)
                finally:
                    session.close()

        thread = threading.Thread(target=look, name="watching", daemon=True)
        thread.start()
        try:
            yield registered, lambda line: console.print(line, highlight=False, markup=False)
        finally:
            stop.set()
            known.set()
            thread.join(timeout=10)


def drawn(run_id: int, progress: Progress, spec: SearchSpec, trials: Sequence[TrialRow]) -> Group:
    """The whole view: a line about the search, its rungs, the newest decisions."""
    return Group(_head(run_id, progress, spec, trials), _rungs(spec, trials), _decisions(progress))


def _head(run_id: int, progress: Progress, spec: SearchSpec, trials: Sequence[TrialRow]) -> Text:
    counts = Counter(one.status for one in trials)
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    best = f" · best {progress.best[1]:.4g}, trial {progress.best[0]}" if progress.best else ""
    aims = ", ".join(one.monitor for one in spec.objectives)
    name = f" {progress.name}" if progress.name else ""
    return Text(
        f"run {run_id}{name} · {progress.method} · {progress.status} · {len(trials)} trials: "
        f"{', '.join(parts) or 'none'}{best}  ({aims})",
        style="bold",
        overflow="fold",
    )


def _rungs(spec: SearchSpec, trials: Sequence[TrialRow]) -> Table:
    """A row for each bracket, a column for each rung, with the trials that are in it now."""
    places: dict[tuple[int, int], list[TrialRow]] = {}
    for one in trials:
        places.setdefault((_or_none(one.bracket), _or_none(one.rung)), []).append(one)
    table = Table("bracket", expand=False)
    rungs = sorted({rung for _, rung in places})
    for rung in rungs:
        table.add_column("trials" if rung < 0 else f"rung {rung}")
    for bracket in sorted({bracket for bracket, _ in places}, reverse=True):
        cells = [_cell(spec, places.get((bracket, rung), [])) for rung in rungs]
        table.add_row("" if bracket < 0 else str(bracket), *cells)
    return table


def _or_none(place: int | None) -> int:
    return -1 if place is None else place


def _cell(spec: SearchSpec, trials: Sequence[TrialRow]) -> Text:
    text = Text()
    counts = Counter(one.status for one in trials)
    for status, style in STATUSES.items():
        if counts[status]:
            text.append(f"{counts[status]} {status}\n", style=style)
    epochs = sorted({one.budget for one in trials})
    if epochs:
        span = str(epochs[0]) if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
        text.append(f"{span} epoch{'' if epochs == [1] else 's'}")
    for best in best_trials(spec, trials, 1):
        text.append(f"\nbest {best.objectives[0]:.4g}, trial {best.mst_key}", style="bold")
    return text


def _decisions(progress: Progress) -> Text:
    lines = [
        f"{when} {action}{f' {mst_key}' if mst_key else ''}{f': {reason}' if reason else ''}"
        for when, action, mst_key, reason in progress.decisions
    ]
    return Text("\n".join(lines), style="dim", overflow="ellipsis")
