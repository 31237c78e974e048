"""Shows results in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Shown

from benchmarks.tables import Results, Table, describe, tables


def show(results: Results) -> None:
    """All tables, under the machine."""
    console = Console()
    console.print(describe(results))
    for table in tables(results):
        console.print(_shown(table))


def _shown(table: Table) -> Shown:
    shown = Shown(title=table.title, title_justify="left")
    for place, column in enumerate(table.columns):
        is_text = place == 0 or table.title == "goals"
        shown.add_column(column, justify="left" if is_text else "right")
    for row in table.rows:
        shown.add_row(*row)
    return shown
