"""SQL of drift: how the rows of a table are distributed, and the record of how far they have moved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cerebro_db.columns.encoded import EncodedColumn
from cerebro_db.postgres.catalog.rows import array_text
from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.sessions.session import Session

# Rows from which the bins of numbers are counted; counts of what is missing or unseen are of all rows.
SAMPLE_ROWS = 10_000
# The bins of numbers are the deciles of the training rows.
_DECILES = "ARRAY[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]::double precision[]"


class Read(NamedTuple):
    """Rows that are looked at.

    Attributes:
        sql: what stands behind FROM, with the alias.
        alias: of the rows.
        is_plain: whether each row has an address.
    """

    sql: str
    alias: str
    is_plain: bool

    @classmethod
    def plain(cls, table: QualifiedName) -> Read:
        """The rows of a plain table, without those of others that inherit from it."""
        return cls(f"ONLY {table.sql} s", "s", is_plain=True)

    def sample(self, rows: int) -> str:
        """A condition that about ``SAMPLE_ROWS`` of so many rows fulfil; of a plain table the same ones each time."""
        parts = -(-rows // SAMPLE_ROWS)
        if parts < 2:
            return "true"
        if self.is_plain:
            return f"pg_catalog.hashtext({self.alias}.ctid::text) %% {parts} = 0"
        return f"pg_catalog.random() < {1 / parts!r}"


def counts(read: Read, columns: Sequence[EncodedColumn]) -> str:
    """One row: the rows of a table, then of each column those that are missing and those that are unseen."""
    parts = ["pg_catalog.count(*)"]
    for column in columns:
        parts.append(_counted(column.missing(read.alias)))
        unseen = column.unseen(read.alias)
        parts.append("0" if unseen is None else _counted(unseen))
    return f"SELECT {', '.join(parts)} FROM {read.sql}"


def deciles(read: Read, columns: Sequence[EncodedColumn], rows: int) -> str:
    """One row: of each column of numbers the deciles in a sample; NULL where that has no value."""
    parts = (
        f"pg_catalog.percentile_disc({_DECILES}) WITHIN GROUP (ORDER BY q.v{place})"
        for place in range(len(columns))
    )
    return f"SELECT {', '.join(parts)} FROM ({_values(read, columns, rows)}) q"


def cumulated(read: Read, columns: Sequence[EncodedColumn], rows: int) -> str:
    """One row: of each column of numbers, in a sample, an array of counts: values up to each edge of its
    bins, and all values."""
    parts = []
    for place, column in enumerate(columns):
        edges = column.statistics.edges if column.statistics else ()
        each = [_counted(f"q.v{place} <= {_number(edge)}") for edge in edges]
        parts.append(f"ARRAY[{', '.join([*each, f'pg_catalog.count(q.v{place})'])}]")
    return f"SELECT {', '.join(parts)} FROM ({_values(read, columns, rows)}) q"


def _values(read: Read, columns: Sequence[EncodedColumn], rows: int) -> str:
    listed = ", ".join(f"{one.number(read.alias)} AS v{place}" for place, one in enumerate(columns))
    # OFFSET 0 has each value computed once.
    return f"SELECT {listed} FROM {read.sql} WHERE {read.sample(rows)} OFFSET 0"


def _counted(condition: str) -> str:
    return f"pg_catalog.count(CASE WHEN {condition} THEN 1 END)"


def _number(value: float) -> str:
    return f"({value!r}::double precision)"


# What a terminal would take for something else than text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class ColumnDrift(NamedTuple):
    """A column of new rows beside the same one of the training rows.

    Attributes:
        name, method: of the column, and how it is encoded.
        missing, unseen: how many of the new rows have no value, or a category that the encoding does not
            know.
        trained_missing, trained_unseen: the shares of these in the training rows; None where an earlier
            version has recorded none.
        shift: the population stability index of numbers; None of categories, and where it is not known.
    """

    name: str
    method: str
    missing: int
    unseen: int
    trained_missing: float | None = None
    trained_unseen: float | None = None
    shift: float | None = None


class Drift(NamedTuple):
    """Drift of the rows of a table from those that an encoding was computed from.

    Attributes:
        kind: ``packing``, ``validation`` or ``prediction``.
        job_id: of the job that looked at them, if one did.
        encoding_of: whose encoding it is: a packed table, or models.
        source: the table with the new rows.
        output: what was made of them.
        rows: of the source.
    """

    kind: str
    job_id: int | None
    encoding_of: str
    source: str
    output: str
    rows: int
    columns: Sequence[ColumnDrift]


def forget(session: Session) -> None:
    """Remove what was recorded for roles of the caller so long ago that it is not kept any more."""
    session.write("_forget_drift")


def record(session: Session, drift: Drift) -> None:
    """Write a drift down for the view ``cerebro.drift``."""
    names = ("name", "method", "missing", "unseen", "trained_missing", "trained_unseen", "shift")
    listed = [[getattr(one, name) for one in drift.columns] for name in names]
    session.write("_mark_role")
    facts = drift.kind, drift.job_id, _CONTROL.sub("?", drift.encoding_of), drift.source
    session.write("_add_drift", *facts, drift.output, drift.rows, *map(array_text, listed))
