"""Whether a packed table is still the one that was read: its name, and a fingerprint of what is in it."""

from __future__ import annotations

import hashlib
import re
from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

from cerebro_db.errors import (
    CerebroError,
    InvalidData,
    UndefinedTable,
    WrongRunStatus,
)
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.postgres.tables.packed import PackedTable
from cerebro_db.postgres.tables.relations import Relation

# SQLSTATE of what finds no rows, and of what finds no table.
_WITHOUT_ROWS = (InvalidData.sqlstate, UndefinedTable.sqlstate)


def check_name(session: Session, relation: Relation) -> None:
    """Check that a name is still that of the table that was found at the beginning.

    Raises:
        WrongRunStatus: it is another table's by now, or nobody's.
    """
    ((oid,),) = session.run("SELECT pg_catalog.to_regclass(%s)::oid", (relation.name.text,))
    if oid != relation.oid:
        raise WrongRunStatus(
            f"{relation.name}: got {'no' if oid is None else 'another'} table; allowed: the table that was "
            "read at the beginning",
            hint="it was renamed or replaced while it was read: give the table its name back, and go on with "
            "cerebro.cerebro_resume, or start anew with the other table",
        )


def cause_of(error: CerebroError, session: Session, relations: Iterable[Relation]) -> CerebroError:
    """Reason why a read of packed tables has failed: maybe the name of one has become another table's.

    Args:
        error: of the statement that has read them.
        session: any other one.
        relations: the tables, as they were found at the beginning.
    """
    try:
        for relation in relations if error.sqlstate in _WITHOUT_ROWS else ():
            check_name(session, relation)
    except WrongRunStatus as taken:
        return taken
    return error


def fingerprint(session: Session, packed: PackedTable, like: str | None = None) -> str:
    """Fingerprint of a packed table: another one once anything in it was changed.

    The rows' own transaction numbers are part of it, so that no byte of the data has to be read.

    Args:
        session: has the caller's rights.
        packed: the table.
        like: an earlier fingerprint that it is to be compared with.

    Raises:
        InvalidData: that one is of a later version of Cerebro-DB, whose expression is not known here.
    """
    if like is not None and (other := _OTHER_PRINT.match(like)):
        raise InvalidData(
            f"{packed.relation.name}: got a fingerprint of version {other[1]}; allowed: {_PRINT_VERSION}",
            hint="a later version of Cerebro-DB has made it: go on with that one",
        )
    rows = session.run(print_query(packed))
    return hashlib.sha256(f"{rows[0][0]} {_facts_1(packed)}".encode()).hexdigest()


# A run that is resumed compares its fingerprint, whichever version has made it: an expression that was
# released never changes. Another one gets the next number, before a colon, and its own function.
_PRINT_VERSION = 1


_OTHER_PRINT = re.compile(r"(\d+):")


def _facts_1(packed: PackedTable) -> str:
    """Facts about a packed table as text; as 0.1.0 had them, whatever attributes were added since."""

    def tuples(kind: str, names: str, values: Sequence[Any]) -> tuple[Any, ...]:
        made: Any = namedtuple(kind, names)  # type: ignore[misc]
        return tuple(made(*(getattr(one, name) for name in names.split())) for one in values)

    targets = (
        "name kind shape dtype type category num_classes classes_found class_values class_array"
    )
    return repr(
        (
            tuples("PackedInput", "name shape dtype type", packed.inputs),
            tuples("PackedTarget", targets, packed.targets),
            packed.normalizing_const,
            tuples("PartitionInfo", "partition_key rows buffers segment_key", packed.partitions),
        )
    )


def print_query(packed: PackedTable) -> str:
    """The query for what is known of the rows of a packed table without reading their bytes."""
    version = "p.xmin::text" if packed.relation.kind == "r" else "''"
    columns = [*(one.name for one in packed.inputs), *(one.name for one in packed.targets[1:])]
    lengths = ", ".join(f"pg_catalog.octet_length(p.{quote(name)})" for name in columns)
    # OFFSET 0 has this computed where the rows lie: a planner would rather bring them to where they
    # are sorted, bytes and all.
    return (
        "SELECT pg_catalog.md5(pg_catalog.string_agg(q.line, ',' "
        "ORDER BY q.partition_key, q.buffer_id)) FROM (SELECT p.partition_key, p.buffer_id, "
        f"pg_catalog.concat_ws('/', p.partition_key, p.buffer_id, {version}, {lengths}) AS line "
        f"FROM {packed.relation.name.sql} p OFFSET 0) AS q"
    )
