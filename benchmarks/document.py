"""Puts results into docs/benchmarks.md, between its markers.

python -m benchmarks.document results.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks.markdown import between
from benchmarks.tables import Results, Table, describe, tables

DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"
# Where results stand, without segments and with them.
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"


def main() -> None:
    """Rewrite the part of the document that holds results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.document", description="Put results into docs/benchmarks.md."
    )
    parser.add_argument("json", type=Path, nargs="+", help="what python -m benchmarks --json wrote")
    runs = [json.loads(path.read_text()) for path in parser.parse_args().json]
    DOCUMENT.write_text(with_results(DOCUMENT.read_text(), together(runs)))


def together(runs: Sequence[Results]) -> Results:
    """Several runs as one; of a workload that was measured twice, the later figures.

    Raises:
        ValueError: the runs differ in scale, workers, segments or machine.
    """
    merged: dict[str, Any] = {**runs[0], "workloads": {}}
    for run in runs:
        if _circumstances(run) != _circumstances(runs[0]):
            raise ValueError("the runs differ in scale, workers, segments or machine")
        workloads = merged["workloads"] | run["workloads"]
        merged |= {**run, "workloads": workloads}
    return merged


def _circumstances(run: Results) -> tuple[Any, ...]:
    machine = {name: value for name, value in run["machine"].items() if name != "measured"}
    return run["scale"], run["workers"], run.get("segments", 0), machine


def with_results(document: str, results: Results) -> str:
    """A document with these results in place of what it had."""
    place = "results on segments" if results.get("segments") else "results"
    begin, end = BEGIN.format(place), END.format(place)
    parts = [describe(results) + ".", *map(_markdown, tables(results))]
    return between(document, begin, end, "\n\n".join(parts))


def _markdown(table: Table) -> str:
    texts = range(len(table.columns)) if table.title == "goals" else (0,)
    shown = markdown.table(table.columns, table.rows, texts)
    return f"**{table.title[0].upper()}{table.title[1:]}**\n\n{shown}"


if __name__ == "__main__":
    main()
