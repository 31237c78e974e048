"""Writes the signatures and the tables of arguments of docs/sql as functions are declared in cerebro_db/requests.

.cerebro/venv/bin/python scripts/reference.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cerebro_db.requests import FUNCTIONS, Function
from cerebro_db.requests.declared import Argument

_SECTION = re.compile(r"(?=^## )", re.M)
_HEADING = re.compile(r"## (\w+)\n")
_BLOCK = re.compile(r"```text\n(cerebro_\w+)\(.*?```\n", re.S)
_TABLE = re.compile(r"\| argument \| meaning \|\n\|---\|---\|\n(?:\|.*\n)*")


def rewritten(page: str) -> str:
    """A page with the signatures and tables of arguments as they are declared."""
    return "".join(map(_section, _SECTION.split(page)))


def _section(text: str) -> str:
    heading = _HEADING.match(text)
    functions = FUNCTIONS.get(heading[1], ()) if heading else ()
    if not functions:
        return text
    blocks = _blocks(functions)
    text = _BLOCK.sub(
        lambda found: next(blocks, found[0]) if found[1] == heading[1] else found[0], text
    )
    longest = max(functions, key=lambda one: len(one.arguments))
    return _TABLE.sub(lambda _: table_of(longest), text, count=1)


def table_of(function: Function) -> str:
    """The table of the arguments of a function, in Markdown."""
    rows = [
        f"| {', '.join(f'`{name}`' for name in names)} | {text} |"
        for names, text in function.meanings
    ]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])


def _blocks(functions: tuple[Function, ...]) -> Iterator[str]:
    for function in sorted(functions, key=lambda one: -len(one.arguments)):
        for signature in function.signatures:
            yield f"```text\n{_signature(function, signature)}\n```\n"


def _signature(function: Function, arguments: tuple[Argument, ...]) -> str:
    """A line for each argument."""
    listed = [one.text for one in arguments]
    listed += [f"OUT {one}" for one in function.out.split(", ") if one]
    lines = "".join(f"\n    {one}," for one in listed).rstrip(",") + ("\n" if listed else "")
    return f"{function.name}({lines}) RETURNS {function.returns or 'record'}"


if __name__ == "__main__":
    for path in sorted((Path(__file__).parents[1] / "docs" / "sql").glob("*.md")):
        before = path.read_text("utf-8")
        if (found := rewritten(before)) != before:
            path.write_text(found, "utf-8")
            print(path.name)
