"""Dates and times as text: kept in one form, and shown as a caller's session shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cerebro_db.postgres.sessions.session import Session

# The settings that decide it.
STYLES = ("DateStyle", "IntervalStyle", "TimeZone")
# The types whose text depends on what a session has set, as format_type() tells them.
_KINDS = {
    "date": "pg_catalog.date",
    "timestamp without time zone": "pg_catalog.timestamp",
    "timestamp with time zone": "pg_catalog.timestamptz",
    "interval": "pg_catalog.interval",
}
_PRECISION = re.compile(r"^(timestamp)\(\d\)( with(?:out)? time zone)$|^(interval)\b.*$")
# The type below a domain. Parameter: its name, with its schema.
_BELOW = """
WITH RECURSIVE below(oid, typmod) AS (
    SELECT t.typbasetype, t.typtypmod FROM pg_catalog.pg_type t
     WHERE t.typtype = 'd' AND pg_catalog.format_type(t.oid, NULL) = %s
    UNION ALL
    SELECT t.typbasetype, t.typtypmod FROM below b JOIN pg_catalog.pg_type t ON t.oid = b.oid
     WHERE t.typtype = 'd'
)
SELECT pg_catalog.format_type(b.oid, NULL) FROM below b
"""


class Styles(NamedTuple):
    """Styles in which a session shows dates and times: DateStyle, IntervalStyle and TimeZone."""

    date: str
    interval: str
    time_zone: str

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Styles:
        """The styles among the settings of a session."""
        return cls(*(settings[name] for name in STYLES))


def time_kind(session: Session, name: str) -> str | None:
    """The SQL name of a type of dates or times; None for any other.

    Args:
        session: searches pg_catalog only.
        name: of the type, of any user's table; with a schema where it is not of the server.
    """
    names = [name]
    if "." in name:
        names = [row[0] for row in session.run(_BELOW, (name,))]
    for one in names:
        if found := _KINDS.get(_PRECISION.sub(r"\1\2\3", one)):
            return found
    return None


def kind_named(stored: object) -> str | None:
    """A name that ``time_kind`` gave, out of what was stored."""
    return next((name for name in _KINDS.values() if name == stored), None)


def as_shown(
    session: Session, values: Sequence[str | None], kind: str, styles: Styles
) -> tuple[str | None, ...]:
    """Texts in the form in which they are kept, as a caller's session shows the same values.

    What is kept is ISO, with the time zone: any session reads it in the same way.

    Args:
        session: in a transaction.
        values: texts of one type.
        kind: SQL name of that.
        styles: of the caller's session, until the transaction ends of this one, too.
    """
    session.run(_SET, (styles.date, styles.interval, styles.time_zone))
    found = session.run(_SHOWN.format(kind), (list(values),))[0][0]
    return tuple(found)


_SET = (
    "SELECT pg_catalog.set_config('DateStyle', %s, true), "
    "pg_catalog.set_config('IntervalStyle', %s, true), pg_catalog.set_config('TimeZone', %s, true)"
)
_SHOWN = (
    "SELECT ARRAY(SELECT u.v::{}::text FROM unnest(%s::text[]) WITH ORDINALITY AS u(v, place) "
    "ORDER BY u.place)"
)
