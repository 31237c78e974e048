"""The search_path of a database as a list of names: it is computed as text, and never set in a session."""

from __future__ import annotations

# What ALTER DATABASE, or ALTER ROLE ALL, has set for all roles in the current database; a query of one text.
SET_FOR_DATABASE = """
SELECT substring(entry from '^search_path=(.*)$')
  FROM pg_catalog.pg_db_role_setting s, unnest(s.setconfig) AS entry
 WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
   AND s.setrole = 0 AND entry LIKE 'search_path=%'
 ORDER BY s.setdatabase DESC LIMIT 1
"""


def names_of(path: str) -> str:
    """An expression: the array of names in a search_path, as the server reads it.

    Args:
        path: an expression of type text.
    """
    return f"""ARRAY(
        SELECT CASE WHEN m.found[1] LIKE '"%'
                    THEN replace(substr(m.found[1], 2, length(m.found[1]) - 2), '""', '"')
                    ELSE lower(m.found[1]) END
          FROM regexp_matches({path}, '"(?:[^"]|"")*"|[^[:space:],"]+', 'g')
               WITH ORDINALITY AS m (found, place)
         ORDER BY m.place)"""


def set_to(names: str) -> str:
    """A statement of PL/pgSQL: gives the current database a search_path.

    Args:
        names: an expression of type text[].
    """
    return f"""EXECUTE format('ALTER DATABASE %I SET search_path = %s', current_database(),
        (SELECT string_agg(quote_literal(n.name), ', ' ORDER BY n.place)
           FROM unnest({names}) WITH ORDINALITY AS n (name, place)));"""
