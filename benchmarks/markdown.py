"""Markdown of results: tables, and a part of a document between markers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[int] = (0,)
) -> str:
    """A table.

    Args:
        columns: headings.
        rows: cells.
        texts: places of the columns that hold text; the others hold numbers.
    """
    rules = ["---" if place in texts else "---:" for place in range(len(columns))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, rules, *rows))


def between(document: str, begin: str, end: str, text: str) -> str:
    """A document with a text in place of what it had between two markers."""
    before, rest = document.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{text}\n{end}{after}"
