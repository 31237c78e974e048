"""Puts results into docs/benchmarks.md, between its markers.

python -m benchmarks.document results.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.tables import Results, Table, describe, tables

DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def main() -> None:
    """Rewrite the part of the document that holds results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.document", description=__doc__)
    parser.add_argument("json", type=Path, help="what python -m benchmarks --json wrote")
    results = json.loads(parser.parse_args().json.read_text())
    DOCUMENT.write_text(with_results(DOCUMENT.read_text(), results))


def with_results(document: str, results: Results) -> str:
    """A document with these results in place of what it had."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    parts = [describe(results) + ".", *map(_markdown, tables(results))]
    return before + BEGIN + "\n" + "\n\n".join(parts) + "\n" + END + after


def _markdown(table: Table) -> str:
    is_text = [place == 0 or table.title == "goals" for place in range(len(table.columns))]
    rules = ["---" if text else "---:" for text in is_text]
    rows = [table.columns, rules, *table.rows]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return f"**{table.title[0].upper()}{table.title[1:]}**\n\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
