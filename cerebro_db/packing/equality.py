"""Equality of classes: that of the type and collation of the training column, in every statement."""

from __future__ import annotations

from dataclasses import replace

from cerebro_db.packing.source import Target
from cerebro_db.postgres.names import quote
from cerebro_db.postgres.packed import PackedTarget
from cerebro_db.postgres.relations import Relation
from cerebro_db.postgres.sessions import Session

# The operator by which the server itself finds equal values of a type, where that is none of its own types:
# by their names alone a session finds operators of its search_path only, and of text for all that can be cast
# to it. Parameter: SQL text of the type.
_OPERATOR = """
SELECT n.nspname, o.oprname
  FROM pg_catalog.pg_type t
  JOIN pg_catalog.pg_opclass c ON c.opcintype = t.oid AND c.opcdefault
  JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
  JOIN pg_catalog.pg_amop a ON a.amopfamily = c.opcfamily AND a.amoplefttype = t.oid
       AND a.amoprighttype = t.oid AND a.amopstrategy = 3
  JOIN pg_catalog.pg_operator o ON o.oid = a.amopopr
  JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
 WHERE t.oid = %s::pg_catalog.regtype
   AND t.typnamespace <> (SELECT p.oid FROM pg_catalog.pg_namespace p WHERE p.nspname = 'pg_catalog')
"""
# Whether values of a column may be equal that are not the same. Older servers have no such collations.
# Parameters: oid of the table, name of the column.
_COLLATION = """
SELECT COALESCE(pg_catalog.row_to_json(l) ->> 'collisdeterministic', 'true') = 'false'
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
 WHERE a.attrelid = %s AND a.attname = %s
"""
_INTERVAL_OID = 1186
_TEXTS = "S"


def compared(
    session: Session, source: Relation, target: Target, model: PackedTarget | None = None
) -> Target:
    """A target of classes that are compared as the server compares values of their type.

    Args:
        session: has the caller's rights.
        source: the table.
        target: as its column alone tells.
        model: of the packed table that it follows, whose type counts.
    """
    if not target.is_class or target.places:
        return target
    if model is not None and model.category == target.column.category == _TEXTS:
        target = replace(target, cast=model.class_type.removesuffix("[]") or target.cast)
    operators = session.run(_OPERATOR, (target.cast,))
    collations = session.run(_COLLATION, (source.oid, target.column.name))
    equals = target.equals
    for schema, name in operators:
        operator = name.replace("%", "%%")
        equals = f"OPERATOR({quote(schema)}.{operator})"
    varies = bool(operators) or (True,) in collations or target.column.type_oid == _INTERVAL_OID
    return replace(target, equals=equals, varies=varies)
