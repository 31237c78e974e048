"""SQL that splits the rows of a table into two parts, the same whatever their physical order."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_db.postgres.names import QualifiedName, quote

_CHOSEN = "pg_temp.cerebro_split"


def choose(source: QualifiedName, columns: Sequence[str], strata: Sequence[str]) -> str:
    """Mark every row that is kept: ``split`` is 1 for training, 0 for testing.

    Rows are ordered by stratum, and within it by a hash of what they hold: a row's place depends
    on the seed and its contents alone, and rows with the same contents are as good as each other.
    Of that order evenly spaced rows are kept, and of these evenly spaced ones are for training.
    So each stratum has its share to less than one row, and the whole table has it rounded.

    Parameters: as texts of numbers, twice the share for training and two times the share that is
    kept, then two times the share that is kept; at last two times the seed.
    """
    listed = ", ".join(f"s.{quote(name)} AS c{place}" for place, name in enumerate(columns))
    kept = ", ".join(f"d.c{place}" for place in range(len(columns)))
    first = "d.train OR (NOT d.trained AND d.number = d.first)" if strata else "d.train"
    return f"""
    CREATE TEMPORARY TABLE {_CHOSEN} ON COMMIT DROP AS
    SELECT {kept}, d.place, d.stratum, CASE WHEN {first} THEN 1 ELSE 0 END AS split
      FROM (SELECT c.*, pg_catalog.bool_or(c.train) OVER w AS trained,
                   pg_catalog.min(c.number) OVER w AS first
              FROM (SELECT b.*, {_counted("b.kept")} > {_counted("(b.kept - 1)")} AS train
                      FROM (SELECT a.*, pg_catalog.floor(a.number * %s::numeric + 0.5) AS kept,
                                   pg_catalog.floor((a.number - 1) * %s::numeric + 0.5) AS before
                              FROM (SELECT r.*, pg_catalog.row_number() OVER (
                                               ORDER BY r.stratum, r.place) AS number
                                      FROM (SELECT {listed}, {_hash(strata)} AS stratum,
                                                   {_hash(columns)} AS place
                                              FROM {source.sql} s) r) a) b
                     WHERE b.kept > b.before) c
            WINDOW w AS (PARTITION BY c.stratum)) d
    """


# Columns: rows for training, rows for testing, strata.
COUNTS = (
    "SELECT COALESCE(pg_catalog.sum(split), 0)::bigint AS train, "
    "COALESCE(pg_catalog.sum(1 - split), 0)::bigint AS test, "
    f"pg_catalog.count(DISTINCT stratum) AS strata FROM {_CHOSEN}"
)

# The transaction may go on, and split more.
FORGET = f"DROP TABLE {_CHOSEN}"


def is_empty(source: QualifiedName) -> str:
    """True if a table has no rows."""
    return f"SELECT NOT EXISTS (SELECT 1 FROM {source.sql})"


def write(output: QualifiedName, columns: Sequence[str], part: int | None, comment: str) -> str:
    """A table of the rows of one part, or of all with a column ``split``, in the order chosen.

    Args:
        output: the table.
        columns: of the source.
        part: 1 for the rows to train with, 0 for those to test with; None for all.
        comment: the statement that gives the table its comment.
    """
    listed = ", ".join(f"c{place} AS {quote(name)}" for place, name in enumerate(columns))
    mark, where = (", split", "") if part is None else ("", f"WHERE split = {part}")
    return (
        f"CREATE TABLE {output.sql} AS SELECT {listed}{mark} FROM {_CHOSEN} {where} "
        f"ORDER BY place; {comment}"
    )


def _counted(number: str) -> str:
    """How many of the first rows that are kept are for training: exact, rounded."""
    return f"pg_catalog.div(2 * {number} * %s::numeric + %s::numeric, 2 * %s::numeric)"


def _hash(columns: Sequence[str]) -> str:
    listed = ", ".join(f"s.{quote(name)}" for name in columns)
    return f"pg_catalog.md5(pg_catalog.concat(%s::bigint, '/', ROW({listed})::text))::uuid"
