"""Schemas in which the names that a caller gives are looked for."""

from __future__ import annotations

import re
from typing import NamedTuple

from cerebro_db.postgres.sessions.session import Session


class SearchPath(NamedTuple):
    """Schemas in which the names that a caller gives are looked for.

    Attributes:
        schemas: in their order, those that the server adds by itself included.
        first: where new tables are made.
        temporary: the schema of the caller's temporary tables; None where it has none yet.
        in_callers: whether names are looked up in the caller's own session, which can see them.
    """

    schemas: tuple[str, ...] = ()
    first: str | None = None
    temporary: str | None = None
    in_callers: bool = False

    def is_temporary(self, schema: str) -> bool:
        """True if the schema is that of the caller's temporary tables."""
        return schema in (TEMPORARY, self.temporary)

    def hides(self, schema: str) -> bool:
        """True if temporary tables come before those of a schema where none is named."""
        before = self.schemas[: self.schemas.index(schema)] if schema in self.schemas else ()
        return not self.in_callers and self.temporary in before


# As text it is what ``SHOW search_path`` tells; then the caller has no temporary tables.
CallerPath = SearchPath | str


def use_search_path(session: Session, path: CallerPath | None) -> SearchPath:
    """From now on the names that a caller gives are looked for on their search path.

    The session's own stays as it is: a function or an operator that someone has put into a
    schema of that path, to be taken for one of the server, is never run by a statement of ours.

    Args:
        session: in no transaction.
        path: of the caller; None for the session's own.
    """
    if not isinstance(path, SearchPath):
        schemas, first = session.run(_SCHEMAS, (path,))[0]
        path = SearchPath(tuple(schemas), first)
    session.search_path = path
    return path


def search_path_with(session: Session, path: str, temporary: str) -> SearchPath:
    """Search path of a caller, from its text and the schema of temporary tables.

    Args:
        session: in no transaction.
        path: of the caller.
        temporary: how the schema of their temporary tables is called, if there is one.
    """
    found = use_search_path(session, path)
    leads = _LEADING_TEMPORARY.match(path) is not None
    # The session's own temporary tables are not the caller's.
    schemas = tuple(name for name in found.schemas if not name.startswith(f"{TEMPORARY}_"))
    found = found._replace(schemas=schemas, first=TEMPORARY if leads else found.first)
    if not session.run(SCHEMA, (temporary,)):
        return found
    comes_first = leads or TEMPORARY not in path  # as long as nobody has put it somewhere else
    schemas = (temporary, *schemas) if comes_first else (*schemas, temporary)
    return found._replace(schemas=schemas, temporary=temporary)


def forget_search_path(session: Session) -> None:
    """From now on the session's own search path is used."""
    session.search_path = None


def search_path_of(session: Session) -> SearchPath:
    known: SearchPath | None = session.search_path
    return known or use_search_path(session, None)


# How every session calls the schema of its own temporary tables.
TEMPORARY = "pg_temp"


_LEADING_TEMPORARY = re.compile(r'\s*"?pg_temp"?\s*(,|$)')


# Two statements, of which the second runs with a path that is not to be trusted: every name of it
# has its schema, and there is no operator. At their end the session's path is as it was.
_SCHEMAS = """
SELECT pg_catalog.set_config(
    'search_path', COALESCE(%s, pg_catalog.current_setting('search_path')), true);
SELECT pg_catalog.current_schemas(true)::pg_catalog.text[],
       pg_catalog.current_schema()::pg_catalog.text
"""


SCHEMA = """
SELECT pg_catalog.has_schema_privilege(n.oid, 'CREATE')
  FROM pg_catalog.pg_namespace n WHERE n.nspname = %s
"""
