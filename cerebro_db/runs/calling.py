"""Statements in a session as if its owner had sent them: with the search path and the settings of the session that made the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cerebro_db.postgres.calls.host import JobHost
from cerebro_db.postgres.calls.settings import ISOLATION, SEARCH_PATH
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.search_path import CallerPath, SearchPath
from cerebro_db.requests.declared import Function


def use_settings(session: Session, host: JobHost) -> None:
    """Give a transaction the search path and the settings of the session that made the call.

    Args:
        session: of the owner, in a transaction, whose isolation level stays.
        host: of the call.
    """
    settings = {**host.pool.caller, SEARCH_PATH: _path_text(host.search_path)}
    for name, value in settings.items():
        if name != ISOLATION:
            session.run("SELECT pg_catalog.set_config(%s, %s, true)", (name, value))


def made_in(session: Session, host: JobHost, function: Function, given: Mapping[str, Any]) -> None:
    """Call a function in a session, which is in a transaction, as if its owner had called it.

    Args:
        session: of the owner.
        host: of the job: its search path and settings are those of the session that submitted it.
        function: which makes no run.
        given: its arguments.
    """
    use_settings(session, host)
    session.run(*function.statement(given))


def _path_text(path: CallerPath) -> str:
    """The setting search_path in which names are found as on a path."""
    if not isinstance(path, SearchPath):
        return path
    schemas = [one for one in path.schemas if one != path.temporary]
    if schemas[:1] == ["pg_catalog"] and path.first != "pg_catalog":
        # The server adds it by itself; as the first one new tables would be made there.
        del schemas[0]
    return ", ".join('"' + one.replace('"', '""') + '"' for one in schemas)
