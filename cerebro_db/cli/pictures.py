"""Runs drawn for a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cerebro_db.core.statuses import CONFIGURATIONS
from cerebro_db.watching import texts
from cerebro_db.watching.comparing import Comparison
from cerebro_db.watching.hyperparameters import varying
from cerebro_db.watching.reading import RunFacts
from cerebro_db.watching.view import Line, View, Worker

# In this order, and so coloured.
STATUSES = dict(zip(CONFIGURATIONS, ("green", "cyan", "blue", "dim", "red", "red"), strict=True))
WIDE = 120
# A number as a sampler draws it, with more digits than anybody reads.
_LONG = re.compile(r"\b\d+\.\d{5,}(?:e[-+]?\d+)?\b")
_OF_RUNS = {"running": "green", "starting": "cyan", "failed": "red", "interrupted": "yellow"}


def picture(view: View, width: int = WIDE, titled: bool = True) -> Group:
    """The whole view: how far the run is, its leaderboard, its workers.

    Args:
        view: of the run.
        width: of the terminal; a narrow one has no bars of configurations.
        titled: whether the run is named; below the rungs of a search it is already.
    """
    parts: list[RenderableType] = [_head(view, titled), _board(view, width)]
    if view.total > len(view.lines):
        parts.append(Text(f"and {view.total - len(view.lines)} more", style="dim"))
    if view.workers:
        parts.append(_workers(view.workers, view.facts.goes_on))
    return Group(*parts)


def _head(view: View, titled: bool) -> Text:
    facts, pace = view.facts, view.pace
    counts = ", ".join(f"{view.statuses[one]} {one}" for one in STATUSES if view.statuses.get(one))
    text = Text(overflow="fold")
    is_open = facts.search is not None and facts.goes_on  # nobody knows how many hops there will be
    if titled:
        text.append(f"{facts.title} · ", style="bold")
        text.append(facts.status, style=_OF_RUNS.get(facts.status, "blue"))
        text.append(f" · {view.total} configurations: {counts or 'none'}\n")
    if is_open:
        text.append(f"{pace.done:,} hops so far")
        text.append(" · waits for configurations" if pace.waits else "")
    else:
        text.append(f"{texts.bar(pace.share, 30)} {100 * pace.share:.0f} %", style="green")
        text.append(f" · {pace.done:,} of {pace.planned:,} hops")
    if pace.rows_per_second:
        text.append(f" · {pace.rows_per_second:,.0f} rows/s")
    if facts.goes_on and not is_open:
        text.append(f" · {texts.duration(pace.seconds_left)} left")
    elif pace.seconds and not facts.goes_on:
        text.append(f" · took {texts.duration(pace.seconds)}")
    if facts.error:
        text.append(f"\n{facts.error}", style="red")
    return text


def _board(view: View, width: int) -> Table:
    measure = next((line.measure for line in view.lines if line.measure), "result")
    names = ["rank", "mst_key", "status", "epoch", measure, "curve"]
    if width >= WIDE:
        names = [*names[:4], "progress", measure, "curve", "left"]
    rows = [_cells(line, measure) for line in view.lines]
    table = Table(expand=False, pad_edge=False, box=None, header_style="bold")
    room = width
    for name in names:
        justify: Any = "right" if name in ("rank", "mst_key", "epoch", measure) else "left"
        table.add_column(name, justify=justify, no_wrap=True)
        room -= 2 + max([len(name), *(len(cells[name]) for cells in rows)])
    table.add_column("configuration", no_wrap=True)
    for line, cells in zip(view.lines, rows, strict=True):
        configuration = Text(_LONG.sub(_shortened, line.configuration))
        configuration.truncate(max(room, 13), overflow="ellipsis")
        table.add_row(*(cells[name] for name in names), configuration)
    return table


def _shortened(number: re.Match[str]) -> str:
    return texts.number(float(number[0]))


def _cells(line: Line, measure: str) -> dict[str, Text]:
    """Cells of a configuration, by column."""
    return {
        "rank": Text(str(line.rank)),
        "mst_key": Text(str(line.mst_key)),
        "status": Text(line.status, style=STATUSES.get(line.status, "")),
        "epoch": Text(f"{line.epoch}/{line.epochs}"),
        "progress": Text(line.progress, style="green"),
        "curve": Text(line.curve or ""),
        "left": Text(line.time_left or ""),
        measure: Text(texts.number(line.result)),
    }


def _workers(workers: Sequence[Worker], goes_on: bool) -> Table:
    table = Table(expand=False, pad_edge=False, box=None, header_style="bold")
    for name in ("worker", "pid", "hops", "idle", "scoring", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last hop" if goes_on else "its last hop", no_wrap=True)
    for one in workers:
        ago = f", {texts.duration(one.since)} ago" if goes_on else ""
        table.add_row(
            str(one.worker),
            str(one.pid),
            f"{one.hops:,}",
            f"{100 * one.idle:.0f} %",
            f"{100 * one.scoring:.0f} %",
            f"{one.memory_mb:,} MB",
            f"configuration {one.mst_key}, epoch {one.epoch}, partition {one.partition_key}{ago}",
        )
    return table


def of_runs(runs: Sequence[RunFacts]) -> Table:
    """A row a run."""
    table = Table(pad_edge=False, box=None, header_style="bold")
    table.add_column("run", justify="right")
    for name in ("name", "status", "owner", "source", "output", "epochs", "created", "error"):
        table.add_column(name, overflow="fold")
    for one in runs:
        table.add_row(
            str(one.run_id),
            Text(one.name or ""),
            Text(one.status, style=_OF_RUNS.get(one.status, "")),
            Text(one.owner),
            Text(one.source_table),
            Text(one.model_output_table),
            str(one.num_iterations),
            f"{one.created:%Y-%m-%d %H:%M}",
            Text(one.error or ""),
        )
    return table


_OF_JOBS = ("job_id", "owner", "call", "run_id", "status", "schedule", "place", "submitted", "finished", "error")  # fmt: skip


def of_jobs(jobs: Sequence[Mapping[str, Any]]) -> Table:
    """A row a job, of the columns of ``cerebro.jobs`` those that people look at."""
    table = Table(pad_edge=False, box=None, header_style="bold")
    for name in _OF_JOBS:
        table.add_column(name, overflow="fold", no_wrap=name in ("submitted", "finished"))
    for one in jobs:
        table.add_row(*(Text(_value(one[name])) for name in _OF_JOBS))
    return table


def _value(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else str(value)


def of_facts(facts: Mapping[str, Any]) -> Table:
    """Names and values."""
    table = Table(pad_edge=False, box=None, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            table.add_row(name, Text(str(value)))
    return table


def _sides(found: Comparison, most: int) -> Table:
    """A row for each configuration, with a line for each run and a column for each result."""
    names = list(dict.fromkeys(name for one in found.sides for of in one.results for name in of))
    shown = varying([one.parameters for one in found.sides]) or None
    table = Table(pad_edge=False, box=None, header_style="bold")
    table.add_column("configuration", overflow="fold", min_width=24)
    for name in ("run", "rank", *names):
        table.add_column(name, justify="right", no_wrap=True)
    keys = [str(run.run_id) for run in found.runs]
    for side in found.sides[:most]:
        ranks = ["–" if rank is None else str(rank) for rank in side.ranks]
        results = [[texts.number(of.get(name)) for of in side.results] for name in names]
        lines = ["\n".join(cells) for cells in (keys, ranks, *results)]
        table.add_row(Text(texts.parameters(side.parameters, shown)), *lines)
    return table


def of_comparison(found: Comparison, most: int) -> Group:
    """Differences between runs, and their configurations side by side."""
    titles = [one.title for one in found.runs]
    differences = Table(pad_edge=False, box=None, header_style="bold")
    for name in ("of", "what"):
        differences.add_column(name, no_wrap=True)
    for title in titles:
        differences.add_column(Text(title), overflow="fold")
    for one in found.differences:
        differences.add_row(one.kind, Text(one.name), *map(Text, one.values))
    parts: list[RenderableType] = [Text("What differs", style="bold")]
    parts.append(differences if found.differences else Text("nothing but results"))
    parts += [Text("\nConfigurations", style="bold"), _sides(found, most)]
    if len(found.sides) > most:
        parts.append(Text(f"and {len(found.sides) - most} more", style="dim"))
    return Group(*parts)
