"""The pages of the documentation: sections, tables, blocks of code, statements of SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Reference:
    """The reference of SQL: a page with what is common to all functions, and those that its table of contents lists."""

    first = DOCS / "sql.md"

    @property
    def pages(self) -> list[Path]:
        """In the order in which they are read, and their examples executed."""
        listed = re.findall(r"\]\((sql/[\w-]+\.md)\)", self.first.read_text())
        return [self.first, *(DOCS / page for page in dict.fromkeys(listed))]

    def read_text(self) -> str:
        """All of it."""
        return "\n".join(page.read_text() for page in self.pages)


REFERENCE = Reference()
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md")])
# These make what others use, or must come before the first session that works; the rest follows.
_FIRST = [DOCS / "install.md", DOCS / "security.md", ROOT / "README.md", *REFERENCE.pages]


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        page: where it is.
        line: of its first line of code.
        language: as the fence says.
        text: the code.
    """

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fenced(page: Path) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    text = page.read_text()
    return [
        Block(page, text[: match.start()].count("\n") + 2, match[1], match[2])
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def in_order() -> list[Block]:
    """The blocks of all pages, as they are executed."""
    rest = [page for page in PAGES if page not in _FIRST]
    return [block for page in [*_FIRST, *rest] for block in fenced(page)]


def statements(sql: str) -> list[str]:
    """The statements of a block: each ends with a semicolon at the end of a line."""
    parts = re.split(r";[ ]*(?:--.*)?\n", sql)
    return [part.strip() for part in parts if re.sub(r"--.*", "", part).strip()]


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language in a piece of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def sections(page: Path | Reference) -> dict[str, str]:
    """The text below each heading, up to the next heading."""
    found, heading = {}, ""
    for line in page.read_text().splitlines():
        if match := re.match(r"#+ (.*)", line):
            heading = match[1]
            found[heading] = ""
        else:
            found[heading] = found.get(heading, "") + line + "\n"
    return found


def rows(section: str, header: str) -> list[list[str]]:
    """The cells of each row of the section's first table with a header."""
    _, _, table = section.partition(f"{header}\n{'|---' * (header.count('|') - 1)}|\n")
    lines = table.partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def columns(section: str) -> list[tuple[str, str]]:
    """Name and type of each column that the section's first table of columns tells."""
    told = rows(section, "| column | type | meaning |")
    return [(name.strip("`"), kind) for name, kind, _ in told]
