"""The settings of the database, read and written by functions that run in it."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.settings import Settings, parse_setting
from cerebro_db.errors import InvalidArgument, NotPermitted
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of


def settings_of(plpy: Any) -> Settings:
    """What administrators have set, as the caller of a function may see it."""
    rows = plpy.execute("SELECT name, value FROM cerebro.settings")
    return Settings.of({row["name"]: row["value"] for row in rows})


@entry_of("cerebro_set")
def set_value(plpy: Any, name: str | None, value: str | None) -> None:
    """Set a setting, or bring its default back where ``value`` is NULL.

    Raises:
        NotPermitted: the caller is no administrator.
        InvalidArgument: the name is not known, or the value not allowed.
    """
    require_administrator(plpy)
    if name is None:
        raise InvalidArgument("name: got NULL; allowed: the name of a setting")
    text = None if value is None else str(parse_setting(name, value))
    if text is None:
        parse_setting(name, str(getattr(Settings(), name, "")))
    with caller_session(plpy, writes=True) as session:
        session.run(_REMOVE, (name,))
        if text is not None:
            session.run(_ADD, (name, text))


def require_administrator(plpy: Any) -> None:
    """Refuse a caller who is no administrator.

    Raises:
        NotPermitted: that is so.
    """
    if not plpy.execute(_IS_ADMINISTRATOR)[0]["allowed"]:
        raise NotPermitted(
            "permission denied to set what holds for the whole database",
            hint="members of cerebro_admin may",
        )


_IS_ADMINISTRATOR = "SELECT pg_catalog.pg_has_role('cerebro_admin', 'USAGE') AS allowed"
_REMOVE = "DELETE FROM cerebro.catalog_settings WHERE name = %s"
_ADD = "INSERT INTO cerebro.catalog_settings (name, value) VALUES (%s, %s)"
