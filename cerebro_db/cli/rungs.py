"""The rungs of a search and their trials, drawn for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cerebro_db.cli.pictures import STATUSES
from cerebro_db.core.search import SearchSpec
from cerebro_db.models.best import best_trials
from cerebro_db.postgres.trials import Progress, TrialRow


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
