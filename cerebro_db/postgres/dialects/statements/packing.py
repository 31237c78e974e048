"""SQL of packing on PostgreSQL: rows are fetched by address, one statement fills one buffer.

Every text here passes through the client's parameter formatting: identifiers come quoted from
``names``, values are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cerebro_db.columns.inputs import Block, Input, array_literal, array_shape
from cerebro_db.core.folds import FOLD_NUMBERS
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.tables.kinds import BUILD_SUFFIX, PACKED, PACKINGS

# Blocks whose row addresses are fetched at once: their text stays far below a gigabyte.
BLOCKS_PER_FETCH = 131_072
UNFINISHED = PACKINGS.text(BUILD_SUFFIX)


# Rows that are left out and named.
FAULTS_SHOWN = 3


# Rows have addresses that we may read only in plain tables, and only with the privilege on the whole
# table. What settings of the caller decide is read under these.
NO_ADDRESSES = """
    c.relkind NOT IN ('r', 'm')
    OR cerebro._is_seen(c.oid)
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)
    OR COALESCE((SELECT a.amname FROM pg_catalog.pg_am a WHERE a.oid = c.relam), 'heap') <> 'heap'
    OR NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
"""


def staging_needed(condition: str) -> str:
    """SQL of whether the rows of a table are copied before they are read by their addresses.

    Args:
        condition: over the alias ``c`` of its row in pg_class.
    """
    return f"SELECT {condition} FROM pg_catalog.pg_class c WHERE c.oid = %s"


T = TypeVar("T", bound=Block)


@dataclass(frozen=True)
class Scan(Generic[T]):
    """Rows of a source, and what is read of each over the alias ``s``.

    Attributes:
        table: plain, so that its rows have addresses.
        inputs, targets: with their shapes and classes, as far as they are known.
        weight: what is stored behind the first target; None where rows have no weights.
        left_out: addresses of rows that do not count, as text of an array.
    """

    table: QualifiedName
    inputs: tuple[Input, ...]
    targets: tuple[T, ...]
    weight: Block | None = None
    left_out: str | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns of the packed table, in their order."""
        return (self.inputs[0], self.targets[0], *self.inputs[1:], *self.targets[1:])

    @property
    def read(self) -> tuple[Block, ...]:
        """All that is read of a row, in the order in which its faults are reported."""
        weight = () if self.weight is None else (self.weight,)
        return (self.inputs[0], *weight, self.targets[0], *self.inputs[1:], *self.targets[1:])

    @property
    def rows(self) -> str:
        """FROM item of the rows."""
        return f"ONLY {self.table.sql} s"

    @property
    def kept(self) -> str:
        """The condition that a row counts."""
        if self.left_out is None:
            return "true"
        return (
            f"NOT EXISTS (SELECT 1 FROM unnest('{self.left_out}'::tid[]) AS l(address) "
            "WHERE l.address = s.ctid)"
        )

    # -- parts of the statement that fills buffers, over the rows ``r`` of one ----------------------
    @property
    def names(self) -> str:
        """The columns that are inserted into."""
        return ", ".join(quote(one.name + part) for one in self.blocks for part in ("", "_shape"))

    def gathered(self, key: str) -> str:
        """The number of rows, their keys, and their bytes of each block."""
        listed = ["pg_catalog.count(*)::integer AS n", f"{concatenated(key)} AS keys"]
        listed += [
            f"{concatenated(one.gathered('s', place))} AS b{place}"
            for place, one in enumerate(self.blocks)
        ]
        if self.weight is not None:
            listed.append(f"{concatenated(self.weight.gathered('s', 0))} AS w")
        return ", ".join(listed)

    @property
    def joined(self) -> str:
        """Tables that are joined to the rows for that."""
        return "".join(one.joined("s", place) for place, one in enumerate(self.blocks))

    def packed(self, positions: str) -> str:
        """The bytes and the shape of a buffer, of each block, in the order of ``positions``."""
        listed = []
        for place, one in enumerate(self.blocks):
            data = one.packed(f"r.b{place}", positions)
            if self.weight is not None and one is self.targets[0]:
                data = f"cerebro._pack_weights({data}, {self.weight.packed('r.w', positions)}, r.n)"
            listed += [data, f"r.n || {array_literal(one.shape)}"]
        return ", ".join(listed)


class PackingStatements:
    """Texts of the statements, each with the parameters that its docstring names."""

    # Whether the rows are spread over segments, or fetched by their addresses.
    in_one_statement = False
    # A column of packed tables that tells where a row lies, and what follows their columns.
    _segment, _distributed = "", ""
    # What orders the rows of a scan, and how a row is found again.
    row_order, row_address = "s.ctid", "s.ctid::text"

    begin_reading = (
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL synchronize_seqscans = off; "
        "SELECT pg_catalog.pg_export_snapshot()"
    )
    # Rows must be fetched by their addresses: a scan of the source for every buffer looks cheap
    # to the planner, but there are many buffers.
    begin_writing = (
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT %s; "
        "SET LOCAL enable_seqscan = off"
    )

    # Parameter: the oid.
    needs_staging = staging_needed(NO_ADDRESSES)
    # Parameters: schema, name.
    blocks = """
    SELECT pg_catalog.pg_relation_size(c.oid)
           / pg_catalog.current_setting('block_size')::bigint
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %s AND c.relname = %s
    """

    def stage(
        self,
        staged: QualifiedName,
        source: QualifiedName,
        columns: Sequence[str],
        wide: Sequence[str],
    ) -> str:
        """A plain table for a copy of the columns, empty; those that are wide are not compressed."""
        listed = ", ".join(map(quote, columns))
        external = "".join(
            f"ALTER TABLE {staged.sql} ALTER {quote(name)} SET STORAGE EXTERNAL; " for name in wide
        )
        return (
            f"CREATE UNLOGGED TABLE {staged.sql} AS SELECT {listed} FROM {source.sql} "
            f"WITH NO DATA; {self._mark(staged)}; {external}"
        )

    def copied(self, staged: QualifiedName, source: QualifiedName, columns: Sequence[str]) -> str:
        """Copy the columns into that table."""
        listed = ", ".join(map(quote, columns))
        return f"INSERT INTO {staged.sql} SELECT {listed} FROM {source.sql}"

    def create(self, table: QualifiedName, names: Sequence[str], has_folds: bool = False) -> str:
        """The packed table, empty and under a name that says it is not finished.

        Args:
            table: its name meanwhile.
            names: of its blocks.
            has_folds: whether its rows have fold numbers.
        """
        columns = "".join(
            f", {quote(name)} bytea NOT NULL, {quote(name + '_shape')} integer[] NOT NULL"
            for name in names
        )
        columns += f", {FOLD_NUMBERS} bytea NOT NULL" if has_folds else ""
        # Bytes are stored as they are: reading them then costs next to nothing.
        external = ", ".join(f"ALTER {quote(name)} SET STORAGE EXTERNAL" for name in names)
        return (
            f"CREATE TABLE {table.sql} ({self._segment}partition_key integer NOT NULL, "
            f"buffer_id integer NOT NULL, num_rows integer NOT NULL{columns}){self._distributed}; "
            f"ALTER TABLE {table.sql} {external}; {self._mark(table)}"
        )

    def primary_key(self) -> str:
        """The columns of the packed table's primary key."""
        return "partition_key, buffer_id"

    def drop(self, tables: Sequence[QualifiedName]) -> str:
        """Remove what is not finished."""
        return "DROP TABLE IF EXISTS " + ", ".join(table.sql for table in tables)

    def shapes(self, scan: Scan[Any]) -> str:
        """The shape of each block, of the first row that has one."""
        listed = (one.known_shape or _first_shape(scan, one.value("s")) for one in scan.blocks)
        return "SELECT " + ", ".join(listed)

    def count(self, table: QualifiedName) -> str:
        """Number of rows."""
        return f"SELECT pg_catalog.count(*) FROM ONLY {table.sql}"

    def addresses(self, table: QualifiedName, whole: bool) -> str:
        """The addresses of all rows as bytes; unless ``whole``: parameters first and last tid."""
        where = "" if whole else "WHERE ctid >= %s::tid AND ctid < %s::tid"
        return (
            "SELECT pg_catalog.string_agg(pg_catalog.tidsend(ctid), ''::bytea) "
            f"FROM ONLY {table.sql} {where}"
        )

    def classes(self, scan: Scan[Any], target: Block, cast: str, varies: bool) -> str:
        """All classes: as text of an array (sorted, NULL last), how many, whether with NULL.

        Of values that are equal and written otherwise the first one by its bytes stands for all.

        Args:
            scan: the rows.
            target: whose classes they are.
            cast: SQL type of them.
            varies: whether equal classes may be written in several ways.
        """
        rows, value = f"FROM {scan.rows} WHERE {scan.kept}", target.value("s")
        groups = f"SELECT DISTINCT {value} AS v {rows}"
        written = "d.v"
        if varies:
            first = f'pg_catalog.min({value}::text COLLATE "C")'
            groups = f"SELECT {value} AS v, {first} AS written {rows} GROUP BY 1"
            written = f"d.written::{cast}"
        return (
            f"SELECT pg_catalog.array_agg({written} ORDER BY d.v)::text, pg_catalog.count(*), "
            f"COALESCE(pg_catalog.bool_or(d.v IS NULL), false) FROM ({groups}) d"
        )

    def all_one_hot(self, scan: Scan[Any], target: Block) -> str:
        """True if a target, the place of a 1, is one in every row."""
        return (
            f"SELECT NOT EXISTS (SELECT 1 FROM {scan.rows} "
            f"WHERE {scan.kept} AND COALESCE({target.value('s')}, -1) < 0)"
        )

    def damaged(self, table: QualifiedName, damage: str) -> str:
        """The rows of some blocks whose images cannot be read.

        Parameters: the first tid, the one after the last. Columns: the addresses of all of them as
        bytes; what is wrong with the first ones.
        """
        return f"""
        SELECT pg_catalog.string_agg(pg_catalog.tidsend(f.ctid), ''::bytea ORDER BY f.ctid),
               (pg_catalog.array_agg(f.fault ORDER BY f.ctid))[1:{FAULTS_SHOWN}]
          FROM (SELECT s.ctid, {damage} AS fault
                  FROM ONLY {table.sql} s
                 WHERE s.ctid >= %s::tid AND s.ctid < %s::tid OFFSET 0) f
         WHERE f.fault IS NOT NULL
        """

    def ranks(self, scan: Scan[Any], name: str) -> str:
        """The rank of each row's value in a column, from 0, as integers of four bytes in the order of addresses;
        the number of rows where it is NULL."""
        value = f"s.{quote(name)}"
        return f"""
        SELECT pg_catalog.string_agg(pg_catalog.int4send((r.n - 1)::integer), ''::bytea ORDER BY r.address),
               pg_catalog.count(CASE WHEN r.missing THEN 1 END)
          FROM (SELECT s.ctid AS address, pg_catalog.dense_rank() OVER (ORDER BY {value}) AS n,
                       {value} IS NULL AS missing
                  FROM {scan.rows} WHERE {scan.kept}) r
        """

    def fill(self, table: QualifiedName, scan: Scan[Any], has_folds: bool = False) -> str:
        """Fill one buffer.

        Parameters: partition_key, buffer_id, fold numbers where rows have any, the addresses, the positions.
        """
        names, numbers = (f"{FOLD_NUMBERS}, ", "%s::bytea, ") if has_folds else ("", "")
        return f"""
        INSERT INTO {table.sql} (partition_key, buffer_id, num_rows, {names}{scan.names})
        SELECT %s, %s, r.n, {numbers}{scan.packed("p.positions")}
          FROM (SELECT {scan.gathered("pg_catalog.tidsend(s.ctid)")}
                  FROM {scan.rows}{scan.joined}
                 WHERE s.ctid = ANY (%s::tid[])) r,
               (SELECT %s::bytea AS positions) p
        """

    def named_row(self, number: int, table: QualifiedName, address: str | None) -> str:
        """Words that lead a user to a row of ``culprit``; the address in a copy would lead nowhere."""
        where = f"row {number} of the scan of {table}"
        return where if address is None else f"{where}, ctid {address}"

    def culprit(self, scan: Scan[Any]) -> str:
        """The first row that cannot be packed.

        Columns: number in the scan, address, place of what is at fault in ``scan.read``, the fault, the shape
        of it, and of a target its value as text; of anything else that of the first target.
        """
        # Where a row is left out its place among all rows still counts.
        kept = "true"
        if scan.left_out is not None:
            listed = f"SELECT l.address::text FROM unnest('{scan.left_out}'::tid[]) AS l(address)"
            kept = f"r.address NOT IN ({listed})"
        parts = []
        for place, one in enumerate(scan.read):
            label = one if one in scan.targets else scan.targets[0]
            parts.append(
                f"SELECT r.n, r.address, {place} AS place, {one.fault('r.v')} AS fault, "
                f"{one.shape_of('r.v')} AS shape, r.label FROM (SELECT "
                f"pg_catalog.row_number() OVER (ORDER BY {self.row_order}) AS n, "
                f"{self.row_address} AS address, {one.value('s')} AS v, "
                f"{label.value('s')}::text AS label FROM {scan.rows}) r WHERE {kept}"
            )
        return f"""
        SELECT f.n, f.address, f.place, f.fault, f.shape, f.label FROM ({" UNION ALL ".join(parts)}) f
         WHERE f.fault IS NOT NULL ORDER BY f.n, f.place LIMIT 1
        """

    def finish(
        self,
        table: QualifiedName,
        output: QualifiedName,
        summary: QualifiedName,
        fields: Sequence[tuple[str, str]],
        drops: Sequence[QualifiedName],
        more: str = "",
    ) -> str:
        """The packed table gets its name and its summary, within a transaction; ``drops`` go.

        Parameters: the values of ``fields``, which are names and SQL types, then those of ``more``,
        which are further statements.
        """
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in fields)
        values = ", ".join(f"%s::{kind}" for _, kind in fields)
        drop = f"{self.drop(drops)}; " if drops else ""
        return (
            f"ALTER TABLE {table.sql} RENAME TO {quote(output.name)}; "
            f"ALTER TABLE {output.sql} ADD PRIMARY KEY ({self.primary_key()}); "
            f"{PACKED.comment(output)}; "
            f"CREATE TABLE {summary.sql} ({columns}); "
            f"{PACKED.comment(summary, '_summary')}; "
            f"INSERT INTO {summary.sql} VALUES ({values}); {more}{drop}"
        )

    def _mark(self, table: QualifiedName) -> str:
        return f"COMMENT ON TABLE {table.sql} IS '{UNFINISHED}'"


def concatenated(expression: str) -> str:
    """Bytes of all rows of a group, one after another."""
    return f"pg_catalog.string_agg({expression}, ''::bytea)"


def _first_shape(scan: Scan[Any], expression: str) -> str:
    return (
        f"(SELECT {array_shape(expression)} FROM {scan.rows} "
        f"WHERE pg_catalog.array_ndims({expression}) IS NOT NULL AND {scan.kept} LIMIT 1)"
    )
