"""A table split at random into rows to train with and rows to test with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from cerebro_db.errors import NO_ROWS, InvalidArgument, InvalidData
from cerebro_db.packing.resolve import check_source
from cerebro_db.postgres.calls.settings import as_seen, read_as
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.completeness import scanned_elsewhere
from cerebro_db.postgres.tables.kinds import SPLIT, SPLIT_IN_TWO
from cerebro_db.postgres.tables.outputs import Outputs, new_outputs, publish
from cerebro_db.postgres.tables.relations import ALL, Relation, find, listed_columns
from cerebro_db.requests.packing import SplitRequest

_CHOSEN = "pg_temp.cerebro_split"
_COPY = QualifiedName("pg_temp", "cerebro_split_rows")


def choose(source: str, columns: Sequence[str], strata: Sequence[str], anywhere: str) -> str:
    """Mark every row that is kept: ``split`` is 1 for training, 0 for testing.

    Rows are ordered by stratum, and within it by a hash of what they hold: a row's place depends
    on the seed and its contents alone, and rows with the same contents are as good as each other.
    Of that order evenly spaced rows are kept, and of these evenly spaced ones are for training.
    So each stratum has its share to less than one row, and the whole table has it rounded.

    Parameters: as texts of numbers, twice the share for training and two times the share that is
    kept, then two times the share that is kept; at last two times the seed.

    Args:
        source: what stands behind FROM to read the table, with the alias ``s``.
        columns, strata: of it.
        anywhere: what ends CREATE TABLE.
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
                                              FROM {source}) r) a) b
                     WHERE b.kept > b.before) c
            WINDOW w AS (PARTITION BY c.stratum)) d{anywhere}
    """


# Columns: rows for training, rows for testing, strata.
COUNTS = (
    "SELECT COALESCE(pg_catalog.sum(split), 0)::bigint AS train, "
    "COALESCE(pg_catalog.sum(1 - split), 0)::bigint AS test, "
    f"pg_catalog.count(DISTINCT stratum) AS strata FROM {_CHOSEN}"
)
# The transaction may go on, and split more.
FORGET = f"DROP TABLE {_CHOSEN}"


def is_empty(source: str) -> str:
    """True if there are no rows."""
    return f"SELECT NOT EXISTS (SELECT 1 FROM {source})"


def write(
    output: QualifiedName, columns: Sequence[str], part: int | None, anywhere: str, comment: str
) -> str:
    """A table of the rows of one part, or of all with a column ``split``, in the order chosen.

    Args:
        output: the table.
        columns: of the source.
        part: 1 for the rows to train with, 0 for those to test with; None for all.
        anywhere: what ends CREATE TABLE.
        comment: the statement that gives the table its comment.
    """
    listed = ", ".join(f"c{place} AS {quote(name)}" for place, name in enumerate(columns))
    mark, where = (", split", "") if part is None else ("", f"WHERE split = {part}")
    return (
        f"CREATE TABLE {output.sql} AS SELECT {listed}{mark} FROM {_CHOSEN} {where} "
        f"ORDER BY place{anywhere}; {comment}"
    )


def _counted(number: str) -> str:
    """SQL of the number of rows for training, of those that are kept: exact, rounded."""
    return f"pg_catalog.div(2 * {number} * %s::numeric + %s::numeric, 2 * %s::numeric)"


def _hash(columns: Sequence[str]) -> str:
    listed = ", ".join(f"s.{quote(name)}" for name in columns)
    return f"pg_catalog.md5(pg_catalog.concat(%s::bigint, '/', ROW({listed})::text))::uuid"


_SPLIT = "split"
# What the tables have, by what their names end in.
_PARTS = {SPLIT.suffixes: (None,), SPLIT_IN_TWO.suffixes: (1, 0)}


@dataclass(frozen=True)
class Split:
    """Result of a split: the tables, and how many rows are in which part."""

    tables: tuple[QualifiedName, ...]
    train: int
    test: int
    strata: int

    def __str__(self) -> str:
        strata = f", {self.strata} strata" if self.strata else ""
        names = " and ".join(map(str, self.tables))
        return f"{self.train} rows to train with and {self.test} to test with{strata}: {names}"


def _shares(request: SplitRequest) -> tuple[Decimal, Decimal]:
    """The shares of rows to train and to test with; by default, the latter are all others."""
    train = _share("train_proportion", request.train_proportion)
    if request.test_proportion is None:
        return train, 1 - train
    return train, _share("test_proportion", request.test_proportion)


def _check(request: SplitRequest) -> None:
    """Refuse what no table could make right."""
    train, test = _shares(request)
    if train + test > 1:
        raise InvalidArgument(
            f"test_proportion: got {test} beside a train_proportion of {train}; allowed: at most {1 - train}"
        )
    if request.with_replacement:
        raise InvalidArgument(
            "with_replacement: got true; allowed: false, as a row that is in both parts "
            "would make the model look better than it is"
        )
    if request.seed is None:
        raise InvalidArgument("seed: got NULL; allowed: any bigint")


def split(session: Session, request: SplitRequest) -> Split:
    """Make one table or two, or nothing at all.

    Args:
        session: in a transaction; knows where the names are looked for.
        request: what to split.

    Raises:
        InvalidArgument: the proportions are not between 0 and 1, or more than 1 together.
        InvalidData: one of the parts would have no rows.
    """
    _check(request)
    source = find(session, request.source_table, "source_table")
    check_source(source)
    strata = _names(source, request.grouping_cols, "grouping_cols")
    columns = _names(source, request.target_cols or ALL, "target_cols")
    outputs = _outputs(session, request, source, columns)
    source = _readable(session, source, [*columns, *strata])
    made = _written(session, request, source, columns, strata, outputs)
    publish(session, outputs)
    return made


def _readable(session: Session, source: Relation, columns: Sequence[str]) -> Relation:
    """The source, or a copy of it where its rows lie on other nodes, which cannot send whole rows as text."""
    if not scanned_elsewhere(session, source.name):
        return source
    listed = ", ".join(map(quote, dict.fromkeys(columns)))
    copy = f"CREATE TEMPORARY TABLE {_COPY.sql} ON COMMIT DROP AS SELECT {listed} FROM {source.name.sql}{session.anywhere}"
    session.run(as_seen(session, copy))
    return replace(source, name=_COPY)


def _share(role: str, value: float | None) -> Decimal:
    if value is None or not math.isfinite(value) or not 0 < value < 1:
        got = "NULL" if value is None else f"{value:g}"
        raise InvalidArgument(f"{role}: got {got}; allowed: a number between 0 and 1")
    # What was written, not what a binary number makes of it: 0.7 and 0.3 are 1 together.
    return Decimal(repr(float(value)))


def _names(source: Relation, text: str | None, role: str) -> list[str]:
    if text is None:
        return []
    return [column.name for column in listed_columns(source, text, role)]


def _outputs(
    session: Session, request: SplitRequest, source: Relation, columns: list[str]
) -> Outputs:
    """The tables to be made."""
    if not request.separate_output_tables and _SPLIT in columns:
        raise InvalidArgument(
            f"target_cols: got {_SPLIT!r}, which is a column of the output table",
            hint="leave it out, or set separate_output_tables := true",
        )
    return new_outputs(
        session,
        request.output_table,
        "output_table",
        SPLIT_IN_TWO if request.separate_output_tables else SPLIT,
        replace=request.replace,
        inputs=[source.oid],
    )


def _written(
    session: Session,
    request: SplitRequest,
    source: Relation,
    columns: list[str],
    strata: list[str],
    outputs: Outputs,
) -> Split:
    read = [*columns, *strata]
    if session.run(is_empty(read_as(session, source, read, "s", " LIMIT 1")))[0][0]:
        raise InvalidData(
            f"source_table: {source.name} has no rows; allowed: at least two rows", NO_ROWS
        )
    share, rest = _shares(request)
    train, kept = str(share), str(share + rest)
    # In the order in which the statement has them.
    values = (*(train, kept, kept) * 2, kept, kept, request.seed, request.seed)
    rows = read_as(session, source, read, "s")
    session.run(choose(rows, columns, strata, session.anywhere), values)
    counts = session.run(COUNTS)[0]
    _check_parts(source, request, *counts[:2])
    for suffix, part in zip(outputs.suffixes, _PARTS[outputs.suffixes], strict=True):
        table = outputs.draft(suffix)
        comment = outputs.kind.comment(table, suffix)
        session.run(write(table, columns, part, session.anywhere, comment))
    session.run(FORGET)
    if source.name == _COPY:
        session.run(f"DROP TABLE {_COPY.sql}")
    tables = tuple(map(outputs.table, outputs.suffixes))
    return Split(tables, counts[0], counts[1], counts[2] if strata else 0)


def _check_parts(source: Relation, request: SplitRequest, train: int, test: int) -> None:
    for role, share, rows in (
        ("train_proportion", _shares(request)[0], train),
        ("test_proportion", _shares(request)[1], test),
    ):
        if not rows:
            raise InvalidData(
                f"{role}: got {share}, which makes no row out of those of {source.name} "
                f"({train} to train with, {test} to test with)",
                hint="give the smaller part a larger proportion, or the table more rows",
            )
