"""Headings of the site have the anchors that they have where the repository's pages are read, so that links lead to both."""

from __future__ import annotations

import re
from typing import Any

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name the anchor of each heading; called by mkdocs for each page.

    Args:
        markdown: of the page.
    """
    parts = _FENCED.split(markdown)
    return "".join(
        part if part.startswith("```") else _HEADING.sub(_with_anchor, part) for part in parts
    )


def _with_anchor(heading: re.Match[str]) -> str:
    anchor = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
    return f"{heading[0]} {{ #{anchor} }}"
