"""Progress of a run as a bar, in terminals and notebooks."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from cerebro_db.core.statuses import DRIVEN
from cerebro_db.errors import CerebroError
from cerebro_db.postgres.sessions.connections import Connections
from cerebro_db.watching import reading, texts
from cerebro_db.watching.reading import Pace, RunFacts
from cerebro_db.watching.view import pause_after, until_stopped

SECONDS = 0.5


class Shown(Protocol):
    """Place at which progress is shown."""

    def update(self, facts: RunFacts, pace: Pace) -> None:
        """Show how far a run is."""

    def close(self) -> None:
        """Leave the bar as it is."""


def in_notebook() -> bool:
    """True if IPython runs this with a front end that shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def is_shown(wanted: bool | None) -> bool:
    """True if somebody looks; by default in terminals and notebooks."""
    return (sys.stderr.isatty() or in_notebook()) if wanted is None else wanted


def line(facts: RunFacts, pace: Pace) -> str:
    """Progress of a run, in words."""
    speed = f", {pace.rows_per_second:,.0f} rows/s" if pace.rows_per_second else ""
    left = f", {texts.duration(pace.seconds_left)} left" if facts.goes_on else ""
    left = ", waits for configurations" if facts.goes_on and pace.waits else left
    failed = f", {pace.failed} failed" if pace.failed else ""
    return (
        f"{facts.title} {facts.status}: {pace.done:,} of {pace.planned:,} hops, "
        f"{pace.configurations} configurations{failed}{speed}{left}"
    )


class NotebookBar:
    """A bar of HTML, which changes in its place and needs no widgets."""

    def __init__(self) -> None:
        self._handle: Any = None

    def update(self, facts: RunFacts, pace: Pace) -> None:
        """Show how far a run is."""
        from IPython import display

        shown = display.HTML(
            f'<progress value="{pace.share:.4f}" max="1" style="width: 24em"></progress> '
            f"{html.escape(line(facts, pace))}"
        )
        if self._handle is None:
            self._handle = display.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def close(self) -> None:
        """Leave the bar as it is."""


class TerminalBar:
    """A bar of a terminal."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from cerebro_db.watching.screen import Screen

        self._progress = Progress(
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            console=Screen(stderr=True),
        )
        self._task = self._progress.add_task("", total=1.0)
        self._progress.start()

    def update(self, facts: RunFacts, pace: Pace) -> None:
        """Show how far a run is."""
        self._progress.update(self._task, completed=pace.share, description=line(facts, pace))

    def close(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()


def shown() -> Shown:
    """A bar for where this runs."""
    return NotebookBar() if in_notebook() else TerminalBar()


def follow(
    connections: Connections,
    run_id: int,
    timeout: float | None = None,
    bar: Shown | None = None,
    seconds: float = SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> RunFacts:
    """Wait until no driver works on a run any more; returns the last progress.

    Args:
        connections: to its database.
        run_id: of the run.
        timeout: seconds to wait at most; None for any time.
        bar: shown meanwhile.
        seconds: between looks, at least.
        sleep: waits.

    Raises:
        UndefinedRun: there is no such run, or no longer.
        TimeoutError: it still goes on.
    """
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            began = time.monotonic()
            facts = reading.run_facts(connections, run_id)
            if bar is not None:
                bar.update(facts, reading.pace(connections, run_id))
            if not facts.goes_on:
                return facts
            pause = pause_after(began, seconds)
            if end is not None:
                if time.monotonic() >= end:
                    raise TimeoutError(f"run {run_id} still goes on after {timeout:g} seconds")
                pause = min(pause, end - time.monotonic())
            sleep(max(0.0, pause))
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def shown_beside(
    connections: Connections, run_id: int | None, wanted: bool | None, wait: bool
) -> Iterator[None]:
    """Show the progress of a call that begins or resumes a run, while it lasts.

    Args:
        connections: to the database; a second connection looks.
        run_id: of the run; None for the one that begins now.
        wanted: whether it is shown; None to decide by where this runs.
        wait: whether the call waits for the run.
    """
    if not wait or connections.is_shared or not is_shown(wanted):
        yield
        return
    stop = threading.Event()
    looking = connections.another()

    def look() -> None:
        with suppress(CerebroError):  # of the bar only: the call tells of its own
            before = run_id - 1 if run_id is not None else _last(looking)
            known = run_id
            while known is None and not stop.wait(SECONDS):
                known = _next(looking, before)
            if known is not None:
                _look_until(looking, known, stop)

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
        looking.close()


def _look_until(connections: Connections, run_id: int, stop: threading.Event) -> None:
    bar = shown()

    def look() -> None:
        bar.update(reading.run_facts(connections, run_id), reading.pace(connections, run_id))

    try:
        until_stopped(stop, look, SECONDS)
    finally:
        bar.close()


def _last(connections: Connections) -> int:
    return int(connections.run("SELECT coalesce(max(run_id), 0) FROM cerebro._runs")[0][0])


def _next(connections: Connections, before: int) -> int | None:
    """The first run of this role after another one that somebody drives."""
    return connections.run(_BEGUN, (before,))[0][0]  # type: ignore[no-any-return]


_BEGUN = f"""
SELECT min(r.run_id) FROM cerebro.runs r
 WHERE r.run_id > %s AND r.owner = current_user AND r.status IN {DRIVEN}
"""
