"""The settings of the database, read and written by functions that run in it."""

from __future__ import annotations

from typing import Any

from cerebro_db.configs.settings import OF_SUPERUSERS, Settings, parse_setting
from cerebro_db.errors import InvalidArgument, NotPermitted
from cerebro_db.postgres.sessions import check_dsn
from cerebro_db.server.caller import caller_session
from cerebro_db.server.entry import entry_of


def settings_of(plpy: Any) -> Settings:
    """Settings of administrators, as the caller of a function may see them."""
    rows = plpy.execute("SELECT name, value FROM cerebro.settings")
    return Settings.of({row["name"]: row["value"] for row in rows})


@entry_of("cerebro_set")
def set_value(plpy: Any, gd: dict[str, Any], name: str | None, value: str | None) -> None:
    """Set a setting, or bring its default back where ``value`` is NULL.

    Raises:
        NotPermitted: the caller is no administrator, or no superuser where it takes one.
        InvalidArgument: the name is not known, or the value not allowed.
    """
    require_administrator(plpy)
    if name is None:
        raise InvalidArgument("name: got NULL; allowed: the name of a setting")
    text = None if value is None else str(parse_setting(name, value))
    if text is None:
        parse_setting(name, str(getattr(Settings(), name, "")))
    table = "cerebro._settings"
    if name in OF_SUPERUSERS:
        _require_superuser(plpy, name)
        table = "cerebro.catalog_settings"
    if name == "worker_dsn" and text is not None:
        check_dsn(text)
    with caller_session(plpy, writes=True) as session:
        session.run(_REMOVE.format(table), (name,))
        if text is not None:
            session.run(_ADD.format(table), (name, text))


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


def _require_superuser(plpy: Any, name: str) -> None:
    if not plpy.execute(_IS_SUPERUSER)[0]["allowed"]:
        raise NotPermitted(
            f"permission denied to set {name}, which decides where the server sends passwords to",
            hint="superusers may",
        )


_IS_ADMINISTRATOR = "SELECT pg_catalog.pg_has_role('cerebro_admin', 'USAGE') AS allowed"
_IS_SUPERUSER = (
    "SELECT r.rolsuper AS allowed FROM pg_catalog.pg_roles r "
    "WHERE r.rolname OPERATOR(pg_catalog.=) current_user"
)
_REMOVE = "DELETE FROM {} WHERE name OPERATOR(pg_catalog.=) %s"
_ADD = "INSERT INTO {} (name, value) VALUES (%s, %s)"
