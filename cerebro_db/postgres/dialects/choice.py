"""Which dialect a server has. A new one is a folder beside this file, and an entry of ``DIALECTS``."""

from __future__ import annotations

from cerebro_db.postgres.dialects.greenplum6.dialect import Greenplum6
from cerebro_db.postgres.dialects.postgresql.dialect import PostgreSQL

__all__ = [
    "ASKS_NOTHING",
    "DIALECTS",
    "IDENTITY",
    "PostgreSQL",
    "dialect_of",
]

# The first one whose condition holds is that of a server.
DIALECTS: dict[str, type[PostgreSQL]] = {each.name: each for each in (Greenplum6, PostgreSQL)}
# An expression: the name of the server's dialect.
_CASES = [f"WHEN {each.is_here} THEN '{name}'" for name, each in DIALECTS.items()]
IDENTITY = f"CASE {' '.join(_CASES)} END"
# The dialect of a server whose processes get what they serve, and may query nothing.
ASKS_NOTHING = Greenplum6.name


def dialect_of(server_version: int, name: str) -> PostgreSQL:
    """Dialect of a server.

    Args:
        server_version: as libpq tells it.
        name: what the server answers to ``IDENTITY``.
    """
    return DIALECTS[name](server_version)
