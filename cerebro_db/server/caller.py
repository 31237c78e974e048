"""The caller's own session: statements run in its transaction and with its rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cerebro_db.database.relations import known_search_path
from cerebro_db.database.sessions import Session, Tick, no_tick


class CallerSession(Session):
    """What reads tables through a session may read them in the caller's, which sees its own changes.

    Args:
        plpy: the module that the server hands to PL/Python bodies.
    """

    def __init__(self, plpy: Any) -> None:
        self._plpy = plpy
        self.facts = {}

    def run(
        self, sql: str, parameters: Sequence[Any] = (), tick: Tick = no_tick
    ) -> list[tuple[Any, ...]]:
        """Run a statement; an error of the server is raised as it is."""
        result = self._plpy.execute(sql % tuple(map(self._literal, parameters)))
        if not len(result):  # of a statement that returns no rows nobody can ask for columns
            return []
        names = result.colnames()
        return [tuple(row[name] for name in names) for row in result]

    def _literal(self, value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        if isinstance(value, list | tuple):
            return f"ARRAY[{', '.join(map(self._literal, value))}]" if value else "'{}'"
        return str(self._plpy.quote_literal(value))


@contextmanager
def caller_session(plpy: Any) -> Iterator[CallerSession]:
    """The session with names looked up on the caller's search path, and operators never on it.

    Otherwise an operator that someone has put into a schema of that path could be taken for one
    of the server.
    """
    facts = plpy.execute(_PATH)[0]
    session = CallerSession(plpy)
    known_search_path(session, facts["schemas"], facts["first"])
    plpy.execute(_SAFE)
    try:
        yield session
    except BaseException:
        # Of a statement that fails nothing stays, unless the caller catches the error.
        _restore(plpy, facts["path"])
        raise
    _restore(plpy, facts["path"])


def _restore(plpy: Any, path: str) -> None:
    plpy.execute(plpy.prepare(_RESTORED, ["pg_catalog.text"]), [path])


_PATH = """
SELECT pg_catalog.current_setting('search_path') AS path,
       pg_catalog.current_schemas(true)::pg_catalog.text[] AS schemas,
       pg_catalog.current_schema()::pg_catalog.text AS first
"""
_SAFE = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
_RESTORED = "SELECT pg_catalog.set_config('search_path', $1, true)"
