"""Texts of users that others read: bounded, and without what steers a terminal."""

from __future__ import annotations

import re

from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument

# As the catalog allows them at most, see the migration of its bounds.
MAX_NAME, MAX_DESCRIPTION, MAX_ERROR = 1000, 10_000, 10_000
# All but tabs and ends of lines.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_text(name: str, text: str | None, most: int) -> None:
    """Refuse a text that the catalog does not take.

    Raises:
        InvalidArgument: it is too long, or has control characters.
    """
    if text is not None and (len(text) > most or _CONTROL.search(text)):
        raise InvalidArgument(
            f"{name}: got a text of {len(text)} characters, {shown(text)}; allowed: up to {most}, "
            "no control characters but tabs and ends of lines"
        )


def plain_text(text: str | None, most: int = MAX_ERROR) -> str | None:
    """The beginning of a text, its control characters replaced."""
    return None if text is None else _CONTROL.sub("?", text[:most])
