"""Rows that were read, compared with the rows that a source has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import IncompleteRead, WrongObjectType

if TYPE_CHECKING:
    from cerebro_db.postgres.names import QualifiedName
    from cerebro_db.postgres.sessions.session import Session
    from cerebro_db.postgres.tables.relations import Relation

_CITUS = "Citus"


def count_of(rows: str) -> str:
    """The statement that counts rows.

    Args:
        rows: what stands behind FROM; a table's name takes in all that lies below it.
    """
    return f"SELECT pg_catalog.count(*) FROM {rows}"


def check_complete(role: str, table: QualifiedName, counted: int, read: int) -> None:
    """Refuse to go on with other rows than the source has.

    Args:
        role: the name of the argument, for messages.
        table: the source.
        counted: its rows, in the same snapshot.
        read: rows that were read.

    Raises:
        IncompleteRead: the numbers differ.
    """
    if read != counted:
        raise IncompleteRead(f"{role}: {table} has {counted} rows, and {read} were read")


_IS_CITUS = "SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL AS known"
_IS_DISTRIBUTED = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_dist_partition p WHERE p.logicalrelid = %s) AS found"


def scanned_elsewhere(session: Session, table: QualifiedName) -> str | None:
    """The scan by which Citus reads a table whose rows are not in the table itself, or a view of such.

    Distributed and reference tables look like plain tables, and the addresses of their rows mean nothing
    here. None for a table that the server reads itself.
    """
    if not session.run(_IS_CITUS)[0][0]:
        return None
    ((plan,),) = session.run(f"EXPLAIN (FORMAT JSON, COSTS off) SELECT 1 FROM {table.sql} t")
    listed = json.loads(plan) if isinstance(plan, str) else plan
    return _scan_of_citus(listed[0]["Plan"])


def _scan_of_citus(node: dict[str, Any]) -> str | None:
    provider = str(node.get("Custom Plan Provider", ""))
    if provider.startswith(_CITUS):
        return provider
    found = (_scan_of_citus(child) for child in node.get("Plans", ()))
    return next((name for name in found if name), None)


def check_local(session: Session, relation: Relation, role: str) -> None:
    """Refuse a table that Cerebro-DB has made, and that Citus has distributed since.

    Its rows go through aggregates of Cerebro-DB, which the nodes of Citus do not have. The catalog is asked, as
    functions that may not explain a statement come here, too.

    Raises:
        WrongObjectType: its rows are not in the table itself.
    """
    if not session.run(_IS_CITUS)[0][0] or not session.run(_IS_DISTRIBUTED, (relation.oid,))[0][0]:
        return
    raise WrongObjectType(
        f"{role}: the rows of {relation.name} are distributed by Citus; allowed: a table of this server, "
        "as Cerebro-DB has made it",
        hint=f"SELECT undistribute_table('{relation.name}') brings the rows back; sources of rows may be distributed",
    )
