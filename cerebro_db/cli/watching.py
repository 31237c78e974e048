"""The live view of a search: a thread with a session of its own looks, whoever drives the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live

from cerebro_db.cli.rungs import drawn
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.trials import Progress, progress_of, search_of, trials_of

if TYPE_CHECKING:
    from cerebro_db.postgres.client import Client

SECONDS = 1.0


def looked_at(client: Client, run_id: int) -> tuple[Progress, Group]:
    """How a search stands, and its picture.

    Raises:
        UndefinedRun: the caller has no such run.
        InvalidArgument: it is no search.
    """
    (session,) = client.pool.take(1)
    try:
        _, spec = search_of(session, run_id)
        trials = trials_of(session, run_id)
        progress = progress_of(session, run_id)
        return progress, drawn(run_id, progress, spec, trials)
    finally:
        client.pool.give([session])


def watch(client: Client, run_id: int, console: Console, seconds: float = SECONDS) -> str:
    """Show a search until nobody drives it any more; returns its status then.

    Where the console is no terminal, what it looks like at the end is all that is shown.
    """
    stop = threading.Event()
    progress, picture = looked_at(client, run_id)
    with Live(picture, console=console, auto_refresh=False) as live:
        while progress.goes_on:
            stop.wait(seconds)
            progress, picture = looked_at(client, run_id)
            live.update(picture, refresh=True)
    return progress.status


@contextmanager
def shown_beside(
    connect: Callable[[], Client], console: Console
) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """While this lasts a run is shown beside its driver; yields what is told its run_id, and lines.

    Args:
        connect: makes a client for the thread that looks.
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
                client = connect()
                try:
                    ended = False
                    while not ended:  # once more at the end
                        ended = stop.wait(SECONDS)
                        live.update(looked_at(client, runs[-1])[1], refresh=True)
                finally:
                    client.pool.close()

        thread = threading.Thread(target=look, name="watching", daemon=True)
        thread.start()
        try:
            yield registered, lambda line: console.print(line, highlight=False)
        finally:
            stop.set()
            known.set()
            thread.join(timeout=10)
