"""SQL of packing on PostgreSQL: rows are fetched by address, one statement fills one buffer.

Every text here passes through the client's parameter formatting: identifiers come quoted from
``names``, values are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_db.columns.inputs import Input, array_fault, array_shape, sent_array
from cerebro_db.columns.numbers import FLOAT32_LIMIT
from cerebro_db.postgres.dialects.statements import packing_extras
from cerebro_db.postgres.dialects.statements.packing_extras import (
    EQUALS,
    FAULTS_SHOWN,
    Extra,
    Origin,
)
from cerebro_db.postgres.names import QualifiedName, quote
from cerebro_db.postgres.tables.kinds import BUILD_SUFFIX, PACKED, PACKINGS

# Blocks whose row addresses are fetched at once: their text stays far below a gigabyte.
BLOCKS_PER_FETCH = 131_072
UNFINISHED = PACKINGS.text(BUILD_SUFFIX)


@dataclass(frozen=True)
class SourceScan:
    """Source of rows: a table and two expressions over its alias ``s``.

    Attributes:
        table: plain, so that its rows have addresses.
        input: what is read as the features.
        target: expression; of an array type for float targets.
        class_type: SQL text of the class type; None for float targets.
        weight: expression of a number; None where rows have no weights.
        extras: further inputs and outputs.
        left_out: addresses of rows that do not count, as text of an array.
        origins: of the features, the target and the weight.
        equals: SQL operator by which classes are compared.
        varies: whether equal classes may be written in several ways.
    """

    table: QualifiedName
    input: Input
    target: str
    class_type: str | None
    weight: str | None = None
    extras: tuple[Extra, ...] = ()
    left_out: str | None = None
    origins: tuple[Origin, Origin, Origin] = (Origin(), Origin(), Origin())
    equals: str = EQUALS
    varies: bool = False

    @property
    def kept(self) -> str:
        """The condition that a row counts."""
        if self.left_out is None:
            return "true"
        return (
            f"NOT EXISTS (SELECT 1 FROM unnest('{self.left_out}'::tid[]) AS l(address) "
            "WHERE l.address = s.ctid)"
        )

    @property
    def sent(self) -> str:
        """The features of a row in binary form; empty for NULL."""
        return self.input.sent(self.features)

    @property
    def features(self) -> str:
        """Expression of the features."""
        return self.input.value("s")


class PackingStatements:
    """Texts of the statements, each with the parameters that its docstring names."""

    # Whether the rows are spread over segments, or fetched by their addresses.
    in_one_statement = False
    # What orders the rows of a scan, and how a row is found again.
    row_order, row_address = "s.ctid", "s.ctid::text"
    # A column of packed tables that tells where a row lies, and what follows their columns.
    _segment, _distributed = "", ""

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

    # Parameter: the oid. Rows have addresses that we may read only in plain tables, and only
    # with the privilege on the whole table. What settings of the caller decide is read under these.
    needs_staging = """
    SELECT c.relkind NOT IN ('r', 'm')
           OR cerebro._is_seen(c.oid)
           OR EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)
           OR COALESCE((SELECT a.amname FROM pg_catalog.pg_am a WHERE a.oid = c.relam), 'heap')
              <> 'heap'
           OR NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
      FROM pg_catalog.pg_class c WHERE c.oid = %s
    """
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

    def create(self, table: QualifiedName, features: str, target: str) -> str:
        """The packed table, empty and under a name that says it is not finished."""
        data, labels = quote(features), quote(target)
        # Bytes are stored as they are: reading them then costs next to nothing.
        return (
            f"CREATE TABLE {table.sql} ({self._segment}partition_key integer NOT NULL, "
            f"buffer_id integer NOT NULL, num_rows integer NOT NULL, "
            f"{data} bytea NOT NULL, {quote(features + '_shape')} integer[] NOT NULL, "
            f"{labels} bytea NOT NULL, {quote(target + '_shape')} integer[] NOT NULL)"
            f"{self._distributed}; "
            f"ALTER TABLE {table.sql} ALTER {data} SET STORAGE EXTERNAL, "
            f"ALTER {labels} SET STORAGE EXTERNAL; {self._mark(table)}"
        )

    def primary_key(self) -> str:
        """The columns of the packed table's primary key."""
        return "partition_key, buffer_id"

    def drop(self, tables: Sequence[QualifiedName]) -> str:
        """Remove what is not finished."""
        return "DROP TABLE IF EXISTS " + ", ".join(table.sql for table in tables)

    def shapes(self, scan: SourceScan) -> str:
        """The shapes of the first rows that have one: features, target (NULL without arrays)."""
        parts = [scan.input.known_shape or _first_shape(scan, scan.features)]
        parts.append("NULL" if scan.class_type else _first_shape(scan, scan.target))
        return "SELECT " + ", ".join(parts)

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

    def classes(self, scan: SourceScan) -> str:
        """All classes: as text of an array (sorted, NULL last), how many, whether with NULL.

        Of values that are equal and written otherwise the first one by its bytes stands for all.
        """
        rows = f"FROM ONLY {scan.table.sql} s WHERE {scan.kept}"
        groups = f"SELECT DISTINCT {scan.target} AS v {rows}"
        written = "d.v"
        if scan.varies:
            first = f'pg_catalog.min({scan.target}::text COLLATE "C")'
            groups = f"SELECT {scan.target} AS v, {first} AS written {rows} GROUP BY 1"
            written = f"d.written::{scan.class_type}"
        return (
            f"SELECT pg_catalog.array_agg({written} ORDER BY d.v)::text, pg_catalog.count(*), "
            f"COALESCE(pg_catalog.bool_or(d.v IS NULL), false) FROM ({groups}) d"
        )

    def all_one_hot(self, scan: SourceScan) -> str:
        """True if the target, the place of a 1, is one in every row."""
        return (
            f"SELECT NOT EXISTS (SELECT 1 FROM ONLY {scan.table.sql} s "
            f"WHERE {scan.kept} AND COALESCE({scan.target}, -1) < 0)"
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

    def fill(self, table: QualifiedName, scan: SourceScan, columns: Sequence[str]) -> str:
        """Fill one buffer.

        Parameters: partition_key, buffer_id, divisor; for float targets the shape of their
        arrays; the shape of a target; what the extras take; for classes the id of NULL, then
        those of the extras, and all class values, then those of the extras; the addresses, the
        positions, the shape of the features.
        """
        return f"""
        INSERT INTO {table.sql} (partition_key, buffer_id, num_rows, {filled_columns(scan, columns)})
        SELECT %s, %s, r.n, {filled_values(scan, "p.positions", "p.shape")}
          FROM (SELECT {gathered_rows(scan, "pg_catalog.tidsend(s.ctid)")}
                  FROM ONLY {scan.table.sql} s {joined_classes(scan)}
                 WHERE s.ctid = ANY (%s::tid[])) r,
               (SELECT %s::bytea AS positions, %s::integer[] AS shape) p
        """

    def named_row(self, number: int, table: QualifiedName, address: str | None) -> str:
        """Words that lead a user to a row of ``culprit``; the address in a copy would lead nowhere."""
        where = f"row {number} of the scan of {table}"
        return where if address is None else f"{where}, ctid {address}"

    def culprit(self, scan: SourceScan, shape: Sequence[int], target_shape: Sequence[int]) -> str:
        """The first row that cannot be packed.

        Parameters: divisor; for classes all class values. Columns: number in the scan, address,
        then for features and target each: fault (null, shape, value), and shape; the target; a
        weight that cannot be one.
        """
        features, x_shape = scan.input.fault("r.x", shape, "%s"), scan.input.shape_of("r.x")
        found = ["f.y_fault IS NOT NULL", "f.w_fault IS NOT NULL"]
        if scan.left_out is None:
            found.append("f.x_fault IS NOT NULL")
        kept = "true" if scan.left_out is None else "f.x_fault IS NULL"
        if scan.class_type is None:
            target = array_fault("r.y", target_shape, "1.0")
        else:
            target = (
                f"CASE WHEN NOT EXISTS (SELECT 1 FROM unnest(%s::{scan.class_type}[]) "
                f"AS c(v) WHERE c.v {scan.equals} r.y OR (c.v IS NULL AND r.y IS NULL)) "
                "THEN 'class' END"
            )
        weight = (
            f"CASE WHEN r.w >= 0 AND r.w < {FLOAT32_LIMIT} THEN NULL "
            "ELSE COALESCE(r.w::text, 'NULL') END"
        )
        target_dims = "NULL" if scan.class_type else array_shape("r.y")
        return f"""
        SELECT f.n, f.address, f.x_fault, f.x_shape, f.y_fault, f.y_shape, f.y_text, f.w_fault FROM (
            SELECT r.n, r.address, {features} AS x_fault, {x_shape} AS x_shape,
                   {target} AS y_fault, {target_dims} AS y_shape, r.y::text AS y_text,
                   {weight} AS w_fault
              FROM (SELECT pg_catalog.row_number() OVER (ORDER BY {self.row_order}) AS n,
                           {self.row_address} AS address, {scan.features} AS x, {scan.target} AS y,
                           {scan.weight or "1"} AS w
                      FROM ONLY {scan.table.sql} s) r) f
         WHERE ({" OR ".join(found)}) AND {kept}
         ORDER BY f.n LIMIT 1
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


def one_hot_place(array: str, places: int) -> str:
    """The place of the 1 in a one-hot array, from 0; -1 of another array, NULL of NULL.

    Args:
        array: expression of an array of whole numbers.
        places: how many numbers it has.
    """
    return (
        f"(SELECT CASE WHEN {array} IS NULL THEN NULL "
        f"WHEN pg_catalog.array_ndims({array}) = 1 AND pg_catalog.count(e.v) = {places} "
        f"AND pg_catalog.count(*) = {places} "
        "AND pg_catalog.bool_and(e.v IN (0, 1)) AND pg_catalog.sum(e.v) = 1 "
        "THEN pg_catalog.max(CASE WHEN e.v = 1 THEN e.o - 1 END)::integer ELSE -1 END "
        f"FROM unnest({array}) WITH ORDINALITY AS e(v, o))"
    )


def filled_columns(scan: SourceScan, columns: Sequence[str]) -> str:
    """The columns of a packed table that a buffer is inserted into, behind its keys and number of rows."""
    names = ", ".join(quote(name + part) for name in columns for part in ("", "_shape"))
    return names + packing_extras.names(scan.extras)


def filled_values(scan: SourceScan, positions: str, shape: str) -> str:
    """Values of these columns, over the rows ``r`` of a buffer.

    Args:
        scan: of the source.
        positions: expression of the order of the rows.
        shape: expression of the shape of the features.
    """
    x, y, w = scan.origins
    packed = f"cerebro._pack_labels(r.y, r.keys, {positions})"
    if scan.class_type is None:
        packed = (
            f"cerebro._pack_arrays(r.y, r.keys, {positions}, %s::integer[], 1.0, {y.arguments})"
        )
    if scan.weight is not None:
        column = f"cerebro._pack_arrays(r.w, r.keys, {positions}, ARRAY[1], 1.0, {w.arguments})"
        packed = f"cerebro._pack_weights({packed}, {column}, r.n)"
    return f"""
               cerebro._pack_arrays(r.x, r.keys, {positions}, {shape}, %s, {x.arguments}),
               r.n || {shape}, {packed}, r.n || %s::integer[]
               {packing_extras.packed(scan.extras, positions)}"""


def gathered_rows(scan: SourceScan, key: str) -> str:
    """Aggregates of the rows ``s`` of a buffer: their number, keys, features, targets, weights, extras."""
    target = label(scan.target) if scan.class_type is not None else sent_array(scan.target)
    weights = "NULL::bytea"
    if scan.weight is not None:
        weights = concatenated(sent_array(f"ARRAY[{scan.weight}]"))
    return f"""pg_catalog.count(*)::integer AS n,
                       {concatenated(key)} AS keys,
                       {concatenated(scan.sent)} AS x,
                       {concatenated(target)} AS y,
                       {weights} AS w{packing_extras.gathered(scan.extras)}"""


def joined_classes(scan: SourceScan) -> str:
    """Class ids beside the rows ``s``, of the target and of extras."""
    own = classes_join(scan) if scan.class_type is not None else ""
    return f"{own} {packing_extras.joins(scan.extras)}"


def label(target: str) -> str:
    """A class id in its binary form."""
    return f"pg_catalog.int4send(COALESCE(c.id, CASE WHEN {target} IS NULL THEN %s ELSE -1 END))"


def classes_join(scan: SourceScan) -> str:
    """Class ids beside the rows; NULL is left to the label, as a join that matches it is slow."""
    return f"""
    LEFT JOIN (SELECT u.v, (u.o - 1)::integer AS id
                 FROM unnest(%s::{scan.class_type}[]) WITH ORDINALITY AS u(v, o)) c
      ON c.v {scan.equals} {scan.target}
    """


def _first_shape(scan: SourceScan, expression: str) -> str:
    return (
        f"(SELECT {array_shape(expression)} FROM ONLY {scan.table.sql} s "
        f"WHERE pg_catalog.array_ndims({expression}) IS NOT NULL AND {scan.kept} LIMIT 1)"
    )
