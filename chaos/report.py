"""Shows in a terminal how the trials go, and what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from chaos.moments import ENDING, IMPORTING, OVER, SETTING_UP, TRAINING
from chaos.stops import FUNCTIONS, WAYS, Stopped
from chaos.trial import Report

_PHASES = (SETTING_UP, IMPORTING, TRAINING, ENDING, OVER)
console = Console()
if not console.is_terminal:  # a file has room for lines and tables
    console = Console(width=160)


_Found = TypeVar("_Found")


def followed(
    reports: Iterable[_Found], total: int, line: Callable[[_Found], str]
) -> Iterator[_Found]:
    """Trials with a progress bar, and a line for each."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("trials", total=total)
        for report in reports:
            progress.console.print(line(report), highlight=False, markup=False)
            progress.advance(task)
            yield report


def line(report: Report) -> str:
    """A trial in one line; of a failed one with what repeats it."""
    plan = report.plan
    hits = ", then ".join(
        f"{hit['who'] or 'nobody left'} ({hit['phase']}, {hit['hops']} hops)" for hit in report.hits
    )
    end = "identical"
    if report.deviations:
        again = f"--seed {plan.seed} --trial {plan.number} --victims {plan.victim}"
        moments = "; ".join(map(str, plan.kills))
        end = f"DEVIATES [{moments}] repeat with {again}: {'; '.join(report.deviations)}"
    return f"{plan.number:3} {plan.durability:5} {hits}: {end} ({report.seconds:.0f} s)"


def show(reports: Sequence[Report]) -> None:
    """The table of all trials."""
    table = Table(title="kills, and what became of the runs", title_justify="left")
    table.add_column("victim")
    names = ("trials", "kills", *_PHASES, "begun anew", "resumed", "by itself", "identical")
    for name in names:
        table.add_column(name, justify="right")
    victims = list(dict.fromkeys(report.plan.victim for report in reports))
    for victim in victims:
        table.add_row(victim, *_row([r for r in reports if r.plan.victim == victim]))
    table.add_section()
    table.add_row("all", *_row(reports))
    console.print(table)


def _row(reports: Sequence[Report]) -> list[str]:
    hits = [hit for report in reports for hit in report.hits if hit["who"]]
    phases = Counter(hit["phase"] for hit in hits)
    numbers = [
        len(reports),
        len(hits),
        *(phases[name] for name in _PHASES),
        sum(report.begun - 1 for report in reports),
        sum(report.resumed for report in reports),
        sum(report.alone for report in reports),
        sum(not report.deviations for report in reports),
    ]
    return [str(number) for number in numbers]


def stop_line(report: Stopped) -> str:
    """An interruption in one line; of a failed one with what repeats it."""
    stop = report.stop
    when = f"at {stop.fraction:.0%}" if report.was_under_way else "when it was over"
    end = f"ended after {report.ended:.2f} s, quiet after {report.quiet:.2f} s, "
    end += "resumed" if report.resumed else "called once more" if report.repeated else "done"
    if report.deviations:
        end += f": DEVIATES, repeat with --kills 0 --seed {stop.seed} --stop {stop.number}: "
        end += "; ".join(report.deviations)
    return f"{stop.number:3} {stop.function}: {stop.way} {when}: {end}"


def show_stops(reports: Sequence[Stopped]) -> None:
    """The table of all interruptions."""
    table = Table(title="interruptions, and what became of the calls", title_justify="left")
    for name in ("function", "way"):
        table.add_column(name)
    names = (
        "trials",
        "under way",
        "ended after",
        "quiet after",
        "left",
        "resumed",
        "repeated",
        "as promised",
    )
    for name in names:
        table.add_column(name, justify="right")
    for function in FUNCTIONS:
        for way in WAYS:
            found = [r for r in reports if (r.stop.function, r.stop.way) == (function, way)]
            if found:
                table.add_row(function, way, *_stop_row(found))
    table.add_section()
    table.add_row("all", "", *_stop_row(reports))
    console.print(table)


def _stop_row(reports: Sequence[Stopped]) -> list[str]:
    return [
        str(len(reports)),
        str(sum(report.was_under_way for report in reports)),
        f"{max(report.ended for report in reports):.2f} s",
        f"{max(report.quiet for report in reports):.2f} s",
        str(sum(report.left for report in reports)),
        str(sum(report.resumed for report in reports)),
        str(sum(report.repeated for report in reports)),
        str(sum(not report.deviations for report in reports)),
    ]
