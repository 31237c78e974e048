"""Lists of columns that users name in one text, separated by commas as in MADlib."""

from __future__ import annotations

import re

from cerebro_db.columns.values import Column
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument
from cerebro_db.postgres.relations import Relation, column, require_text

ALL = "*"
# A quoted identifier, or whatever has neither commas nor quotes.
_ITEM = re.compile(r'\s*("(?:[^"]|"")+"|[^",\s](?:[^",]*[^",\s])?)\s*(?:,|$)')


def split_names(text: str | None, role: str) -> list[str]:
    """The names of a list, as they are written.

    Args:
        text: such as ``age, "Zip code"``; commas within quotes belong to the name.
        role: the name of the argument, for messages.
    """
    given = require_text(text, role)
    names, place = [], 0
    while place < len(given):
        match = _ITEM.match(given, place)
        if match is None:
            raise InvalidArgument(
                f"{role}: got {shown(given)}; allowed: names of columns separated by commas",
                hint='a name with commas, quotes or spaces at its ends is written in quotes: "a, b"',
            )
        names.append(match[1])
        place = match.end()
    if given.rstrip().endswith(","):
        raise InvalidArgument(
            f"{role}: got {shown(given)}; a name is missing after the last comma",
            hint="leave the last comma out",
        )
    return names


def listed_columns(relation: Relation, text: str | None, role: str) -> tuple[Column, ...]:
    """The columns that a user lists, in that order; ``*`` stands for all.

    Raises:
        UndefinedColumn: one of them does not exist.
        InvalidArgument: one is there twice.
    """
    if text is not None and text.strip() == ALL:
        return relation.columns
    found = tuple(column(relation, name, role) for name in split_names(text, role))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"{role}: got the column {name!r} twice; allowed: once",
                hint="a view can have it under a second name",
            )
    return found
