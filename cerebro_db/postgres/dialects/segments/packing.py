"""SQL of packing on Greenplum: one statement spreads the rows over the segments and packs them.

A copy of the source gets a key for each row that shuffles it. The rank of a row among these keys
says into which buffer of which partition it goes, and the partition on which segment.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from cerebro_db.postgres.dialects.statements.packing import (
    FAULTS_SHOWN,
    NO_ADDRESSES,
    PackingStatements,
    Scan,
    staging_needed,
)
from cerebro_db.postgres.names import QualifiedName, quote

# The column by which packed rows are distributed: one value for each segment.
SEGMENT_KEY = "segment_key"
STAGE = QualifiedName("pg_temp", "cerebro_stage")
_COPY = QualifiedName("pg_temp", "cerebro_copy")
_RANKS = QualifiedName("pg_temp", "cerebro_ranks")
_DAMAGED = QualifiedName("pg_temp", "cerebro_damaged")
_KEYS = QualifiedName("pg_temp", "cerebro_segment_keys")
# Many times more keys than segments are tried, so that each segment gets one.
_KEYS_A_SEGMENT = 64
# Segment, block and item of a row, as the server sends them.
_PLACE = struct.Struct(">iIH")


class Spreading(NamedTuple):
    """Distribution of rows.

    Attributes:
        rows: of the source.
        segment_keys: of each partition.
        buffer_size: most rows of a buffer.
    """

    rows: int
    segment_keys: Sequence[int]
    buffer_size: int


class SegmentPacking(PackingStatements):
    """Texts of the statements, each with the parameters that its docstring names."""

    in_one_statement = True
    _segment = f"{SEGMENT_KEY} integer NOT NULL, "
    _distributed = f" DISTRIBUTED BY ({SEGMENT_KEY})"
    row_order = "s.cerebro_place"
    row_address = "pg_catalog.encode(s.cerebro_place, 'hex')"
    staged = STAGE
    begin = "BEGIN"

    # Keys, and the segments where their rows lie.
    segment_keys = f"""
    CREATE TEMPORARY TABLE {_KEYS.sql} ON COMMIT DROP AS
    SELECT g AS segment_key
      FROM pg_catalog.generate_series(0, {_KEYS_A_SEGMENT} * (
               SELECT pg_catalog.count(*)::integer FROM pg_catalog.gp_segment_configuration
                WHERE role = 'p' AND content >= 0)) g
    DISTRIBUTED BY (segment_key);
    SELECT k.segment, pg_catalog.min(k.segment_key)
      FROM (SELECT gp_segment_id AS segment, segment_key FROM {_KEYS.sql}) k
     GROUP BY 1 ORDER BY 1
    """

    # Where the rows of keys lie, of keys that were taken before. Parameter: the keys.
    segments_of = f"""
    SELECT k.segment_key, k.gp_segment_id FROM {_KEYS.sql} k
     WHERE k.segment_key = ANY (%s::integer[])
    """

    # Each segment has all rows of a replicated table: they have no addresses. Parameter: the oid.
    needs_staging = staging_needed(
        f"""{NO_ADDRESSES} OR EXISTS (SELECT 1 FROM pg_catalog.gp_distribution_policy p
                                       WHERE p.localoid = c.oid AND p.policytype = 'r')"""
    )

    def copy(self, source: QualifiedName, columns: Sequence[str]) -> tuple[str, QualifiedName]:
        """Copy what has no addresses; and the name of the copy."""
        listed = ", ".join(map(quote, columns))
        text = (
            f"CREATE TEMPORARY TABLE {_COPY.sql} ON COMMIT DROP AS "
            f"SELECT {listed} FROM {source.sql} DISTRIBUTED RANDOMLY"
        )
        return text, _COPY

    def shuffle(self, source: QualifiedName, columns: Sequence[str], shuffled: bool) -> str:
        """Make the copy whose rows have keys. Parameter, if ``shuffled``: the seed.

        Where a row of a view's copy lies is chance: there what it holds comes first.
        """
        listed = ", ".join(f"s.{quote(name)}" for name in columns)
        place = "pg_catalog.int4send(s.gp_segment_id) || pg_catalog.tidsend(s.ctid)"
        first, last = place, ""
        if source == _COPY:
            held = f"pg_catalog.md5(pg_catalog.record_send(ROW({listed})))"
            first, last = f"pg_catalog.decode({held}, 'hex')", f" || {place}"
            place = first + last
        if shuffled:
            first = (
                "pg_catalog.decode(pg_catalog.md5(%s || '/' || "
                f"pg_catalog.encode({first}, 'hex')), 'hex')"
            )
        key = first + last
        return (
            f"CREATE TEMPORARY TABLE {STAGE.sql} ON COMMIT DROP AS "
            f"SELECT {key} AS cerebro_key, {place} AS cerebro_place, {listed} "
            f"FROM ONLY {source.sql} s DISTRIBUTED BY (cerebro_key)"
        )

    def named_row(self, number: int, table: QualifiedName, address: str | None) -> str:
        """Words that lead a user to a row: there is no order in which it would have a number."""
        place = bytes.fromhex(address or "")
        if len(place) != _PLACE.size:
            return f"a row of {table}"
        segment, block, item = _PLACE.unpack(place)
        return f"a row of {table}, gp_segment_id {segment}, ctid ({block},{item})"

    def mark_damaged(self, damage: str) -> str:
        """List the rows of the stage whose images cannot be read; ``damage`` tells why, over its alias ``s``."""
        return (
            f"CREATE TEMPORARY TABLE {_DAMAGED.sql} ON COMMIT DROP AS "
            "SELECT f.cerebro_key, f.address, f.fault "
            f"FROM (SELECT s.cerebro_key, {self.row_address} AS address, "
            f"{damage} AS fault FROM {STAGE.sql} s OFFSET 0) f "
            "WHERE f.fault IS NOT NULL DISTRIBUTED BY (cerebro_key)"
        )

    # How many there are, and the first ones: address, what is wrong.
    marked = f"""
    SELECT pg_catalog.count(*), (pg_catalog.array_agg(d.address ORDER BY d.address))[1:{FAULTS_SHOWN}],
           (pg_catalog.array_agg(d.fault ORDER BY d.address))[1:{FAULTS_SHOWN}]
      FROM {_DAMAGED.sql} d
    """
    delete_marked = (
        f"DELETE FROM {STAGE.sql} s USING {_DAMAGED.sql} d WHERE d.cerebro_key = s.cerebro_key"
    )

    # Only the keys travel to be ranked. The groups are sorted, as all at once may not fit into memory.
    rank = f"""
    SET LOCAL enable_hashagg = off;
    CREATE TEMPORARY TABLE {_RANKS.sql} ON COMMIT DROP AS
    SELECT s.cerebro_key, pg_catalog.row_number() OVER (ORDER BY s.cerebro_key) - 1 AS cerebro_rank
      FROM {STAGE.sql} s
    DISTRIBUTED BY (cerebro_key)
    """

    def primary_key(self) -> str:
        """The columns of the packed table's primary key."""
        return f"{SEGMENT_KEY}, {super().primary_key()}"

    def fill_all(self, table: QualifiedName, scan: Scan[Any], spreading: Spreading) -> str:
        """Fill all buffers."""
        position = "pg_catalog.int4send(s.cerebro_position::integer) || '\\x0000'::bytea"
        return f"""
        INSERT INTO {table.sql} ({SEGMENT_KEY}, partition_key, buffer_id, num_rows, {scan.names})
        SELECT r.segment_key, r.partition_key, r.buffer_id, r.n, {scan.packed("NULL")}
          FROM (SELECT s.segment_key, s.partition_key, s.buffer_id, {scan.gathered(position)}
                  FROM ({_placed(spreading)}) s{scan.joined}
                 GROUP BY 1, 2, 3) r
        """


def _placed(spreading: Spreading) -> str:
    """The rows of the stage with the place of each: the layout of the driver, in SQL."""
    rows, partitions = spreading.rows, len(spreading.segment_keys)
    keys = ", ".join(map(str, spreading.segment_keys))
    return f"""
    SELECT c.*, c.cerebro_row - c.cerebro_size * c.buffer_id / c.cerebro_buffers AS cerebro_position
      FROM (SELECT b.*, (((b.cerebro_row + 1) * b.cerebro_buffers - 1) / b.cerebro_size)::integer AS buffer_id
              FROM (SELECT a.*, a.cerebro_rank - a.cerebro_first AS cerebro_row,
                           (a.cerebro_size + {spreading.buffer_size - 1}) / {spreading.buffer_size}
                           AS cerebro_buffers
                      FROM (SELECT p.*, (ARRAY[{keys}])[p.partition_key + 1] AS segment_key,
                                   {rows}::bigint * p.partition_key / {partitions} AS cerebro_first,
                                   {rows}::bigint * (p.partition_key + 1) / {partitions}
                                   - {rows}::bigint * p.partition_key / {partitions} AS cerebro_size
                              FROM (SELECT t.*, k.cerebro_rank,
                                           (((k.cerebro_rank + 1) * {partitions} - 1) / {rows})::integer
                                           AS partition_key
                                      FROM {STAGE.sql} t
                                      JOIN {_RANKS.sql} k ON k.cerebro_key = t.cerebro_key) p
                           ) a) b) c
    """
